"""Reads and writes at computed positions: dynamic slices, gather and scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.types import TensorType, dtype_kind
from rlx.lowering import control_flow, views
from rlx.lowering.lowered import BufferView, LoweredValue, dense_strides
from rlx.lowering.nest import Nest, NestStore, collapse
from rlx.lowering.nest_builder import NestBuilder
from rlx.lowering.nodes import INT64
from rlx.lowering.scalar_builder import Scalar, ScalarBuilder

__all__ = ["dynamic_slice", "dynamic_update_slice", "gather", "scatter"]


IndexFunction = Callable[..., Sequence[Any]]


def dynamic_slice(
    kernels: NestBuilder, v: LoweredValue, starts: Sequence[LoweredValue], sizes: Sequence[int]
) -> LoweredValue:
    """The part of `v` of shape `sizes` at computed starts, which are in bounds."""

    def read(s: ScalarBuilder, *first: Scalar) -> Scalar:
        positions = [s.cast(x, INT64) + s.index(axis) for axis, x in enumerate(first)]
        return s.load(v, positions)

    type = v.type.update(shape=tuple(sizes))
    return _read(kernels, read, starts, type, v)


def gather(kernels: NestBuilder, v: LoweredValue, index: IndexFunction, shape: Sequence[int]) -> LoweredValue:
    """out[p...] = v[index(s, *p)]: one int64 position, in bounds, for each axis of `v`."""

    def read(s: ScalarBuilder) -> Scalar:
        return s.load(v, index(s, *(s.index(axis) for axis in range(len(shape)))))

    return _read(kernels, read, (), v.type.update(shape=tuple(shape)), v)


def _read(
    kernels: NestBuilder,
    read: Callable[..., Scalar],
    operands: Sequence[LoweredValue],
    type: TensorType,
    v: LoweredValue,
) -> LoweredValue:
    if type.size == 0 or v.type.size == 0:
        return kernels.full(type, 0)
    return kernels.elementwise(read, operands, type)


def dynamic_update_slice(
    kernels: NestBuilder, v: LoweredValue, update: LoweredValue, starts: Sequence[LoweredValue]
) -> LoweredValue:
    """`v` with the part at computed starts (in bounds) replaced by `update`."""
    if update.type.size == 0:
        return v
    if update.shape == v.shape:
        return update

    def place(s: ScalarBuilder, *position: Scalar) -> list[Scalar]:
        first = [Scalar(s, x.dtype, *kernels._broadcast_nodes(x, update.shape)) for x in starts]
        return [s.cast(x, INT64) + p for x, p in zip(first, position, strict=True)]

    return scatter(kernels, None, v, update, place, None, distinct=True)


def scatter(
    kernels: NestBuilder,
    op: str | None,
    v: LoweredValue,
    updates: LoweredValue,
    index: IndexFunction,
    guard: Callable[..., Scalar] | None,
    distinct: bool = False,
) -> LoweredValue:
    """`v` with each element of `updates` set (op None) or combined by a reducer at `index`.

    index(s, *p) and guard(s, *p) are functions of the position p in `updates`; nothing is
    written where guard is false. Of several updates that set one element, the last in row-major order counts;
    distinct: there are none. A reducer combines them in any order; with the option `deterministic` sums and products
    of floats are made in row-major order.
    """
    if v.type.size == 0 or updates.type.size == 0:
        return v
    if op is not None and v.dtype.kind == "c" and op != "add":
        return _scatter_one_by_one(kernels, op, v, updates, index, guard)
    target = _copy(kernels, v)
    builder = ScalarBuilder(kernels, kernels.table, len(updates.shape))
    positions = [builder.index(axis) for axis in range(len(updates.shape))]
    view, address = _placed(kernels, builder, target, index(builder, *positions))
    condition = None if guard is None else guard(builder, *positions).node
    rounds = op in ("add", "mul") and dtype_kind(v.dtype) in "fc"
    in_turn = kernels.options.deterministic and rounds if op else not distinct
    order = "sequential" if in_turn else "any"
    stores = kernels.part_stores(updates, view, address, op, condition, order)
    _emit_ordered(kernels, updates, stores)
    return kernels.from_buffer(target.buffer, v.type)


def _emit_ordered(kernels: NestBuilder, updates: LoweredValue, stores: list[NestStore]) -> None:
    sizes, row, stores = collapse(kernels.table, updates.shape, stores)
    kernels.emit(Nest(sizes, stores, row, ordered=True), updates)


def _scatter_one_by_one(
    kernels: NestBuilder,
    op: str,
    v: LoweredValue,
    updates: LoweredValue,
    index: IndexFunction,
    guard: Callable[..., Scalar] | None,
) -> LoweredValue:
    """Combine complex numbers one after the other: a scan that carries the result.

    A kernel may not read where its other iterations write, and a product of complex numbers
    cannot be computed by accumulating their parts.
    """
    flat = (v.type.size,)
    places = TensorType(updates.shape, INT64)
    allowed = TensorType(updates.shape, np.dtype(bool))

    def locate(s: ScalarBuilder) -> tuple[Scalar, Scalar]:
        positions = [s.index(axis) for axis in range(len(updates.shape))]
        place = s.constant(0, INT64)
        for position, stride in zip(index(s, *positions), dense_strides(v.shape), strict=True):
            place = place + s.cast(s.lift(position, INT64), INT64) * stride
        always = s.constant(True, allowed.dtype)
        return place, always if guard is None else guard(s, *positions)

    def combine(k: NestBuilder, carry: LoweredValue, u: LoweredValue, at: LoweredValue, ok: LoweredValue) -> Any:
        old = dynamic_slice(k, carry, (at,), (1,))
        new = k.elementwise(lambda s, x, y, keep: s.select(keep, s.reducer(op, x, y), x), (old, u, ok), old.type)
        return dynamic_update_slice(k, carry, new, (at,))

    place, keep = kernels.elementwise(locate, (), (places, allowed))
    xs = [views.reshape(kernels, x, (updates.type.size,)) for x in (updates, place, keep)]
    carry = v.type.update(shape=flat)
    slices = [TensorType((), x.dtype) for x in xs]
    body = control_flow.inline_program("scatter", combine, (carry, *slices), carry)
    (final,), _ = control_flow.scan(kernels, body, (), (views.reshape(kernels, v, flat),), xs, updates.type.size)
    return views.reshape(kernels, final, v.shape)


def _copy(kernels: NestBuilder, v: LoweredValue) -> BufferView:
    """A fresh row-major copy of a value, to be written over."""
    buffer = kernels.allocate(v.dtype, v.type.size)
    view = BufferView(buffer, dense_strides(v.shape), 0)
    kernels.write(v, view)
    return view


def _placed(
    kernels: NestBuilder, builder: ScalarBuilder, target: BufferView, positions: Sequence[Any]
) -> tuple[BufferView, Any]:
    strides, offset, rest = kernels.address(builder, positions, target.strides)
    factor = 2 if target.buffer.dtype.kind == "c" else 1
    address = None if rest is None else builder.mul(rest, factor).node
    return BufferView(target.buffer, strides, offset), address
