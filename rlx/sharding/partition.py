"""Operations on whole arrays divided over processes: each process computes its part and fetches the inputs it lacks.

In traced programs operations are recorded, and RLX_EXPLAIN lists the exchanges; otherwise they run immediately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from rlx.array import ConcreteArray, is_concrete
from rlx.ir.types import TensorType
from rlx.ops.process_collective import process_all_to_all, process_total
from rlx.ops.shape import reshape, rotated, transpose
from rlx.ops.spanning_axis import SpanningAxis
from rlx.sharding.blocks import (
    array_of_block,
    as_each_ones,
    as_one,
    check_move,
    check_processes,
    own_block,
    own_rows,
    spanning_axes,
    spans,
)
from rlx.sharding.divided_axes import AxisTurn, CallPlan, DividedCall, over_another_axis, planned, rolled_rows
from rlx.sharding.divisions import Division, Names, division_of, shared_names, spec_of
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec
from rlx.sharding.stack_operations import operation_on_stacks
from rlx.trace.builder import Builder, Tracer
from rlx.trace.primitive import Primitive, type_of
from rlx.trace.spanning import is_spanning, local_of
from rlx.trace.stacked import is_stacked
from rlx.trace.tracing import devices_in_scope, place_known

__all__ = ["operation_on_parts", "resharded", "rolled"]


def operation_on_parts(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of an operation with operands that are divided over processes.

    Operands over another mesh than the first operand's are moved to it. Raises ShardingError in the body of
    rlx.shard_map, and for exchanges between processes.
    """
    if any(map(is_stacked, args)):
        return operation_on_stacks(primitive, args, params)
    for x in args:
        if is_spanning(x) and (devices_in_scope() > 1 or primitive.exchanges or primitive.collective):
            x.concrete()
    mesh, args = _on_one_mesh(args)
    types, results = _types_of(primitive, args, params)
    have = [division_of(x._sharding if is_spanning(x) else None, t.ndim) for x, t in zip(args, types, strict=True)]
    call = DividedCall(primitive, params, types, results, have, mesh.shape)
    found = over_another_axis(call)
    if found is not None:
        return _turned(call, args, mesh, found)
    plan = planned(call)
    parts = _ProcessBlocks(mesh)
    outs = parts.computed(call, args, plan)
    shardings = [NamedSharding(mesh, spec_of(division)) for division in plan.divisions]
    out = [_known(x, t, s) for x, t, s in zip(outs, results, shardings, strict=True)]
    return tuple(out) if primitive.multiple else out[0]


def _turned(call: DividedCall, args: Sequence[Any], mesh: Mesh, turn: AxisTurn) -> Any:
    """The operation with its divided axis whole and another one divided instead; its results are divided as before."""
    operands = [
        resharded(x, NamedSharding(mesh, spec_of(turn.of_operand(division)))) if is_spanning(x) else x
        for x, division in zip(args, call.have, strict=True)
    ]
    out = operation_on_parts(call.primitive, operands, dict(call.params))
    outs = out if call.primitive.multiple else (out,)
    back = [
        resharded(x, NamedSharding(mesh, spec_of(division))) if division is not None and is_spanning(x) else x
        for x, division in zip(outs, turn.results, strict=True)
    ]
    return tuple(back) if call.primitive.multiple else back[0]


def resharded(x: ConcreteArray, sharding: NamedSharding) -> Any:
    """The array with another sharding. If its mesh differs, the array is gathered first.

    Raises ShardingError for a mesh that is not on all processes.
    """
    mesh = x._sharding.mesh
    if mesh != sharding.mesh:
        assert isinstance(sharding.mesh, Mesh)
        check_move(x, sharding)
        check_processes(sharding.mesh)
        whole = resharded(x, NamedSharding(mesh, PartitionSpec()))
        return array_of_block(own_block(whole, sharding), x.shape, sharding) if spans(sharding) else whole
    have, wanted = division_of(x._sharding, x.ndim), division_of(sharding, x.ndim)
    assert have is not None and wanted is not None
    return _known(_ProcessBlocks(mesh).moved(local_of(x), have, wanted), x.type, sharding)


def rolled(x: Any, distance: int, axis: int) -> Any:
    """The array with its elements moved on along an axis, divided as it was."""
    sharding = x._sharding
    if not is_spanning(x):
        return rotated(x, distance, axis).with_sharding(sharding)
    names = (division_of(sharding, x.ndim) or ((),) * x.ndim)[axis]
    parts = _ProcessBlocks(sharding.mesh)
    if not parts.over(names):
        return array_of_block(rotated(local_of(x), distance, axis), x.shape, sharding)
    over = parts.along(names)
    if over is None:
        whole = resharded(x, NamedSharding(sharding.mesh, PartitionSpec()))
        return array_of_block(own_block(rotated(whole, distance, axis), sharding), x.shape, sharding)
    return array_of_block(rolled_rows(local_of(x), axis, over, distance), x.shape, sharding)


