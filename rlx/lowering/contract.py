"""Contractions: matrix products if a GEMM exists, otherwise multiply and reduce."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from rlx.ir.dims import is_sized
from rlx.ir.kernels import Buffer, Contract, Operand
from rlx.ir.options import ProductType
from rlx.ir.types import TensorType, bits_of, compute_dtype, dtype_kind, is_narrow
from rlx.lowering import reduction, views
from rlx.lowering.lowered import LoweredValue, natural_order, view_of
from rlx.lowering.nest_builder import NestBuilder

__all__ = ["contract"]

_DimensionPair = tuple[Sequence[int], Sequence[int]]


class _ContractionAxes(NamedTuple):
    """The axes of one operand by their part in the contraction."""

    batch: tuple[int, ...]
    free: tuple[int, ...]
    contracted: tuple[int, ...]


def contract(
    kernels: NestBuilder,
    lhs: LoweredValue,
    rhs: LoweredValue,
    contracting: _DimensionPair,
    batch: _DimensionPair,
    accumulator: np.dtype | None = None,
    result: np.dtype | None = None,
    tf32: bool = False,
) -> LoweredValue:
    """Sum of products over pairs of contracting axes; axes (batch, lhs free, rhs free).

    accumulator: the dtype to sum in; a wider one may be used. The default is the computation dtype of the operands.
    result: the dtype of the result, by default the operands'. tf32: float32 operands may be rounded to tf32 if the
    device has such a product.
    """
    result = lhs.dtype if result is None else result
    accumulator = _computed_in(lhs.dtype) if accumulator is None else accumulator
    left = _classify(lhs, contracting[0], batch[0])
    right = _classify(rhs, contracting[1], batch[1])
    b, m, k = (_sizes(lhs, group) for group in left)
    n = _sizes(rhs, right.free)
    shape = (*b, *m, *n)
    if prod(shape) == 0 or prod(k) == 0:
        return kernels.full(TensorType(shape, result), 0)
    matrices = prod(k) > 1 and prod(m) > 1 and prod(n) > 1
    found = _product_type(kernels, lhs.dtype, accumulator, tf32) if matrices else None
    if found is None and lhs.dtype != accumulator:
        lhs, rhs = (_converted(kernels, v, accumulator) for v in (lhs, rhs))
        found = _product_type(kernels, accumulator, accumulator, tf32) if matrices else None
    if found is None:
        return _converted(kernels, _by_reduction(kernels, lhs, rhs, left, right), result)
    out = TensorType(shape, result if result == lhs.dtype else found.accumulator)
    return _converted(kernels, _product(kernels, lhs, rhs, left, right, out, found), result)


def _computed_in(dtype: np.dtype) -> np.dtype:
    return compute_dtype(dtype) if is_narrow(dtype) else dtype


def _product_type(kernels: NestBuilder, operands: np.dtype, accumulator: np.dtype, tf32: bool) -> ProductType | None:
    """The device's product for these operands that sums in this dtype or a wider one, if possible in tf32."""
    types = kernels.options.products.types
    for found in (*(t for t in types if t.tf32 and tf32), *(t for t in types if not t.tf32)):
        wide = found.accumulator
        if found.operands == operands and dtype_kind(wide) == dtype_kind(accumulator):
            if bits_of(wide) >= bits_of(accumulator):
                return found
    return None


def _converted(kernels: NestBuilder, v: LoweredValue, dtype: np.dtype) -> LoweredValue:
    if v.dtype == dtype:
        return v
    return kernels.elementwise(lambda s, x: s.cast(x, dtype), (v,), v.type.update(dtype=dtype))


