"""The data that a device sends: the exchanges of a function of one device's parts, counted in its program.

Nothing is run, so the mesh may have more devices than exist.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.loop_parts import ScanParts, ScanResults
from rlx.ir.program import Equation, Literal, Program, Var, dead_code
from rlx.ir.types import TensorType
from rlx.sharding.grid import MappedAxes
from rlx.sharding.mesh import AbstractMesh, Mesh
from rlx.sharding.spec import PartitionSpec, names_in
from rlx.sharding.trees import spread
from rlx.trace.flat import as_array, function_name
from rlx.trace.lower import inline_calls
from rlx.trace.primitive import type_of
from rlx.trace.tracing import named_axis, trace_program
from rlx.trees import tree

__all__ = ["DeviceProgram", "AxisTraffic", "Traffic", "device_program", "exchanges_of", "traffic"]

Axes = frozenset[Any]


class AxisTraffic(NamedTuple):
    """Exchanges of one kind over one axis: their number, the rounds one after another, and the bytes sent.

    >>> from rlx.parallel import AxisTraffic
    >>> AxisTraffic("psum", ("model",), 2, 12, 4096).sent
    4096
    """

    kind: str
    axes: tuple[Any, ...]
    count: int
    rounds: int
    sent: int


class Traffic(NamedTuple):
    """The exchanges of a program; `sent` and `rounds` are totals.

    >>> from rlx.parallel import AxisTraffic, Traffic
    >>> found = Traffic((AxisTraffic("psum", ("x",), 1, 6, 96), AxisTraffic("ppermute", ("y",), 3, 3, 30)))
    >>> found.sent, found.rounds, found.of("psum").sent
    (126, 9, 96)
    """

    exchanges: tuple[AxisTraffic, ...]

    @property
    def sent(self) -> int:
        """The bytes that a device sends."""
        return sum(e.sent for e in self.exchanges)

    @property
    def rounds(self) -> int:
        """The number of messages that a device sends one after another."""
        return sum(e.rounds for e in self.exchanges)

    def of(self, kind: str | None = None, axis: Any = None) -> Traffic:
        """The exchanges of one kind, or over one axis."""
        kept = (e for e in self.exchanges if kind in (None, e.kind) and (axis is None or axis in e.axes))
        return Traffic(tuple(kept))

    def __str__(self) -> str:
        rows = ((e, ", ".join(map(str, e.axes))) for e in self.exchanges)
        return "\n".join(f"{e.kind:14s} {axes:12s} {e.count:8,d} times {e.sent:20,d} bytes" for e, axes in rows)


class DeviceProgram(NamedTuple):
    """A device's computation: the program of its parts, and the mesh axes that each input is divided over.

    `captured`: the number of leading inputs that are captured values of the function.
    """

    program: Program
    divided: tuple[Axes, ...]
    sizes: Mapping[Any, int]
    captured: int


# the bytes that a device sends of an operand of n bytes, and the number of rounds, over an axis of m members
_COSTS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "sum": lambda nbytes, n: (-(-2 * (n - 1) * nbytes // n), 2 * (n - 1)),
    "scatter": lambda nbytes, n: (-(-(n - 1) * nbytes // n), n - 1),
    "gather": lambda nbytes, n: ((n - 1) * nbytes, n - 1),
    "send": lambda nbytes, n: (nbytes, 1),
}
# the costs of primitives, over axes and over processes
_KINDS = dict.fromkeys(("psum", "pmax", "pmin", "fan_in", "total", "process_all_reduce"), "sum")
_KINDS |= dict.fromkeys(("psum_scatter", "all_to_all", "process_reduce_scatter", "process_all_to_all"), "scatter")
_KINDS |= dict.fromkeys(("all_gather", "process_all_gather"), "gather")
_KINDS |= dict.fromkeys(("ppermute", "process_permute", "process_broadcast"), "send")


def device_program(
    f: Callable[..., Any], mesh: Mesh | AbstractMesh, in_specs: Any, args: Sequence[Any], check_vma: bool = True
) -> DeviceProgram:
    """The program of one device of a mesh, for its parts of the arguments (arrays, or their shapes and dtypes)."""
    name = function_name(f)
    leaves, treedef = tree.flatten(tuple(args))
    specs = [PartitionSpec() if s is None else s for s in spread(f"in_specs of {name}", in_specs, tuple(args))]
    grid = MappedAxes(name, {axis: size for axis, size in mesh.shape.items() if size > 1}, check_vma)
    types = [TensorType(x.shape, np.dtype(x.dtype)) if hasattr(x, "shape") else type_of(as_array(x)) for x in leaves]
    parts = [t.update(shape=grid.part(t.shape, spec)) for t, spec in zip(types, specs, strict=True)]

    def on_device(*values: Any) -> list[Any]:
        with ExitStack() as scope:
            for axis, size in mesh.shape.items():
                several = size > 1
                scope.enter_context(named_axis(axis, size, not several, several, check_vma and several))
            return [as_array(x) for x in tree.leaves(f(*tree.unflatten(treedef, values)))]

    program, captured = trace_program(on_device, parts, None, name)
    divided = (Axes(),) * len(captured) + tuple(Axes(names_in(s.partitions)) & Axes(grid.sizes) for s in specs)
    return DeviceProgram(dead_code(inline_calls(program)), divided, grid.sizes, len(captured))


def traffic(
    f: Callable[..., Any], *, mesh: Mesh | AbstractMesh, in_specs: Any, check_vma: bool = True
) -> Callable[..., Traffic]:
    """The traffic of each device when shard_map runs `f`, for the ring algorithms of the exchanges.

    For an operand of b bytes over an axis of n members a device sends 2 b (n - 1) / n for psum, pmax and pmin,
    b (n - 1) / n for psum_scatter and all_to_all, b (n - 1) for all_gather, and b for ppermute. A sum of a value that
    is equal on all members sends nothing. The exchanges of derivatives inside `f` and of rlx.distributed are included.

    Args:
      f: a function of one device's parts.
      mesh: a mesh, or an AbstractMesh of any number of devices.
      in_specs, check_vma: as in rlx.shard_map.

    Returns: a function of f's arguments, as arrays or rlx.ShapeDtypeStructs, that returns a Traffic. It raises
      UnsupportedError for exchanges in a loop with an unknown number of iterations.

    >>> import rlx
    >>> from rlx.parallel import traffic
    >>> mesh = rlx.sharding.AbstractMesh((1024,), ("x",))
    >>> count = traffic(lambda x: rlx.lax.psum(x, "x"), mesh=mesh, in_specs=rlx.P("x"))
    >>> count(rlx.ShapeDtypeStruct((1024, 512), "float32")).sent == 2 * 2048 * 1023 // 1024
    True
    """

    def count(*args: Any) -> Traffic:
        return exchanges_of(device_program(f, mesh, in_specs, args, check_vma))

    return count


def exchanges_of(found: DeviceProgram) -> Traffic:
    """The exchanges of a device's program."""
    counter = _Counter(found.sizes)
    counter.walk(found.program, found.divided, 1)
    rows = (AxisTraffic(*key, *map(int, row)) for key, row in counter.rows.items())
    return Traffic(tuple(rows))


