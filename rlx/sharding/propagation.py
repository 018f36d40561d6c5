"""Sharding propagation: forward from a program's arguments, equation by equation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from rlx.errors import DeviceError, ShardingError
from rlx.ir.collectives import how_often
from rlx.ir.mesh_division import MeshDivision
from rlx.ir.program import Atom, Equation, Origin, Program, Var
from rlx.ir.types import TensorType
from rlx.sharding.divided_axes import AxisTurn, DividedCall, over_another_axis, planned
from rlx.sharding.divisions import Division, Names, division_of, joined, shared_names, spec_of
from rlx.sharding.mesh import AbstractMesh, Mesh
from rlx.sharding.shardings import NamedSharding, SingleDeviceSharding
from rlx.sharding.trees import typed

__all__ = ["Resharding", "explained", "followed", "propagated", "stated"]


class Resharding(NamedTuple):
    """An exchange between devices for an operation: of a value that every device needs whole, or of parts of a result.

    axes: the mesh axes of the exchange. nbytes: the size of the value on each device afterwards. times: how
    often it happens; None in a loop of unknown length.
    """

    kind: str
    operation: str
    axes: Names
    nbytes: int
    origin: Origin | None
    times: int | None = 1


def propagated(
    program: Program, given: Sequence[Any], marks: Mapping[Any, Any]
) -> tuple[list[NamedSharding | None], list[Resharding]]:
    """The shardings of a program's results, if known, and the exchanges that computing them needs.

    As `followed`. Shardings over a mesh without devices do not specify where results are placed. Raises DeviceError for
    inputs that were put on different devices.
    """
    _check_devices(program, given)
    places, found = followed(program, given, marks)
    return [None if p is None or p.is_abstract else p for p in places], found


def _check_devices(program: Program, given: Sequence[Any]) -> None:
    """Raises DeviceError for inputs that were put on different devices."""
    placed = [(v, s) for v, s in zip(program.inputs, given, strict=True) if s is not None and s.devices]
    for var, sharding in placed[1:]:
        first, known = placed[0]
        if sharding.device_set != known.device_set:
            raise DeviceError(
                f"{program.name} got arrays on different devices: {first.type!r} as {known!r} and {var.type!r} as"
                f" {sharding!r}.",
                "Put them on the same devices first: rlx.device_put(x, y.sharding). NumPy arrays need no place.",
            )


def followed(program: Program, given: Sequence[Any], marks: Mapping[Any, Any]) -> tuple[list[Any], list[Resharding]]:
    """The shardings of a program's results, if known, and the exchanges that computing them needs.

    given: shardings of its inputs, or None; marks: shardings of variables that the function constrained. Only the
    marks are used if the shardings are over several meshes, or over axes with parts of a sum.
    Results follow inputs that are whole on one device.
    """
    given, marks = _with_devices(given, marks)
    shardings = [s for s in (*given, *marks.values()) if isinstance(s, NamedSharding)]
    meshes = [s.mesh for s in shardings]
    summed = any(s.spec.unreduced or s.spec.reduced for s in shardings)
    if not meshes and (single := {s for s in given if isinstance(s, SingleDeviceSharding)}):
        place = single.pop()
        return [marks.get(a, None if single else place) for a in program.outputs], []
    if not meshes or summed or any(mesh != meshes[0] for mesh in meshes):
        return [marks.get(a) for a in program.outputs], []
    walk = _ShardingWalk(meshes[0].shape, marks, [])
    divisions = walk.program(program, [division_of(s, v.type.ndim) for s, v in zip(given, program.inputs, strict=True)])
    said = {v: s for v, s in zip(program.inputs, given, strict=True) if s is not None} | dict(marks)
    # values that depend on no input are on every device; values of an unplaced input may be anywhere
    others = () if None not in given else None
    found = [others if division is None else division for division in divisions]
    return [
        typed(said[a], a.type.ndim) if a in said else _placed(meshes[0], division)
        for a, division in zip(program.outputs, found, strict=True)
    ], walk.found


def stated(
    program: Program, given: Sequence[Any], marks: Mapping[Any, Any], results: Sequence[Any]
) -> MeshDivision | None:
    """The divisions that a program's shardings state, over a mesh of several devices; None without such a mesh.

    Raises ShardingError for shardings over several meshes, and for parts of a sum.
    """
    shardings = [s for s in (*given, *marks.values(), *results) if isinstance(s, NamedSharding) and s.mesh.size > 1]
    if not shardings:
        return None
    axes = shardings[0].mesh.shape
    if any(s.mesh.shape_tuple != shardings[0].mesh.shape_tuple for s in shardings):
        meshes = ", ".join(dict.fromkeys(repr(s.mesh) for s in shardings))
        raise ShardingError(f"{program.name} has shardings over several meshes: {meshes}.", "Use one mesh.")
    if any(s.spec.unreduced or s.spec.reduced for s in shardings):
        raise ShardingError(f"{program.name} has values that are parts of a sum.", "Sum in the function: lax.psum.")
    inputs = [division_of(s, v.type.ndim) for s, v in zip(given, program.inputs, strict=True)]
    variables = {v: d for v, s in marks.items() if (d := division_of(s, v.type.ndim)) is not None}
    return MeshDivision(
        axes, inputs, variables, [division_of(s, a.type.ndim) for s, a in zip(results, program.outputs, strict=True)]
    )


def _with_devices(given: Sequence[Any], marks: Mapping[Any, Any]) -> tuple[Sequence[Any], Mapping[Any, Any]]:
    """The shardings, with meshes without devices replaced by an input's mesh with the same axes."""
    meshes = [s.mesh for s in given if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)]

    def on_devices(s: Any) -> Any:
        known = meshes and isinstance(s, NamedSharding) and s.mesh.shape_tuple == meshes[0].shape_tuple
        return NamedSharding(meshes[0], s.spec) if known and s.mesh == meshes[0].abstract_mesh else s

    return given, {var: on_devices(s) for var, s in marks.items()} if meshes else marks