def _by_reduction(
    kernels: NestBuilder, lhs: LoweredValue, rhs: LoweredValue, left: _ContractionAxes, right: _ContractionAxes
) -> LoweredValue:
    """Multiply over the space (batch, lhs free, rhs free, contracted), reduce the last."""
    for operand in (lhs, rhs):
        if operand.nodes[0].op != "load" and operand.weight > kernels.options.operand_nodes:
            kernels.realise(operand)
    b, m, k = (_sizes(lhs, group) for group in left)
    n = _sizes(rhs, right.free)
    space = (*b, *m, *n, *k)
    first, second, third = len(b), len(b) + len(m), len(b) + len(m) + len(n)
    aligned = views.transpose(kernels, lhs, (*left.batch, *left.free, *left.contracted))
    wide = views.broadcast(kernels, aligned, space, (*range(second), *range(third, len(space))))
    other = views.transpose(kernels, rhs, (*right.batch, *right.free, *right.contracted))
    dims = (*range(first), *range(second, third), *range(third, len(space)))
    tall = views.broadcast(kernels, other, space, dims)
    type = TensorType(space, lhs.dtype)
    if lhs.dtype.kind == "b":
        products = kernels.elementwise(lambda s, x, y: s.and_(x, y), (wide, tall), type)
        return reduction.reduce(kernels, "or", products, range(third, len(space)))
    products = kernels.elementwise(lambda s, x, y: s.mul(x, y), (wide, tall), type)
    return reduction.reduce(kernels, "add", products, range(third, len(space)))


def _product(
    kernels: NestBuilder,
    lhs: LoweredValue,
    rhs: LoweredValue,
    left: _ContractionAxes,
    right: _ContractionAxes,
    type: TensorType,
    product_type: ProductType,
) -> LoweredValue:
    """Matrix products into one buffer: one kernel, or one for each index of outer batches."""
    accumulator = None if product_type.accumulator == lhs.dtype else product_type.accumulator
    lhs = _readable(kernels, lhs, left.batch, left.free, left.contracted)
    rhs = _readable(kernels, rhs, right.batch, right.contracted, right.free)
    count = _looped_batches(kernels.options.products.kernels, (lhs, left.batch), (rhs, right.batch))
    if count is None:
        lhs, rhs = (_in_order(kernels, v, g) for v, g in ((lhs, left), (rhs, right)))
        count = 0
    buffer = kernels.allocate(type.dtype, type.size)
    looped = type.shape[:count]
    step = prod(type.shape[count:])
    if len(looped) == 1 and is_sized(looped[0]) and looped[0] > 1:
        kernels.emit_kernel(_stack(lhs, rhs, left, right, type, buffer, product_type, accumulator))
        return kernels.from_buffer(buffer, type)
    for number, position in enumerate(product(*(range(n) for n in looped))):
        first = _as_matrices(lhs, left.batch, left.free, left.contracted, position)
        second = _as_matrices(rhs, right.batch, right.contracted, right.free, position)
        assert first is not None and second is not None
        (b, m, _), n = first.shape, second.shape[2]
        strides = (m * n if b > 1 else 0, n, 1)
        out = Operand(buffer, (b, m, n), strides, number * step)
        kernels.emit_kernel(Contract(first, second, out, accumulator=accumulator, tf32=product_type.tf32))
    return kernels.from_buffer(buffer, type)


def _stack(
    lhs: LoweredValue,
    rhs: LoweredValue,
    left: _ContractionAxes,
    right: _ContractionAxes,
    type: TensorType,
    buffer: Buffer,
    product_type: ProductType,
    accumulator: np.dtype | None,
) -> Contract:
    """One product over the first batch axis, whose size is symbolic, as stack_products makes of one for each index."""
    operands = []
    for v, batch, rows, columns in (
        (lhs, left.batch, left.free, left.contracted),
        (rhs, right.batch, right.contracted, right.free),
    ):
        operand, after = (_as_matrices(v, batch, rows, columns, (position,)) for position in (0, 1))
        assert operand is not None and after is not None
        step = after.offset - operand.offset
        shape, strides = (type.shape[0], *operand.shape), (step, *operand.strides)
        operands.append(Operand(operand.buffer, shape, strides, operand.offset))
    first, second = operands
    if first.strides[0] < 0 or second.strides[0] < 0:
        operator.index(type.shape[0])  # such products stay apart
    (_, b, m, _), n = first.shape, second.shape[3]
    out = Operand(buffer, (type.shape[0], b, m, n), (prod(type.shape[1:]), m * n if b > 1 else 0, n, 1), 0)
    return Contract(first, second, out, accumulator=accumulator, tf32=product_type.tf32)