def _axes_of(params: Mapping[str, Any]) -> tuple[Any, ...]:
    names = params.get("axis_name", ())
    return names if isinstance(names, tuple) else (names,)


class _Counter:
    """Walks over a program, tracks the axes over which each value varies, and counts the bytes sent."""

    def __init__(self, sizes: Mapping[Any, int]) -> None:
        self.sizes = sizes
        self.rows: dict[tuple[str, tuple[Any, ...]], list[int]] = defaultdict(lambda: [0, 0, 0])

    def walk(self, program: Program, divided: Iterable[Axes], times: int) -> list[Axes]:
        """The axes over which the outputs vary; the program's traffic is added `times` times."""
        varies: dict[Var, Axes] = dict(zip(program.inputs, divided, strict=True))
        for e in program.equations:
            inputs = [Axes() if isinstance(a, Literal) else varies.get(a, Axes()) for a in e.inputs]
            varies.update(zip(e.outputs, self.equation(e, inputs, times), strict=True))
        return [Axes() if isinstance(a, Literal) else varies.get(a, Axes()) for a in program.outputs]

    def equation(self, e: Equation, inputs: Sequence[Axes], times: int) -> Sequence[Axes]:
        """The axes over which an equation's results vary."""
        name, every = e.primitive.name, Axes().union(*inputs)
        if name == "scan":
            return self._scan(e, inputs, times)
        if name == "cond":
            return self._cond(e, inputs, times)
        if any(True for _ in Program((), (e,), ()).regions()):
            return self._loop(e, every)
        if "members" in e.params:
            self._add(name, (e.params["group"],), e, e.params["members"], times)
            return [every] * len(e.outputs)
        if not e.primitive.collective:
            return [every] * len(e.outputs)
        names = Axes(_axes_of(e.params)) & Axes(self.sizes)
        mark = inputs[1] if name in ("once", "total") else Axes()
        sends = {"ppermute": names, "all_to_all": names}.get(name, names & inputs[0] - mark if inputs else Axes())
        if name in _KINDS and sends:
            ordered = tuple(axis for axis in self.sizes if axis in sends)
            self._add(name, ordered, e, math.prod(self.sizes[axis] for axis in ordered), times)
        if name in ("psum", "pmax", "pmin", "fan_in", "all_gather", "total"):
            return [inputs[0] - (names - mark)]
        return [inputs[0] & names if name == "variation" else every | names - mark]

    def _add(self, name: str, axes: tuple[Any, ...], e: Equation, members: int, times: int) -> None:
        sent, rounds = _COSTS[_KINDS[name]](e.inputs[0].type.nbytes, members)
        kind = "psum" if name in ("fan_in", "total") else name
        row = self.rows[kind, axes]
        row[:] = row[0] + times, row[1] + rounds * times, row[2] + sent * times

    def _scan(self, e: Equation, inputs: Sequence[Axes], times: int) -> Sequence[Axes]:
        carries = e.params["carries"]
        constants, carry, xs = ScanParts.of(inputs, e.params["constants"], carries)
        while True:
            found = _Counter(self.sizes).walk(e.params["body"], [*constants, *carry, *xs], 0)
            moved, _ = ScanResults.of(found, carries)
            wider = [a | b for a, b in zip(carry, moved, strict=True)]
            if wider == list(carry):
                return self.walk(e.params["body"], [*constants, *carry, *xs], times * e.params["length"])
            carry = wider

    def _cond(self, e: Equation, inputs: Sequence[Axes], times: int) -> Sequence[Axes]:
        """Counts the branch that sends most."""
        outputs, most = [inputs[0]] * len(e.outputs), _Counter(self.sizes)
        for branch in e.params["branches"]:
            own = _Counter(self.sizes)
            outputs = [a | b for a, b in zip(outputs, own.walk(branch, inputs[1:], times), strict=True)]
            most = max(most, own, key=lambda c: sum(row[2] for row in c.rows.values()))
        for key, row in most.rows.items():
            self.rows[key] = [a + b for a, b in zip(self.rows[key], row, strict=True)]
        return outputs

    def _loop(self, e: Equation, every: Axes) -> Sequence[Axes]:
        """A loop with an unknown number of iterations, which must not send anything."""
        inner = _Counter(self.sizes)
        for region in Program((), (e,), ()).regions():
            every = every.union(*inner.walk(region, [Axes(self.sizes)] * len(region.inputs), 1))
        if inner.rows:
            (kind, axes), *_ = inner.rows
            raise UnsupportedError(
                f"parallel.traffic met {kind} over {axes} in a {e.primitive.name}, whose length depends on values.",
                "Use lax.scan, or lax.fori_loop with bounds that are Python integers.",
            )
        return [every] * len(e.outputs)
