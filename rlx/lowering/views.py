"""Shape operations of NestBuilder: index maps where possible, partial writes where not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import and_

from rlx.ir.kernels import Buffer
from rlx.ir.types import TensorType
from rlx.lowering.lowered import BufferView, LoweredValue, dense_strides, remap, reshape_map
from rlx.lowering.nest_builder import NestBuilder
from rlx.lowering.nodes import INT64, IndexMap
from rlx.lowering.scalar_builder import Scalar, ScalarBuilder

__all__ = ["broadcast", "concatenate", "pad", "reshape", "reverse", "slice", "transpose", "window"]

PadConfig = Sequence[tuple[int, int, int]]


def broadcast(kernels: NestBuilder, v: LoweredValue, shape: Sequence[int], dims: Sequence[int]) -> LoweredValue:
    """`v` with its axis i at position dims[i] of `shape`; the other axes repeat it."""
    kernels.before_repeating(v, prod(shape))
    rank = len(shape)
    kept = [(axis, dim) for axis, dim in enumerate(dims) if v.shape[axis] == shape[dim]]

    def stride_map(strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
        result = [0] * rank
        for axis, dim in kept:
            result[dim] = strides[axis]
        return tuple(result), offset

    return _viewed(kernels, v, tuple(shape), kernels.moved(v, stride_map))


def transpose(kernels: NestBuilder, v: LoweredValue, permutation: Sequence[int]) -> LoweredValue:
    """Axis i of the result is axis permutation[i] of `v`."""
    permutation = tuple(permutation)
    if permutation == tuple(range(len(permutation))):
        return v
    nodes = kernels.moved(v, lambda strides, o: (tuple(strides[p] for p in permutation), o))
    return _viewed(kernels, v, tuple(v.shape[p] for p in permutation), nodes)


def reshape(kernels: NestBuilder, v: LoweredValue, shape: Sequence[int]) -> LoweredValue:
    """`v` in row-major order with another shape; copies only if no index map can express the view."""
    shape = tuple(shape)
    if shape == v.shape:
        return v
    if prod(shape) == 0:
        return kernels.full(v.type.update(shape=shape), 0)
    stride_map = reshape_map(v.shape, shape)
    nodes = remap(kernels.table, v.nodes, stride_map)
    if nodes is None:
        kernels.materialise(v, range(len(v.shape)))
        nodes = kernels.moved(v, stride_map)
    return _viewed(kernels, v, shape, nodes)


def slice(
    kernels: NestBuilder,
    v: LoweredValue,
    starts: Sequence[int],
    limits: Sequence[int],
    strides: Sequence[int] | None = None,
) -> LoweredValue:
    """v[starts[i]:limits[i]:strides[i]] along every axis; strides are positive."""
    steps = tuple(strides) if strides is not None else (1,) * len(v.shape)
    shape = tuple(max(0, -(-(limit - start) // step)) for start, limit, step in zip(starts, limits, steps, strict=True))
    if shape == v.shape:
        return v

    def stride_map(strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
        offset += sum(s * start for s, start in zip(strides, starts, strict=True))
        moved = zip(strides, steps, shape, strict=True)
        return tuple(s * step if size != 1 else 0 for s, step, size in moved), offset

    if prod(shape) == 0:
        return kernels.full(v.type.update(shape=shape), 0)
    return _viewed(kernels, v, shape, kernels.moved(v, stride_map))


def reverse(kernels: NestBuilder, v: LoweredValue, axes: Sequence[int]) -> LoweredValue:
    """`v` read backwards along `axes`."""
    flipped = {axis for axis in axes if v.shape[axis] > 1}
    if not flipped or v.type.size == 0:
        return v

    def stride_map(strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
        offset += sum(strides[axis] * (v.shape[axis] - 1) for axis in flipped)
        return tuple(-s if a in flipped else s for a, s in enumerate(strides)), offset

    return _viewed(kernels, v, v.shape, kernels.moved(v, stride_map))


def window(kernels: NestBuilder, v: LoweredValue, shape: Sequence[int], strides: Sequence[int]) -> LoweredValue:
    """All windows of `shape` at steps of `strides`: axes (*window positions, *window offsets).

    Element (p..., o...) is v[p * stride + o]; there are (n - shape) // stride + 1 positions
    along an axis of n. Windows may overlap; nothing is copied.
    """
    positions = tuple(max(0, (n - size) // step + 1) for n, size, step in zip(v.shape, shape, strides, strict=True))
    full_shape = (*positions, *shape)
    if prod(full_shape) == 0:
        return kernels.full(v.type.update(shape=full_shape), 0)

    def stride_map(source: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
        apart = tuple(s * step for s, step in zip(source, strides, strict=True))
        moved = zip((*apart, *source), full_shape, strict=True)
        return tuple(s if size != 1 else 0 for s, size in moved), offset

    return _viewed(kernels, v, full_shape, kernels.moved(v, stride_map))


def pad(kernels: NestBuilder, v: LoweredValue, value: LoweredValue, config: PadConfig) -> LoweredValue:
    """`v` with (low, high, interior) copies of the scalar `value` along each axis.

    Negative low or high cut the (dilated) array.
    """
    shape = tuple(
        max(0, low + high + n + max(0, n - 1) * interior)
        for n, (low, high, interior) in zip(v.shape, config, strict=True)
    )
    type = v.type.update(shape=shape)
    fill = broadcast(kernels, value, shape, ())
    if type.size == 0 or v.type.size == 0:
        return fill
    first, last, offsets, steps = [], [], [], []
    for n, size, (low, _, interior) in zip(v.shape, shape, config, strict=True):
        step = interior + 1
        start = max(0, -(low // step))
        first.append(start)
        last.append(min(n, max(start, -((low - size) // step))))
        offsets.append(low + start * step)
        steps.append(step)
    inner = slice(kernels, v, first, last)
    if inner.shape == shape:
        return inner
    if inner.type.size == 0:
        return fill
    key = (v.nodes, value.nodes, v.shape, tuple(map(tuple, config)))
    known = kernels._padded.get(key)
    if known is None:
        known = kernels._padded[key] = _pad_inside(kernels, inner, fill, offsets, steps)
    return kernels.from_buffer(known, type)


def pad_where_read(kernels: NestBuilder, v: LoweredValue, value: LoweredValue, config: PadConfig) -> LoweredValue:
    """Like `pad`, for a real array in memory, as an expression: each read of an element checks whether it is inside.

    Dilated or cropped arrays are padded in memory.
    """
    cut = any(min(low, high) < 0 or interior for low, high, interior in config)
    if cut or len(v.nodes) > 1 or v.type.size == 0:
        return pad(kernels, v, value, config)
    shape = tuple(low + n + high for n, (low, high, _) in zip(v.shape, config, strict=True))
    scalars = ScalarBuilder(kernels, kernels.table, len(shape))
    positions = [scalars.index(axis) - low for axis, (low, _, _) in enumerate(config)]
    tests = [
        test
        for position, n, (low, high, _) in zip(positions, v.shape, config, strict=True)
        for test, needed in ((position >= 0, low), (position < n, high))
        if needed
    ]
    if not tests:
        return v
    inside = reduce(and_, tests)
    view = kernels.realise_for_compute(v)
    strides, offset, _ = kernels.address(scalars, positions, view.strides)
    # beyond the array the first element is read instead, which is certainly there
    place = Scalar(scalars, INT64, kernels.table.affine(strides, offset))
    back = scalars.select(inside, scalars.constant(0, INT64), -place)
    element = kernels.table.load(IndexMap(view.buffer, strides, offset + view.offset), back.node)
    read = scalars.select(inside, Scalar(scalars, v.dtype, element), Scalar(scalars, v.dtype, *value.nodes))
    kernels.mark(read.nodes)
    return LoweredValue(v.type.update(shape=shape), read.nodes, kernels.sources_of((v,)))


def _pad_inside(
    kernels: NestBuilder, inner: LoweredValue, fill: LoweredValue, offsets: Sequence[int], steps: Sequence[int]
) -> Buffer:
    """A buffer with `fill`, and `inner` in it from `offsets` on."""
    shape = fill.shape
    buffer = kernels.allocate(inner.dtype, fill.type.size)
    strides = dense_strides(shape)
    padded = [a for a in range(len(shape)) if inner.shape[a] != shape[a]]
    strips = len(padded) == 1 and (steps[padded[0]] == 1 or inner.shape[padded[0]] == 1)
    if strips:
        axis, start = padded[0], offsets[padded[0]]
        _write_part(kernels, fill, buffer, strides, shape, axis, 0, start)
        end = start + inner.shape[axis]
        _write_part(kernels, fill, buffer, strides, shape, axis, end, shape[axis])
    else:
        kernels.write(fill, BufferView(buffer, strides, 0))
    apart = tuple(s * step for s, step in zip(strides, steps, strict=True))
    offset = sum(s * o for s, o in zip(strides, offsets, strict=True))
    kernels.write(inner, BufferView(buffer, apart, offset), ordered=not strips)
    return buffer


def _write_part(
    kernels: NestBuilder,
    fill: LoweredValue,
    buffer: Buffer,
    strides: tuple[int, ...],
    shape: tuple[int, ...],
    axis: int,
    start: int,
    end: int,
) -> None:
    """Fill positions start..end of one axis."""
    if start < end:
        part_shape = (*shape[:axis], end - start, *shape[axis + 1 :])
        part = LoweredValue(fill.type.update(shape=part_shape), fill.nodes, fill.sources)
        kernels.write(part, BufferView(buffer, strides, start * strides[axis]))


def concatenate(kernels: NestBuilder, values: Sequence[LoweredValue], axis: int) -> LoweredValue:
    """The values one after the other along an axis: each writes its part of one buffer."""
    parts = [v for v in values if v.shape[axis]]
    if not parts:
        return values[0]
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[axis] = sum(v.shape[axis] for v in parts)
    type = TensorType(tuple(shape), parts[0].dtype)
    if type.size == 0:
        return kernels.full(type, 0)
    buffer = kernels.allocate(type.dtype, type.size)
    strides = dense_strides(shape)
    position = 0
    for part in parts:
        kernels.write(part, BufferView(buffer, strides, position * strides[axis]))
        position += part.shape[axis]
    return kernels.from_buffer(buffer, type)


def _viewed(kernels: NestBuilder, v: LoweredValue, shape: tuple[int, ...], nodes: tuple) -> LoweredValue:
    return LoweredValue(v.type.update(shape=shape), nodes, kernels.sources_of((v,)))
