"""Reductions and running reductions of NestBuilder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from rlx.errors import DtypeError
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, compute_dtype
from rlx.lowering import views
from rlx.lowering.lowered import BufferView, LoweredValue, dense_strides, natural_order
from rlx.lowering.nest import Nest, NestStore, collapse, refine
from rlx.lowering.nest_builder import NestBuilder
from rlx.lowering.nodes import IndexMap, Node, expression_cost, postorder
from rlx.lowering.scalar_builder import Scalar, ScalarBuilder
from rlx.lowering.scalar_fold import fold

__all__ = ["cumulate", "reduce", "reduce_general"]


def reduce(kernels: NestBuilder, op: str, v: LoweredValue, axes: Sequence[int]) -> LoweredValue:
    """Combine the elements along `axes` by a reducer; the result drops the axes."""
    axes = tuple(sorted(set(axes)))
    kept = tuple(n for a, n in enumerate(v.shape) if a not in axes)
    type = v.type.update(shape=kept)
    if v.type.size == 0:
        return kernels.full(type, neutral(op, v.dtype))
    if v.dtype.kind == "c" and op != "add":
        return _reduce_pairwise(kernels, op, v, axes)
    v, axes = _without_independent(kernels, op, v, axes)
    if not axes:
        return views.reshape(kernels, v, kept)
    if _unrolls(kernels, v, axes):
        return _unrolled(kernels, op, v, axes)
    return _reduction_nest(kernels, op, v, axes)


def _reduce_pairwise(kernels: NestBuilder, op: str, v: LoweredValue, axes: tuple[int, ...]) -> LoweredValue:
    def combine(s: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
        return s.reducer(op, x, y)

    flat = _reduced_last(kernels, v, axes)
    return _halved(kernels, combine, (flat,))[0]


def _without_independent(
    kernels: NestBuilder, op: str, v: LoweredValue, axes: tuple[int, ...]
) -> tuple[LoweredValue, tuple[int, ...]]:
    """Reduce axes along which the value is constant, without a loop; drop axes of size 1."""
    varying = [False] * len(v.shape)
    for node in postorder(v.nodes):
        if node.op in ("load", "affine"):
            strides = node.attribute.strides if node.op == "load" else node.attribute[0]
            varying = [a or bool(s) for a, s in zip(varying, strides, strict=True)]
    repeated = [a for a in axes if not varying[a] or v.shape[a] == 1]
    if not repeated:
        return v, axes
    count = prod(v.shape[a] for a in repeated)
    if count > 1 and (op == "mul" or (op == "add" and v.dtype.kind == "b")):
        kernels.materialise(v, range(len(v.shape)))
        return v, axes
    dropped = [1 if a in repeated else n for a, n in enumerate(v.shape)]
    result = views.slice(kernels, v, (0,) * len(dropped), dropped)
    if count > 1 and op == "add":
        result = kernels.elementwise(lambda s, x: s.mul(x, count), (result,), result.type)
    elif op == "xor" and count % 2 == 0:
        result = kernels.full(result.type, 0)
    squeezed = tuple(n for a, n in enumerate(dropped) if a not in repeated)
    result = views.reshape(kernels, result, squeezed)
    positions = [a for a in range(len(v.shape)) if a not in repeated]
    return result, tuple(positions.index(a) for a in axes if a not in repeated)


def _unrolls(kernels: NestBuilder, v: LoweredValue, axes: tuple[int, ...]) -> bool:
    count = prod(v.shape[a] for a in axes)
    options = kernels.options
    if count > options.unroll_reduction or v.weight * count > options.rows.unrolled_nodes:
        return False
    cost = expression_cost(v.nodes, v.shape)
    small = count * (cost.operations + 1) <= options.expression_operations
    cheap = cost.arithmetic <= 3 * len(v.nodes)
    return small and cheap and cost.buffers <= options.expression_buffers


def _unrolled(kernels: NestBuilder, op: str, v: LoweredValue, axes: tuple[int, ...]) -> LoweredValue:
    kept = tuple(a for a in range(len(v.shape)) if a not in axes)
    type = v.type.update(shape=tuple(v.shape[a] for a in kept))
    builder = ScalarBuilder(kernels, kernels.table, len(kept))
    total: Scalar | None = None
    for positions in product(*(range(v.shape[a]) for a in axes)):

        def stride_map(
            strides: tuple[int, ...], offset: int, positions: tuple[int, ...] = positions
        ) -> tuple[tuple[int, ...], int]:
            offset += sum(p * strides[a] for p, a in zip(positions, axes, strict=True))
            return tuple(strides[a] for a in kept), offset

        element = Scalar(builder, v.dtype, *kernels.moved(v, stride_map))
        total = element if total is None else builder.reducer(op, total, element)
    assert total is not None
    return kernels.finish(type, total, (v,))


def _reduction_nest(kernels: NestBuilder, op: str, v: LoweredValue, axes: tuple[int, ...]) -> LoweredValue:
    order = natural_order(v)
    kept = [a for a in range(len(v.shape)) if a not in axes]
    kept_order = [a for a in order if a not in axes]
    type = v.type.update(shape=tuple(v.shape[a] for a in kept))
    accumulator = v.dtype if v.dtype.kind == "c" else compute_dtype(v.dtype)
    buffer = kernels.allocate(accumulator, type.size)
    layout = dense_strides(v.shape, kept_order + list(axes))
    # strides of the kept axes as if the reduced ones had size 1
    count = prod(v.shape[a] for a in axes)
    kept_strides = [s // count for s in layout]
    strides = tuple(0 if a in axes else kept_strides[a] for a in range(len(v.shape)))
    view = BufferView(buffer, strides, 0)
    stores = [replace(s, initialize=True) for s in kernels.part_stores(v, view, accumulate=op)]
    sizes, _, stores = collapse(kernels.table, v.shape, stores, 0, order)
    if not _in_lanes(kernels, op, sizes, stores, v):
        kernels.emit(_with_row(kernels, sizes, stores), v)
    result_view = BufferView(buffer, tuple(strides[a] for a in kept), 0)
    return _wrapped(kernels, kernels.from_view(result_view, type))


def _wrapped(kernels: NestBuilder, v: LoweredValue) -> LoweredValue:
    """Convert a reduction of narrow numbers, accumulated in wider ones, back to their width."""
    if v.dtype in FLOAT_FORMATS:
        return kernels.elementwise(lambda s, x: x, (v,), v.type)
    if v.dtype not in INTEGER_FORMATS:
        return v
    return kernels.elementwise(lambda s, x: s.cast(s.real_scalar(x.node, x.node.dtype), v.dtype), (v,), v.type)


def _in_lanes(kernels: NestBuilder, op: str, sizes: tuple[int, ...], stores: list[NestStore], v: LoweredValue) -> bool:
    """Sum rows of few elements as long rows: first every n-th row, then the n results.

    Vectors are then full, and fewer terms are added one after another.
    """
    if len(sizes) != 2 or stores[0].strides[0] or not stores[0].strides[1] or len(stores) > 1:
        return False
    rows, kept = sizes
    (store,) = stores
    limits = kernels.options.rows
    if kept > limits.lane or rows * kept < kernels.options.chunk_elements:
        return False
    most = min(limits.lanes // kept, rows // limits.lane_steps)
    lanes = next((n for n in range(most, limits.lane_steps - 1, -1) if rows % n == 0), None)
    if lanes is None:
        return False
    (store,) = refine(kernels.table, sizes, (store,), (rows // lanes, lanes, kept))
    partial = kernels.allocate(store.buffer.dtype, lanes * kept)
    inner = replace(store, buffer=partial, strides=(0, kept, 1), offset=0)
    fine, _, first = collapse(kernels.table, (rows // lanes, lanes, kept), [inner])
    kernels.emit(Nest(fine, first), v)
    element = kernels.table.load(IndexMap(partial, (1, kept), 0))
    strides = (store.strides[2], 0)
    last = replace(store, value=element, strides=strides)
    kernels.emit(Nest((kept, lanes), [last], preferred_row=1), v)
    return True


def _with_row(kernels: NestBuilder, sizes: tuple[int, ...], stores: list[NestStore]) -> Nest:
    """Choose the trailing reduced dimensions that form a row, so that outer work remains."""
    reduced = [not stride for stride in stores[0].strides]
    row = 0
    while row < len(sizes) and reduced[len(sizes) - 1 - row]:
        row += 1
    limits = kernels.options.rows
    if row and prod(sizes) >= kernels.options.chunk_elements:
        outer = prod(sizes[: len(sizes) - row])
        whole = limits.keeps(outer, prod(sizes) // max(outer, 1))
        while not whole and row > 1 and prod(sizes[: len(sizes) - row]) < limits.outer:
            row -= 1
        if not whole and prod(sizes[: len(sizes) - row]) < limits.outer:
            shortest, longest = limits.split
            length = next((n for n in range(longest, shortest - 1, -1) if sizes[-1] % n == 0), None)
            if length is not None and length < sizes[-1]:
                fine = (*sizes[:-1], sizes[-1] // length, length)
                stores = refine(kernels.table, sizes, stores, fine)
                sizes = fine
    return Nest(sizes, stores, preferred_row=row)


def _reduced_last(kernels: NestBuilder, v: LoweredValue, axes: Sequence[int]) -> LoweredValue:
    """`v` with the axes in `axes` merged into one last axis."""
    kept = [a for a in range(len(v.shape)) if a not in axes]
    moved = views.transpose(kernels, v, (*kept, *axes))
    count = prod(v.shape[a] for a in axes)
    return views.reshape(kernels, moved, (*(v.shape[a] for a in kept), count))


def reduce_general(
    kernels: NestBuilder,
    function: Callable[..., Any],
    values: Sequence[LoweredValue],
    inits: Sequence[LoweredValue],
    axes: Sequence[int],
) -> tuple[LoweredValue, ...]:
    """Reduce by any associative `function(s, *accumulators, *elements)`: halve and combine.

    Elements are combined in order, so the function need not be commutative.
    """
    axes = tuple(sorted(set(axes)))
    flat = tuple(_reduced_last(kernels, v, axes) for v in values)
    shape = flat[0].shape[:-1]
    starts = tuple(views.broadcast(kernels, init, shape, ()) for init in inits)
    if flat[0].shape[-1] == 0:
        return starts
    result = _halved(kernels, function, flat)
    types = tuple(TensorType(shape, v.dtype) for v in values)
    return kernels.elementwise(function, (*starts, *result), types)


def _halved(
    kernels: NestBuilder, function: Callable[..., Any], values: tuple[LoweredValue, ...]
) -> tuple[LoweredValue, ...]:
    """Combine neighbours along the last axis until one element is left."""
    leftovers: list[tuple[LoweredValue, ...]] = []
    while (length := values[0].shape[-1]) > 1:
        for value in values:
            kernels.realise(value, range(len(value.shape)))
        half = length // 2
        if length % 2:
            leftovers.append(tuple(_part(kernels, v, length - 1, length, 1) for v in values))
        even = tuple(_part(kernels, v, 0, 2 * half, 2) for v in values)
        odd = tuple(_part(kernels, v, 1, 2 * half, 2) for v in values)
        values = kernels.elementwise(function, (*even, *odd), tuple(v.type for v in even))
    for last in reversed(leftovers):
        values = kernels.elementwise(function, (*values, *last), tuple(v.type for v in values))
    return tuple(views.reshape(kernels, v, v.shape[:-1]) for v in values)


def _part(kernels: NestBuilder, v: LoweredValue, start: int, limit: int, step: int) -> LoweredValue:
    """Every `step`th element of the last axis between start and limit."""
    lead = len(v.shape) - 1
    starts, limits = (0,) * lead + (start,), (*v.shape[:-1], limit)
    return views.slice(kernels, v, starts, limits, (1,) * lead + (step,))


def cumulate(kernels: NestBuilder, op: str, v: LoweredValue, axis: int, reverse: bool = False) -> LoweredValue:
    """Running (inclusive) combination along one axis."""
    if v.shape[axis] <= 1 or v.type.size == 0:
        return v
    if v.dtype.kind == "c" and op != "add":
        if op != "mul":
            raise DtypeError(f"cumulate by {op} is not defined for complex numbers")
        return _cumulate_by_doubling(kernels, op, v, axis, reverse)
    source = views.reverse(kernels, v, (axis,)) if reverse else v
    order = [a for a in natural_order(source) if a != axis] + [axis]
    buffer = kernels.allocate(v.dtype, v.type.size)
    view = BufferView(buffer, dense_strides(v.shape, natural_order(v)), 0)
    walked = view
    if reverse:
        flipped = tuple(-s if a == axis else s for a, s in enumerate(view.strides))
        walked = BufferView(buffer, flipped, view.strides[axis] * (v.shape[axis] - 1))
    running = LoweredValue(v.type, tuple(_running(kernels, op, n) for n in source.nodes), v.sources)
    stores = kernels.part_stores(running, walked)
    sizes, row, stores = collapse(kernels.table, v.shape, stores, 1, order)
    kernels.emit(Nest(sizes, stores, row, preferred_row=row), v)
    return kernels.from_view(view, v.type)


def _running(kernels: NestBuilder, op: str, node: Node) -> Node:
    wide = op == "add" and node.dtype == np.float32 and kernels.options.wide_running_sums
    dtype = np.dtype(np.float64) if wide else node.dtype
    running = kernels.table.make("cumulate", (fold(kernels.table, "cast", (node,), dtype),), dtype, op)
    return fold(kernels.table, "cast", (running,), node.dtype)


def _cumulate_by_doubling(kernels: NestBuilder, op: str, v: LoweredValue, axis: int, reverse: bool) -> LoweredValue:
    """Combine with the value 1, 2, 4, ... places before: log(n) elementwise steps."""
    value = views.reverse(kernels, v, (axis,)) if reverse else v
    shape, distance = v.shape, 1
    while distance < shape[axis]:
        kernels.realise(value)
        zeros, limits = [0] * len(shape), list(shape)
        limits[axis] = shape[axis] - distance
        before = views.slice(kernels, value, zeros, limits)
        limits[axis] = distance
        head = views.slice(kernels, value, zeros, limits)
        zeros[axis] = distance
        after = views.slice(kernels, value, zeros, shape)
        tail = kernels.elementwise(lambda s, x, y: s.reducer(op, x, y), (before, after), after.type)
        value = views.concatenate(kernels, (head, tail), axis)
        distance *= 2
    return views.reverse(kernels, value, (axis,)) if reverse else value