class _ProcessBlocks:
    """This process's blocks of arrays over a mesh that spans processes."""

    def __init__(self, mesh: Mesh) -> None:
        self.spanning: Mapping[Any, SpanningAxis] = {axis.name: axis for axis in spanning_axes(mesh)}
        self.local = dict(zip(mesh.axis_names, mesh.local_sizes, strict=True))
        self.sizes = mesh.shape

    def over(self, names: Any) -> list[SpanningAxis]:
        """The axes among `names` that span processes."""
        return [self.spanning[name] for name in dict.fromkeys(names) if name in self.spanning]

    def computed(self, call: DividedCall, args: Sequence[Any], plan: CallPlan) -> list[Any]:
        """This process's parts of the results."""
        axis, over = plan.along, None
        if axis is not None:
            over = self.along(axis.names)
            if over is None and self.over(axis.names):  # several axes of the mesh span processes, or blocks are apart
                without = planned(call, False)
                outs = self.computed(call, args, without)
                pairs = zip(outs, without.divisions, plan.divisions, strict=True)
                return [self.moved(x, have, wanted) for x, have, wanted in pairs]
        chosen = plan.chosen
        dropped = [n for place, names in chosen.items() if place < 0 for n in names]
        combined = self.over(n for n in dropped if over is None or n != over.name)
        own = self.over(n for names in chosen.values() for n in names)
        operands = []
        for number, (x, t, places) in enumerate(zip(args, call.types, plan.axis_map, strict=True)):
            shared = axis is not None and number in axis.shared
            mine = [a for a in own if not shared or over is None or a.name != over.name]
            alone = t.ndim == 0 and not isinstance(x, Tracer)
            operands.append(x if alone else self.operand(x, t, call.have[number], places, chosen, mine))
        shape = self.block(plan.divisions[0], call.results[0].shape) if call.results else ()
        params = call.primitive.of_parts(shape, **call.params) if call.results else dict(call.params)
        if axis is not None and over is not None:
            out = axis.run(operands, params, over)
        else:
            out = call.primitive.bind(*operands, **params)
        outs = list(out) if call.primitive.multiple else [out]
        for along in combined:
            outs = [_combined(x, call.primitive.combination, along) for x in outs]
        return outs

    def along(self, names: Names) -> SpanningAxis | None:
        """The processes that have consecutive blocks of an axis which is divided this way; None without one axis."""
        spanning = self.over(names)
        if len(spanning) != 1 or prod(self.local[n] for n in names[: names.index(spanning[0].name)]) > 1:
            return None
        return spanning[0]

    def block(self, division: Division, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a process's part of an array."""
        counts = [prod(self.spanning[n].members for n in names if n in self.spanning) for names in division]
        return tuple(size // count for size, count in zip(shape, counts, strict=True))

    def operand(
        self,
        x: Any,
        type: TensorType,
        have: Division | None,
        places: Sequence[int | None],
        chosen: Mapping[int, Names],
        own: Sequence[SpanningAxis],
    ) -> Any:
        """A part of an operand, as each process's own along the axes over which processes compute different things."""
        names = [() if place is None else chosen.get(place, ()) for place in places]
        # an axis of size 1 is broadcast, so it is not divided
        wanted = tuple(of if size % self._count(of) == 0 else () for size, of in zip(type.shape, names, strict=True))
        x = self.moved(local_of(x), have or ((),) * type.ndim, wanted)
        divided = {name for of in wanted for name in of}
        return as_each_ones(x, [axis for axis in own if axis.name not in divided])

    def moved(self, x: Any, have: Division, wanted: Division) -> Any:
        """The part of an array under another division: gathered along the axes that are dropped, and then cut.

        A mesh axis that divides another axis of the array instead is exchanged by parts.
        """
        have, wanted = tuple(have), tuple(wanted)
        for source, target, name in self._exchangeable(type_of(x).shape, have, wanted):
            x, have = self._exchanged(x, have, source, target, name)
        kept = tuple(shared_names(a, b) for a, b in zip(have, wanted, strict=True))
        gathered = [name for a, k in zip(have, kept, strict=True) for name in a[len(k) :] if name in self.spanning]
        cut = [name for b, k in zip(wanted, kept, strict=True) for name in b[len(k) :] if name in self.spanning]
        if gathered:
            x = self._gathered(x, have, gathered)
        return self._cut(x, wanted, cut) if cut else x

    def _exchangeable(self, shape: Sequence[int], have: Division, wanted: Division) -> list[tuple[int, int, Any]]:
        """Mesh axes that are the last ones of an axis, and are to be the next ones of another axis of the array."""
        for source, names in enumerate(have):
            last = names[-1:]
            if not last or last[0] not in self.spanning or names == wanted[source][: len(names)]:
                continue
            for target, own in enumerate(have):
                fits = shape[target] % (self.spanning[last[0]].size) == 0
                if target != source and fits and (*own, *last) == wanted[target][: len(own) + 1]:
                    return [(source, target, last[0])]
        return []

    def _exchanged(self, x: Any, have: Division, source: int, target: int, name: Any) -> tuple[Any, Division]:
        """The part of an array whose axis `target` is divided in place of `source`, and the new division."""
        over, shape = self.spanning[name], type_of(x).shape
        parts, at = self._layout(shape, have)
        end = sum(len(names) + 1 for names in have[: target + 1]) - 1  # of the remainder of the axis
        parts[end : end + 1] = [over.members, parts[end] // over.members]
        before = at[name] + (at[name] > end)
        x = reshape(x, shape=tuple(parts))
        rest = [a for a in range(len(parts)) if a != end]
        x = process_all_to_all(transpose(x, permutation=(end, *rest)), **over.params)
        order = [rest.index(a) + 1 for a in rest]
        order.insert(rest.index(before), 0)
        sizes = list(shape)
        sizes[source], sizes[target] = sizes[source] * over.members, sizes[target] // over.members
        division = list(have)
        division[source], division[target] = have[source][:-1], (*have[target], name)
        return reshape(transpose(x, permutation=tuple(order)), shape=tuple(sizes)), tuple(division)

    def _count(self, names: Names) -> int:
        return prod(self.sizes[name] for name in names)

    def _layout(self, shape: Sequence[int], division: Division) -> tuple[list[int], dict[Any, int]]:
        """The shape of a part with an axis for this process's devices along each mesh axis, and the axes' positions."""
        parts: list[int] = []
        at: dict[Any, int] = {}
        for size, names in zip(shape, division, strict=True):
            for name in names:
                at[name] = len(parts)
                parts.append(self.local[name])
                size //= self.local[name]
            parts.append(size)
        return parts, at

    def _gathered(self, x: Any, division: Division, names: Sequence[Any]) -> Any:
        """An array that is divided this way, gathered along some axes of the mesh."""
        type = type_of(x)
        counts = [prod(self.spanning[n].members for n in of if n in names) for of in division]
        whole = tuple(size * count for size, count in zip(type.shape, counts, strict=True))
        parts, at = self._layout(type.shape, division)
        x = reshape(x, shape=tuple(parts))
        for name in sorted(names, key=lambda name: -at[name]):  # earlier axes keep their positions
            axis = self.spanning[name]
            x = axis.all_rows(x)
            ndim = type_of(x).ndim
            x = transpose(x, permutation=(*range(1, at[name] + 1), 0, *range(at[name] + 1, ndim)))
        return reshape(x, shape=whole)

    def _cut(self, x: Any, division: Division, names: Sequence[Any]) -> Any:
        """This process's part along further axes of the mesh."""
        type = type_of(x)
        counts = [prod(self.spanning[n].members for n in of if n in names) for of in division]
        part = tuple(size // count for size, count in zip(type.shape, counts, strict=True))
        parts, at = self._layout(part, division)
        for name in sorted(names, key=lambda name: at[name]):  # members before the devices of each process
            at |= {other: place + 1 for other, place in at.items() if place > at[name]}
            parts.insert(at[name], self.spanning[name].members)
        rows = own_rows(reshape(x, shape=tuple(parts)), {at[name]: self.spanning[name] for name in names})
        return reshape(rows, shape=part)


def _on_one_mesh(args: Sequence[Any]) -> tuple[Mesh, Sequence[Any]]:
    """The mesh of the first operand that spans processes, and the operands. Operands over other meshes are gathered."""
    mesh = next(x._sharding.mesh for x in args if is_spanning(x))

    def here(x: Any) -> Any:
        elsewhere = is_spanning(x) and x._sharding.mesh != mesh
        return resharded(x, NamedSharding(x._sharding.mesh, PartitionSpec())) if elsewhere else x

    return mesh, list(map(here, args))


def _types_of(
    primitive: Primitive, args: Sequence[Any], params: dict[str, Any]
) -> tuple[list[TensorType], list[TensorType]]:
    """The types of the operands, and of the results, as whole arrays."""
    with Builder("whole") as builder:
        whole = [builder.input(x.type) if is_spanning(x) else x for x in args]
        types = [a.type for a in primitive.lift(builder, whole)]
        found = primitive.type(*types, **params)
    return types, list(found) if primitive.multiple else [found]


def _combined(x: Any, op: str, axis: SpanningAxis) -> Any:
    """The reduction over processes, as one value."""
    if op == "sum":
        return process_total(x, op=op, mode="fast", **axis.params)
    return as_one(axis.reduce(x, op), [axis])


def _known(x: Any, type: TensorType, sharding: NamedSharding) -> Any:
    """The array of this type whose block in this process is x."""
    if spans(sharding):
        return array_of_block(x, type.shape, sharding)
    if isinstance(x, Tracer):
        place_known(x, sharding)
    return x.with_sharding(sharding) if is_concrete(x) else x