def _readable(
    kernels: NestBuilder, v: LoweredValue, batch: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...]
) -> LoweredValue:
    """`v` in a layout whose matrices a GEMM can read, batch by batch; copied if necessary."""
    if view_of(v) is None:
        kernels.materialise(v, _matrix_order(v, batch, rows, columns))
    if _as_matrices(v, batch, rows, columns, (0,) * len(batch)) is None:
        v = LoweredValue(v.type, v.nodes, v.sources)
        kernels.materialise(v, _matrix_order(v, batch, rows, columns))
    return v


def _in_order(kernels: NestBuilder, v: LoweredValue, axes: _ContractionAxes) -> LoweredValue:
    """`v` with its batches in order, so that one stride walks them."""
    view = view_of(v)
    assert view is not None
    if _merged(v.shape, view.strides, axes.batch) is not None:
        return v
    copy = LoweredValue(v.type, v.nodes, v.sources)
    kernels.materialise(copy, _matrix_order(v, axes.batch, axes.free, axes.contracted))
    return copy


def _matrix_order(
    v: LoweredValue, batch: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...]
) -> list[int]:
    """The layout nearest to the value's own that keeps each group together.

    Rows or columns may come first; the groups are ordered as their innermost axes are.
    """
    position = {axis: place for place, axis in enumerate(natural_order(v))}
    moving = [axis for axis in (*rows, *columns) if v.shape[axis] != 1]
    innermost = max(moving, key=lambda axis: position[axis])
    inner, outer = (rows, columns) if innermost in rows else (columns, rows)
    return [*batch, *outer, *inner]


def _classify(v: LoweredValue, contracting: Sequence[int], batch: Sequence[int]) -> _ContractionAxes:
    taken = {*contracting, *batch}
    free = tuple(axis for axis in range(len(v.shape)) if axis not in taken)
    return _ContractionAxes(tuple(batch), free, tuple(contracting))


def _sizes(v: LoweredValue, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(v.shape[axis] for axis in axes)


def _merged(shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]) -> int | None:
    """The one stride that walks several axes, 0 for none of size over 1, None if there is none."""
    moving = [axis for axis in axes if shape[axis] != 1]
    for outer, inner in pairwise(moving):
        if strides[outer] != strides[inner] * shape[inner]:
            return None
    return strides[moving[-1]] if moving else 0


def _looped_batches(most: int, *operands: tuple[LoweredValue, tuple[int, ...]]) -> int | None:
    """The number of leading batch axes to loop over so that one stride walks the others.

    None if that would take more than `most` kernels, so that copies are cheaper.
    """
    for count in range(len(operands[0][1]) + 1):
        merged = []
        for v, batch in operands:
            view = view_of(v)
            assert view is not None
            step = _merged(v.shape, view.strides, batch[count:])
            merged.append(step is not None and step >= 0)
        if prod(_sizes(operands[0][0], operands[0][1][:count])) > most:
            return None
        if all(merged):
            return count
    return None


def _as_matrices(
    v: LoweredValue,
    batch: Sequence[int],
    rows: Sequence[int],
    columns: Sequence[int],
    position: Sequence[int],
) -> Operand | None:
    """The (batch, rows, columns) operand at a position of the leading batch axes.

    None where BLAS could not read it.
    """
    view = view_of(v)
    assert view is not None
    looped, batch = batch[: len(position)], batch[len(position) :]
    offset = view.offset
    offset += sum(view.strides[a] * p for a, p in zip(looped, position, strict=True))
    merged = [_merged(v.shape, view.strides, axes) for axes in (batch, rows, columns)]
    b, r, c = (prod(_sizes(v, axes)) for axes in (batch, rows, columns))
    stack, down, across = merged
    if stack is None or down is None or across is None or stack < 0:
        return None
    if across == 1 or c == 1:
        across, down = 1, down if r > 1 else c
        legal = down >= c
    elif down == 1 or r == 1:
        down, across = 1, across if c > 1 else r
        legal = across >= r
    else:
        legal = False
    if not legal:
        return None
    return Operand(view.buffer, (b, r, c), (stack, down, across), offset)
