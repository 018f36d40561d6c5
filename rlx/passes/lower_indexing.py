"""Reads and writes at computed positions: dynamic slices, gather and scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.types import TensorType
from rlx.passes.lower_reduce import ReductionLowering
from rlx.passes.lowered import BufferView, Lowered, dense_strides
from rlx.passes.nest import Nest, NestStore, collapse
from rlx.passes.nodes import INT64
from rlx.passes.scalar_builder import Scalar, ScalarBuilder

__all__ = ["IndexLowering"]

IndexFunction = Callable[..., Sequence[Any]]


class IndexLowering(ReductionLowering):
    """dynamic_slice, dynamic_update_slice, gather, scatter."""

    def dynamic_slice(
        self, v: Lowered, starts: Sequence[Lowered], sizes: Sequence[int]
    ) -> Lowered:
        """The part of `v` of shape `sizes` at computed starts, which are in bounds."""

        def read(s: ScalarBuilder, *first: Scalar) -> Scalar:
            positions = [s.cast(x, INT64) + s.index(axis) for axis, x in enumerate(first)]
            return s.load(v, positions)

        type = v.type.update(shape=tuple(sizes))
        return self._read(read, starts, type, v)

    def gather(self, v: Lowered, index: IndexFunction, shape: Sequence[int]) -> Lowered:
        """out[p...] = v[index(s, *p)]: one int64 position, in bounds, for each axis of `v`."""

        def read(s: ScalarBuilder) -> Scalar:
            return s.load(v, index(s, *(s.index(axis) for axis in range(len(shape)))))

        return self._read(read, (), v.type.update(shape=tuple(shape)), v)

    def _read(
        self,
        read: Callable[..., Scalar],
        operands: Sequence[Lowered],
        type: TensorType,
        v: Lowered,
    ) -> Lowered:
        if type.size == 0 or v.type.size == 0:
            return self.full(type, 0)
        return self.elementwise(read, operands, type)

    def dynamic_update_slice(
        self, v: Lowered, update: Lowered, starts: Sequence[Lowered]
    ) -> Lowered:
        """`v` with the part at computed starts (in bounds) replaced by `update`."""
        if update.type.size == 0:
            return v
        if update.shape == v.shape:
            return update

        def place(s: ScalarBuilder, *position: Scalar) -> list[Scalar]:
            first = [Scalar(s, x.dtype, *self._broadcast_nodes(x, update.shape)) for x in starts]
            return [s.cast(x, INT64) + p for x, p in zip(first, position, strict=True)]

        return self.scatter(None, v, update, place, None)

    def scatter(
        self,
        op: str | None,
        v: Lowered,
        updates: Lowered,
        index: IndexFunction,
        guard: Callable[..., Scalar] | None,
    ) -> Lowered:
        """`v` with each element of `updates` set (op None) or combined by a reducer at `index`.

        index(s, *p) and guard(s, *p) are functions of the position p in `updates`; nothing is
        written where guard is false. Several updates of one element act in row-major order.
        """
        if v.type.size == 0 or updates.type.size == 0:
            return v
        if op is not None and v.dtype.kind == "c" and op != "add":
            return self._scatter_by_reading(op, v, updates, index, guard)
        target = self._copy(v)
        builder = ScalarBuilder(self, self.table, len(updates.shape))
        positions = [builder.index(axis) for axis in range(len(updates.shape))]
        view, address = self._placed(builder, target, index(builder, *positions))
        condition = None if guard is None else guard(builder, *positions).node
        stores = self.part_stores(updates, view, address, op, condition)
        self._emit_ordered(updates, stores)
        return self.from_buffer(target.buffer, v.type)

    def _emit_ordered(self, updates: Lowered, stores: list[NestStore]) -> None:
        sizes, row, stores = collapse(self.table, updates.shape, stores)
        self.emit(Nest(sizes, stores, row, ordered=True), updates)

    def _scatter_by_reading(
        self,
        op: str,
        v: Lowered,
        updates: Lowered,
        index: IndexFunction,
        guard: Callable[..., Scalar] | None,
    ) -> Lowered:
        """Combine complex numbers one after the other, in a loop that reads what it writes."""
        target = self._copy(v)
        current = self.from_buffer(target.buffer, v.type)
        builder = ScalarBuilder(self, self.table, len(updates.shape))
        positions = [builder.index(axis) for axis in range(len(updates.shape))]
        places = index(builder, *positions)
        view, address = self._placed(builder, target, places)
        condition = None if guard is None else guard(builder, *positions).node
        update = Scalar(builder, updates.dtype, *updates.nodes)
        old = self.load_element(builder, current, places)
        combined = Lowered(updates.type, builder.reducer(op, old, update).nodes, updates.sources)
        stores = self.part_stores(combined, view, address, None, condition)
        self._emit_ordered(combined, stores)
        return current

    def _copy(self, v: Lowered) -> BufferView:
        """A fresh row-major copy of a value, to be written over."""
        buffer = self.allocate(v.dtype, v.type.size)
        view = BufferView(buffer, dense_strides(v.shape), 0)
        self.write(v, view)
        return view

    def _placed(
        self, builder: ScalarBuilder, target: BufferView, positions: Sequence[Any]
    ) -> tuple[BufferView, Any]:
        strides, offset, rest = self.address(builder, positions, target.strides)
        factor = 2 if target.buffer.dtype.kind == "c" else 1
        address = None if rest is None else builder.mul(rest, factor).node
        return BufferView(target.buffer, strides, offset), address
