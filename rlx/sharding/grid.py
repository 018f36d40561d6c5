"""A function of one device's parts, as a program over whole arrays: split, batch over the mesh axes, join."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlx.array import Array, is_divided
from rlx.errors import ShardingError, source_line
from rlx.ir.program import Program, Var
from rlx.ir.types import TensorType
from rlx.ops.families import move_axis, to_front
from rlx.ops.process_collective import process_broadcast
from rlx.ops.shape import reshape, transpose
from rlx.ops.spanning_axis import SpanningAxis
from rlx.sharding.blocks import as_each_ones, as_one
from rlx.sharding.mesh import current
from rlx.sharding.spec import PartitionSpec, names_in, names_of_entry
from rlx.sharding.stacks import first_along
from rlx.trace.builder import Builder, state
from rlx.trace.flat import as_array
from rlx.trace.interpret import interpret
from rlx.trace.lower import inline_calls
from rlx.trace.primitive import type_of
from rlx.trace.spanning import local_of
from rlx.trace.stacked import is_stacked
from rlx.trace.tracing import trace_program, vary
from rlx.transforms.programs import batch_program
from rlx.transforms.reductions import Reductions
from rlx.transforms.varying import Axes, equations_behind, varying_axes
from rlx.trees import tree

__all__ = ["MappedAxes", "check_entries"]

Specs = Sequence[PartitionSpec | None]


def check_entries(owner: str, spec: PartitionSpec, shape: Sequence[int]) -> None:
    """Raises ShardingError if an array of this shape has fewer axes than the spec has entries."""
    if len(spec) > len(shape):
        raise ShardingError(
            f"{owner} got {spec!r}, which has {len(spec)} entries, for an array of shape {tuple(shape)}.",
            "A spec has at most as many entries as the array has axes; for a scalar it is P().",
        )


def _whole(x: Any) -> Any:
    """The array without a sharding. An array with unreduced or reduced axes becomes its local values."""
    if is_stacked(x):
        return local_of(x)
    return x.with_sharding(None) if is_divided(x) else x


def reduce_over(value: Any, unreduced: Axes, reduced: Axes) -> None:
    """Whether a traced value has parts of a sum, or copies, along its first axes."""
    value.builder.facts("reductions")[value.atom] = Reductions(unreduced, reduced)


@dataclass(frozen=True)
class MappedAxes:
    """The axes that a function with this `name` is mapped over, with their sizes, in the mesh's order.

    `checked`: a result that may vary along an axis must be divided over it; otherwise the first member's is used.
    `spanning`: axes that span processes. Their sizes are the sizes within one process, and whole arrays are this
    process's blocks.

    >>> import rlx
    >>> from rlx.sharding.grid import MappedAxes
    >>> MappedAxes("f", {"x": 4, "y": 2}, checked=True).part((8, 6), rlx.P(("x", "y")))
    (1, 6)
    """

    name: str
    sizes: Mapping[Any, int]
    checked: bool
    spanning: Mapping[Any, SpanningAxis] = field(default_factory=dict)

    def run(
        self,
        function: Callable[..., Any],
        values: Sequence[Any],
        in_specs: Specs,
        out_specs: Callable[[Any], Sequence[PartitionSpec]],
    ) -> tuple[Any, list[Array]]:
        """Map the function over all members: the types of one member's results, as a tree, and the whole arrays.

        Args:
          function: a function of one member's parts, with the axis names in scope. values: whole arrays; those
            with the spec None are passed through. out_specs: returns a spec for each leaf of the function's result.

        Raises: ShardingError for a result that varies along an axis which its spec leaves out.
        """
        divided = [(x, spec) for x, spec in zip(values, in_specs, strict=True) if spec is not None]
        types = [x.type.update(shape=self.part(x.shape, spec)) for x, spec in divided]
        treedef: Any = None
        at_once = state.builder is None and not self.spanning

        def flat(*parts: Any) -> list[Array]:
            nonlocal treedef
            if at_once and state.builder is not None:
                state.builder.found = partial(self._common_value, divided)
            for part, (x, spec) in zip(parts, divided, strict=True):
                around = varying_axes(x)
                vary(part, None if around is None else around | frozenset(self._front(spec)))
                reduce_over(part, *(frozenset(axes & self.sizes.keys()) for axes in (spec.unreduced, spec.reduced)))
            rest = iter(parts)
            given = [x if spec is None else next(rest) for x, spec in zip(values, in_specs, strict=True)]
            leaves, treedef = tree.flatten(function(*given))
            return [as_array(x, f"a result of {self.name}") for x in leaves]

        program, captured = trace_program(flat, types, None, self.name)
        result = tree.unflatten(treedef, program.output_types)
        specs = out_specs(result)
        for type, spec in zip(program.output_types, specs, strict=True):
            check_entries(f"out_specs of {self.name}", spec, type.shape)
        captured = [as_each_ones(x, self._across(())) for x in captured]
        axes = [frozenset[Any]()] * len(captured) + [frozenset(self._front(s)) for _, s in divided]
        if self.checked and current().casts_by_hand:
            self._check_casts(inline_calls(program), axes)
        program, varying = self.batched(program, axes)
        parts = [self.split(as_each_ones(_whole(x), self._across(names_in(s.partitions))), s) for x, s in divided]
        outs = interpret(program, [*map(_whole, captured), *parts])
        return result, [self.join(*of) for of in zip(range(len(outs)), outs, varying, specs, strict=True)]

    def _common_value(self, divided: Sequence[tuple[Any, PartitionSpec]], builder: Builder, atom: Any) -> Any:
        """A value of the function that is the same in all members: it may decide the control flow of the function.

        divided: the arrays, and their specs, whose parts the function received. None if members' values differ, or if
        computing the value would repeat a side effect.
        """
        equations, sources = equations_behind(builder, atom, ())
        if any(e.primitive.effect(**e.params) for e in equations):
            return None
        parts = {var: (x, spec) for var, (x, spec) in zip(builder.inputs, divided, strict=True)}
        held = dict(builder.captures.values())
        names = [frozenset(self._front(parts[v][1]) if v in parts else ()) for v in sources]
        program, varying = self.batched(Program(sources, equations, [atom], (), self.name), names)
        if varying[0]:
            return None
        before, state.builder = state.builder, None
        try:
            args = [self.split(_whole(parts[v][0]), parts[v][1]) if v in parts else _whole(held[v]) for v in sources]
            return as_array(interpret(program, args)[0])
        finally:
            state.builder = before

    def batched(self, program: Program, divided: Sequence[frozenset[Any]]) -> tuple[Program, list[list[Any]]]:
        """The program over all members, and each result's leading axes; `divided`: the leading axes of the inputs."""
        varying: list[list[Any]] = [[] for _ in program.outputs]
        for axis, size in reversed(list(self.sizes.items())):  # the last is the innermost
            name = self.spanning.get(axis, axis)
            program, found = batch_program(program, size, [axis in names for names in divided], axis_name=name)
            varying = [[axis, *names] if new else names for new, names in zip(found, varying, strict=True)]
        return program, varying

    def _check_casts(self, program: Program, divided: Sequence[frozenset[Any]]) -> None:
        """Raises ShardingError if an operation's operands vary over different axes."""
        made = [var for equation in program.equations for var in equation.outputs]
        _, varying = self.batched(program.replace(outputs=made), divided)
        found = dict(zip(made, map(frozenset, varying), strict=True))
        found |= {v: of & frozenset(self.sizes) for v, of in zip(program.inputs, divided, strict=True)}
        found |= {var: frozenset() for var, _ in program.constants}
        for equation in program.equations:
            operands = {found[a] for a in equation.inputs if isinstance(a, Var)}
            plain = not equation.primitive.collective and not any(_programs(part) for part in equation.params.values())
            if len(operands) > 1 and plain:
                axes = sorted(frozenset().union(*operands) - frozenset.intersection(*operands), key=str)
                raise ShardingError(
                    f"{equation.primitive.name} in {self.name} got operands of which some vary along {axes[0]!r} and"
                    " others do not.",
                    f"Cast the others: rlx.lax.pcast(x, {axes[0]!r}, to='varying'). rlx.auto_pcast(True) does so.",
                    "" if equation.origin is None else source_line(*equation.origin),
                )

    def _across(self, divided: Sequence[Any]) -> list[SpanningAxis]:
        """The axes that span processes, except those that divide an array."""
        return [axis for name, axis in self.spanning.items() if name not in divided]

    def part(self, shape: Sequence[int], spec: PartitionSpec) -> tuple[int, ...]:
        """The shape of one member's part of an array of this shape."""
        counts = [self.count(entry) for entry in spec.partitions]
        return tuple(d // n for d, n in zip(shape, [*counts, *[1] * (len(shape) - len(counts))], strict=True))

    def count(self, entry: Any) -> int:
        """The number of parts that an entry of a spec divides an axis into."""
        count = 1
        for name in self._named(entry):
            count *= self.sizes[name]
        return count

    def _named(self, entry: Any) -> list[Any]:
        """The axes of an entry that have several members."""
        return [name for name in names_of_entry(entry) if name in self.sizes]

    def _front(self, spec: PartitionSpec) -> list[Any]:
        """The axes that a spec names, in the order of the mesh."""
        named = {*names_in(spec.partitions), *spec.unreduced, *spec.reduced}
        return [name for name in self.sizes if name in named]

    def _stacked(self, spec: PartitionSpec) -> list[Any]:
        """The axes along which devices have parts of a sum, or copies."""
        return [name for name in self.sizes if name in spec.unreduced | spec.reduced]

    def _positions(self, spec: PartitionSpec, ndim: int) -> tuple[list[int], list[int]]:
        """The axis order that moves the mesh axes first, for an array whose divided axes are (mesh axes, part)."""
        at: dict[Any, int] = {name: i for i, name in enumerate(self._stacked(spec))}
        parts: list[int] = []
        entries = [*spec.partitions, *[None] * (ndim - len(spec))]
        for entry in entries:
            for name in self._named(entry):
                at[name] = len(at) + len(parts)
            parts.append(len(at) + len(parts))
        return [at[name] for name in self._front(spec)], parts

    def split(self, x: Array, spec: PartitionSpec) -> Array:
        """The array with the mesh axes that the spec names in front of each member's part. Axes along which
        devices have parts of a sum, or copies, are already in front."""
        shape = [self.sizes[name] for name in self._stacked(spec)]
        whole = x.shape[len(shape) :]
        part = self.part(whole, spec)
        for entry, size in zip([*spec.partitions, *[None] * (len(whole) - len(spec))], part, strict=True):
            shape += [*(self.sizes[name] for name in self._named(entry)), size]
        front, parts = self._positions(spec, len(whole))
        return _transposed(reshape(x, shape=tuple(shape)), (*front, *parts))

    def join(self, number: int, x: Any, varying: Sequence[Any], spec: PartitionSpec) -> Array:
        """The array from all members' values of result `number`, with the `varying` axes in front. Undoes `split`."""
        left = [name for name in varying if name not in self._front(spec)]
        if left and self.checked:
            raise self._varies(number, left[0], spec)
        for at in reversed([i for i, name in enumerate(varying) if name in left]):
            x = first_along(x, at)
            axis = self.spanning.get(varying[at])
            x = x if axis is None else process_broadcast(x, root=0, **axis.params)
        kept = [name for name in varying if name not in left]
        for at, name in enumerate(self._front(spec)):
            if name not in kept:  # equal parts, one after another
                x = move_axis(to_front(x, None, self.sizes[name]), 0, at)
                kept.insert(at, name)
        type: TensorType = type_of(x)
        part = type.shape[len(kept) :]
        front, parts = self._positions(spec, len(part))
        order = [0] * type.ndim
        for source, target in enumerate((*front, *parts)):
            order[target] = source
        entries = [*spec.partitions, *[None] * (len(part) - len(spec))]
        whole = tuple(self.count(entry) * size for entry, size in zip(entries, part, strict=True))
        shape = (*(self.sizes[name] for name in self._stacked(spec)), *whole)
        return as_one(reshape(_transposed(x, tuple(order)), shape=shape), self._across(names_in(spec.partitions)))

    def _varies(self, number: int, axis: Any, spec: PartitionSpec) -> ShardingError:
        return ShardingError(
            f"out_specs of {self.name} has {spec!r} for result {number}, which may vary along the axis {axis!r}.",
            f"Divide it over {axis!r} in out_specs, or reduce it inside: rlx.lax.psum(result, {axis!r}). If you know"
            " that all devices have the same value, pass check_vma=False.",
        )


def _programs(part: Any) -> bool:
    """Whether a parameter of an equation is a program, or several."""
    return isinstance(part, Program) or (isinstance(part, tuple) and any(isinstance(p, Program) for p in part))


def _transposed(x: Any, order: tuple[int, ...]) -> Any:
    return x if order == tuple(range(len(order))) else transpose(x, permutation=order)
