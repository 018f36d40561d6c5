"""Operations on whole arrays divided over processes: each process computes its part and fetches the inputs it lacks.

In traced programs operations are recorded, and RLX_EXPLAIN lists the exchanges; otherwise they run immediately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from rlx.array import ConcreteArray, is_concrete
from rlx.ir.types import TensorType
from rlx.ops.process_collective import process_all_gather, process_total
from rlx.ops.shape import reshape, slice, transpose
from rlx.ops.spanning_axis import SpanningAxis
from rlx.sharding.blocks import (
    array_of_block,
    as_each_ones,
    as_one,
    block_shape,
    check_move,
    check_processes,
    own_block,
    spanning_axes,
    spans,
)
from rlx.sharding.divisions import Division, Names, chosen_places, division_of, shared_names, spec_of
from rlx.sharding.mesh import Mesh
from rlx.sharding.shardings import NamedSharding
from rlx.sharding.spec import PartitionSpec
from rlx.sharding.stack_operations import operation_on_stacks
from rlx.trace.builder import Builder, Tracer
from rlx.trace.primitive import Primitive, type_of
from rlx.trace.spanning import is_spanning, local_of
from rlx.trace.stacked import is_stacked
from rlx.trace.tracing import devices_in_scope, place_known

__all__ = ["operation_on_parts", "resharded"]


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
    axis_map = primitive.axis_map(*types, **params)
    if not primitive.combination:
        axis_map = tuple(tuple(None if at is not None and at < 0 else at for at in places) for places in axis_map)
    chosen = chosen_places(mesh.shape, axis_map, have, results[0] if results else TensorType((), bool))
    parts = _ProcessBlocks(mesh)
    combined = parts.over(name for place, names in chosen.items() if place < 0 for name in names)
    own = parts.over(name for names in chosen.values() for name in names)
    operands = [
        x if t.ndim == 0 and not isinstance(x, Tracer) else parts.operand(x, t, division, places, chosen, own)
        for x, t, division, places in zip(args, types, have, axis_map, strict=True)
    ]
    divisions = [tuple(chosen.get(axis, ()) for axis in range(t.ndim)) for t in results]
    shardings = [NamedSharding(mesh, spec_of(division)) for division in divisions]
    of_parts = primitive.of_parts(block_shape(shardings[0], results[0].shape), **params) if results else params
    out = primitive.bind(*operands, **of_parts)
    outs = out if primitive.multiple else (out,)
    for axis in combined:
        outs = [_combined(x, primitive.combination, axis) for x in outs]
    found = [_known(x, t, s) for x, t, s in zip(outs, results, shardings, strict=True)]
    return tuple(found) if primitive.multiple else found[0]


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


class _ProcessBlocks:
    """This process's blocks of arrays over a mesh that spans processes."""

    def __init__(self, mesh: Mesh) -> None:
        self.spanning: Mapping[Any, SpanningAxis] = {axis.name: axis for axis in spanning_axes(mesh)}
        self.local = dict(zip(mesh.axis_names, mesh.local_sizes, strict=True))
        self.sizes = mesh.shape

    def over(self, names: Any) -> list[SpanningAxis]:
        """The axes among `names` that span processes."""
        return [self.spanning[name] for name in dict.fromkeys(names) if name in self.spanning]

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
        """The part of an array under another division: gathered along the axes that are dropped, and then cut."""
        kept = tuple(shared_names(a, b) for a, b in zip(have, wanted, strict=True))
        gathered = [name for a, k in zip(have, kept, strict=True) for name in a[len(k) :] if name in self.spanning]
        cut = [name for b, k in zip(wanted, kept, strict=True) for name in b[len(k) :] if name in self.spanning]
        if gathered:
            x = self._gathered(x, have, gathered)
        return self._cut(x, wanted, cut) if cut else x

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
            x = as_one(process_all_gather(x, **axis.params), [axis])
            ndim = type_of(x).ndim
            x = transpose(x, permutation=(*range(1, at[name] + 1), 0, *range(at[name] + 1, ndim)))
        return reshape(x, shape=whole)

    def _cut(self, x: Any, division: Division, names: Sequence[Any]) -> Any:
        """This process's part along further axes of the mesh."""
        x = as_each_ones(x, self.over(names))
        shape = type_of(x).shape
        counts = [prod(self.spanning[n].members for n in of if n in names) for of in division]
        whole: list[int] = []
        limits: list[int] = []
        starts: list[int] = []
        for size, of in zip(shape, division, strict=True):
            for name in of:
                axis = self.spanning[name] if name in names else None
                for n, start, taken in (
                    *([] if axis is None else [(axis.members, axis.index, 1)]),
                    (self.local[name], 0, self.local[name]),
                ):
                    whole.append(n)
                    starts.append(start)
                    limits.append(start + taken)
                    size //= n
            whole.append(size)
            starts.append(0)
            limits.append(size)
        x = reshape(x, shape=tuple(whole))
        x = slice(x, starts=tuple(starts), limits=tuple(limits), strides=(1,) * len(whole))
        return reshape(x, shape=tuple(size // count for size, count in zip(shape, counts, strict=True)))


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