def _placed(mesh: Mesh | AbstractMesh, division: Division | None) -> NamedSharding | None:
    return None if division is None else typed(NamedSharding(mesh, spec_of(division)), len(division))


def explained(name: str, found: Sequence[Resharding]) -> str:
    """The exchanges between the devices of a function, one line each."""
    lines = [f"rlx: the devices of {name} exchange"]
    for e in found:
        where = "" if e.origin is None else f" at {e.origin}"
        axes = ", ".join(map(repr, e.axes))
        lines.append(
            f"  {e.kind} over {axes}, {e.nbytes} bytes on each device{how_often(e.times)}: {e.operation}{where}"
        )
    return "\n".join(lines)


class _Rotations(NamedTuple):
    """Arrays that are rotated along an axis: two slices that are joined in the other order.

    found: by the result, the array, the axis and the distance. inside: the slices, if nothing else uses them.
    """

    found: dict[Var, tuple[Atom, int, int]]
    inside: frozenset[Var]

    @classmethod
    def of(cls, program: Program) -> _Rotations:
        """The rotations of a program."""
        joins = [e for e in program.equations if e.primitive.name == "concatenate" and len(e.inputs) == 2]
        if not joins:
            return _NO_ROTATIONS
        makers = {v: e for e in program.equations for v in e.outputs if e.primitive.name == "slice"}
        uses = Counter(a for e in program.equations for a in e.inputs if isinstance(a, Var))
        uses.update(a for a in program.outputs if isinstance(a, Var))
        found: dict[Var, tuple[Atom, int, int]] = {}
        inside: set[Var] = set()
        for join in joins:
            first, second = (
                (makers.get(a) for a in join.inputs if isinstance(a, Var)) if _distinct(join) else (None,) * 2
            )
            if first is None or second is None or first.inputs != second.inputs:
                continue
            axis, shape = join.params["axis"], first.inputs[0].type.shape
            start = first.params["starts"][axis]
            if _cuts(first, axis, start, shape[axis]) and _cuts(second, axis, 0, start):
                found[join.outputs[0]] = first.inputs[0], axis, shape[axis] - start
                inside |= {v for e in (first, second) for v in e.outputs if uses[v] == 1}
        return cls(found, frozenset(inside))


