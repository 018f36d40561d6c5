"""Reads and writes at computed positions: dynamic slices, gather and scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Equation, Program, Var
from rlx.ir.types import TensorType
from rlx.lowering.lowered import BufferView, Lowered, dense_strides
from rlx.lowering.nest import Nest, NestStore, collapse
from rlx.lowering.nodes import INT64
from rlx.lowering.reduction import ReductionLowering
from rlx.lowering.scalar_builder import Scalar, ScalarBuilder

__all__ = ["IndexLowering"]


class _Inline:
    """A primitive made on the spot, for a region that lowering itself writes."""

    def __init__(self, name: str, lower: Callable[..., Any]) -> None:
        self.name = name
        self.lower = lower

    def effect(self) -> bool:
        """Never: regions that lowering writes only compute."""
        return False


def inline_program(name: str, lower: Callable[..., Any], inputs: Sequence[TensorType], output: TensorType) -> Program:
    """A program of one equation with the given lowering."""
    variables = tuple(Var(type) for type in inputs)
    result = Var(output)
    equation = Equation(_Inline(name, lower), variables, {}, (result,))
    return Program(variables, (equation,), (result,), (), name)


IndexFunction = Callable[..., Sequence[Any]]


class IndexLowering(ReductionLowering):
    """dynamic_slice, dynamic_update_slice, gather, scatter."""

    def dynamic_slice(self, v: Lowered, starts: Sequence[Lowered], sizes: Sequence[int]) -> Lowered:
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

    def dynamic_update_slice(self, v: Lowered, update: Lowered, starts: Sequence[Lowered]) -> Lowered:
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
            return self._scatter_one_by_one(op, v, updates, index, guard)
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

    def _scatter_one_by_one(
        self,
        op: str,
        v: Lowered,
        updates: Lowered,
        index: IndexFunction,
        guard: Callable[..., Scalar] | None,
    ) -> Lowered:
        """Combine complex numbers one after the other: a scan that carries the result.

        A kernel may not read where its other iterations write, and a product of complex numbers
        is not made of accumulations of their parts.
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

        def combine(k: IndexLowering, carry: Lowered, u: Lowered, at: Lowered, ok: Lowered) -> Any:
            old = k.dynamic_slice(carry, (at,), (1,))
            new = k.elementwise(lambda s, x, y, keep: s.select(keep, s.reducer(op, x, y), x), (old, u, ok), old.type)
            return k.dynamic_update_slice(carry, new, (at,))

        place, keep = self.elementwise(locate, (), (places, allowed))
        xs = [self.reshape(x, (updates.type.size,)) for x in (updates, place, keep)]
        carry = v.type.update(shape=flat)
        slices = [TensorType((), x.dtype) for x in xs]
        body = inline_program("scatter", combine, (carry, *slices), carry)
        (final,), _ = self.scan(body, (), (self.reshape(v, flat),), xs, updates.type.size)
        return self.reshape(final, v.shape)

    def scan(self, *arguments: Any) -> Any:
        """See RegionLowering."""
        raise NotImplementedError

    def _copy(self, v: Lowered) -> BufferView:
        """A fresh row-major copy of a value, to be written over."""
        buffer = self.allocate(v.dtype, v.type.size)
        view = BufferView(buffer, dense_strides(v.shape), 0)
        self.write(v, view)
        return view

    def _placed(self, builder: ScalarBuilder, target: BufferView, positions: Sequence[Any]) -> tuple[BufferView, Any]:
        strides, offset, rest = self.address(builder, positions, target.strides)
        factor = 2 if target.buffer.dtype.kind == "c" else 1
        address = None if rest is None else builder.mul(rest, factor).node
        return BufferView(target.buffer, strides, offset), address