_NO_ROTATIONS = _Rotations({}, frozenset())


def _distinct(join: Equation) -> bool:
    return all(isinstance(a, Var) for a in join.inputs) and join.inputs[0] is not join.inputs[1]


def _cuts(equation: Equation, axis: int, start: int, limit: int) -> bool:
    """Whether a slice takes these rows along an axis, and all of the others."""
    p, shape = equation.params, equation.inputs[0].type.shape
    ranges = zip(p["starts"], p["limits"], p["strides"], strict=True)
    wanted = [(start, limit, 1) if a == axis else (0, n, 1) for a, n in enumerate(shape)]
    return [*ranges] == wanted


class _ShardingWalk(NamedTuple):
    """A walk through a program over the axes of a mesh. It records the exchanges.

    sizes: of the mesh's axes. marks: shardings of variables that the function constrained. times: how often the
    program runs, None if unknown.
    """

    sizes: Mapping[Any, int]
    marks: Mapping[Any, Any]
    found: list[Resharding]
    times: int | None = 1

    def program(self, program: Program, given: Sequence[Division | None]) -> list[Division | None]:
        """How the results are divided; None for results that depend on no input with a known division."""
        known: dict[Atom, Division] = {}
        for var, division in zip(program.inputs, given, strict=True):
            self._settle(known, var, division, None)
        rotations = _Rotations.of(program)
        for equation in program.equations:
            operands = [known.get(a) for a in equation.inputs]
            if equation.outputs and equation.outputs[0] in rotations.inside:
                continue
            if equation.outputs and (turned := rotations.found.get(equation.outputs[0])) is not None:
                self._rotated(known, equation, *turned)
                continue
            found: Sequence[Division | None]
            if equation.primitive.inlined:
                found = self.program(equation.primitive.meaning(equation), operands)
            else:
                found = equation.primitive.divided(self, equation, operands)
            for var, division in zip(equation.outputs, found, strict=True):
                self._settle(known, var, division, equation.origin)
        return [known.get(a) for a in program.outputs]

    def _rotated(self, known: dict[Atom, Division], equation: Equation, source: Atom, axis: int, rows: int) -> None:
        """Record a rotation along an axis: it is divided as before, and rows are exchanged if the axis is divided."""
        division, (out,) = known.get(source), equation.outputs
        if division is not None and division[axis]:
            count = self._parts(division[axis])
            rows = min(rows, out.type.shape[axis] - rows, out.type.shape[axis] // count)
            nbytes = rows * self._bytes(out.type, division) * count // out.type.shape[axis]
            self._note("collective-permute", "roll", division[axis], nbytes, equation.origin)
        self._settle(known, out, division, equation.origin)

    def _settle(self, known: dict[Atom, Division], var: Var, division: Division | None, origin: Origin | None) -> None:
        """Record how a value is divided: as the function constrained it, or else as propagated."""
        wanted = division_of(self.marks.get(var), var.type.ndim)
        if division is not None and wanted is not None:
            self._whole("with_sharding_constraint", var.type, division, wanted, origin)
        division = division if wanted is None else wanted
        if division is not None:
            known[var] = division

    def by_axes(self, equation: Equation, operands: Sequence[Division | None]) -> Sequence[Division | None]:
        """How the results of an operation are divided, by its axis_map. Other operands are gathered."""
        if all(division is None for division in operands):
            return [None] * len(equation.outputs)
        types, results = [a.type for a in equation.inputs], [v.type for v in equation.outputs]
        name, origin = equation.primitive.name, equation.origin
        call = DividedCall(equation.primitive, equation.params, types, results, operands, self.sizes)
        turn = over_another_axis(call)
        if turn is not None:
            return self._turned(call, turn, origin)
        plan = planned(call)
        for number, (division, places) in enumerate(zip(operands, plan.axis_map, strict=True)):
            if division is not None:
                wanted = tuple(() if place is None else plan.chosen.get(place, ()) for place in places)
                self.gather(equation, number, division, wanted)
        along = plan.along
        if along is not None and along.kind:
            self._note(along.kind, name, along.names, along.nbytes, origin)
        summed = tuple(
            n
            for place, names in plan.chosen.items()
            for n in names
            if place < 0 and (along is None or place != along.place)
        )
        if summed:
            nbytes = sum(self._bytes(t, d) for t, d in zip(results, plan.divisions, strict=True))
            self._note("all-reduce", name, summed, nbytes, origin)
        return plan.divisions

    def _turned(self, call: DividedCall, turn: AxisTurn, origin: Origin | None) -> list[Division]:
        """How the results of an operation are divided that runs with another axis divided in place of its own."""
        inside = [turn.of_operand(division) for division in call.have]
        for type, division in zip(call.types, inside, strict=True):
            self._note("all-to-all", call.primitive.name, turn.names, self._bytes(type, division), origin)
        found = []
        for type, back in zip(call.results, turn.results, strict=True):
            if back is not None:
                self._note("all-to-all", call.primitive.name, turn.names, self._bytes(type, back), origin)
            found.append(inside[0] if back is None else back)
        return found

    def repeated(self, times: int | None) -> _ShardingWalk:
        """A walk through a program that runs this number of times per run of this one; None: unknown."""
        return self._replace(times=None if times is None or self.times is None else times * self.times)

    def loop(
        self, equation: Equation, body: Program, parts: Sequence[Sequence[Division | None]], times: int | None
    ) -> tuple[list[Division | None], list[Division | None]]:
        """How the carries of a loop are divided, equally in every iteration, and the other results of its body.

        parts: the body's inputs: constants, initial carries, slices. An axis of a carry is divided as it is at
        first, or else as the body leaves it.
        """
        constants, initial, slices = parts
        carries = list(initial)
        while True:
            outs = self._replace(found=[]).program(body, [*constants, *carries, *slices])
            grown = [joined(pair) for pair in zip(carries, outs, strict=False)]
            if grown == carries:
                break
            carries = grown
        inside = self.repeated(times)
        outs = inside.program(body, [*constants, *carries, *slices])
        inside.agree(equation, outs[: len(carries)], carries)
        for number, (have, wanted) in enumerate(zip(initial, carries, strict=True)):
            if have is not None and wanted is not None:
                self._whole(equation.primitive.name, equation.outputs[number].type, have, wanted, equation.origin)
        return carries, outs[len(carries) :]

    def alternatives(self, equation: Equation, results: Sequence[Sequence[Division | None]]) -> list[Division | None]:
        """How the results of an operation that runs one of several programs are divided."""
        together = [joined(found) for found in zip(*results, strict=True)]
        for found in results:
            self.agree(equation, found, together)
        return together

    def agree(self, equation: Equation, have: Sequence[Division | None], wanted: Sequence[Division | None]) -> None:
        """Record the gathers that bring results of an operation from their division inside to the wanted division."""
        for var, own, common in zip(equation.outputs, have, wanted, strict=False):
            if own is not None and common is not None:
                self._whole(equation.primitive.name, var.type, own, common, equation.origin)

    def gather(self, equation: Equation, number: int, have: Division, wanted: Division) -> None:
        """Record that parts of an operand are gathered, unless each device has the wanted part."""
        self._whole(equation.primitive.name, equation.inputs[number].type, have, wanted, equation.origin)

    def _whole(
        self, operation: str, type: TensorType, division: Division, wanted: Division, origin: Origin | None
    ) -> None:
        """Record that parts of a value are gathered, unless each device has the wanted part."""
        kept = tuple(shared_names(have, want) for have, want in zip(division, wanted, strict=True))
        axes = tuple(name for have, keep in zip(division, kept, strict=True) for name in have[len(keep) :])
        if axes:
            self._note("all-gather", operation, axes, self._bytes(type, kept), origin)

    def _note(self, kind: str, operation: str, axes: Names, nbytes: int, origin: Origin | None) -> None:
        self.found.append(Resharding(kind, operation, axes, nbytes, origin, self.times))

    def _parts(self, names: Names) -> int:
        return prod(self.sizes[name] for name in names)

    def _bytes(self, type: TensorType, division: Division) -> int:
        """The size of a device's part of a value."""
        return type.nbytes // prod(map(self._parts, division))
