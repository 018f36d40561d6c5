"""Sorting along an axis, and the largest elements of an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError, not_linear
from rlx.ir.types import TensorType, is_complex
from rlx.ops.families import full_like, in_compute_dtype, refuse_keys, to_front
from rlx.ops.few_largest import are_few, few_largest
from rlx.ops.indexing import GatherDimensionNumbers, gather
from rlx.ops.sample_dtypes import ANY, ORDERED, typed_samples
from rlx.ops.shape import AxisMap, axes_but, check_axes, expand_dims, iota
from rlx.trace.primitive import Primitive, Sample, Zero, primitive, type_of

__all__ = ["sort", "take_along", "top_k"]

INT32 = np.dtype(np.int32)


def take_along(x: Any, indices: Any, axis: int) -> Any:
    """x[..., indices[..., i, ...], ...]: along one axis, position by position along the others."""
    operand, shape = type_of(x), type_of(indices).shape
    if 0 in shape:
        return full_like(operand.update(shape=shape), 0)
    others = tuple(a for a in range(operand.ndim) if a != axis)
    return gather(
        x,
        expand_dims(indices, (operand.ndim,)),
        dimension_numbers=GatherDimensionNumbers((), (axis,), (axis,), others, others),
        slice_sizes=(1,) * operand.ndim,
        mode="promise_in_bounds",
        fill_value=None,
    )


def _sort_keys(x: np.ndarray) -> list[np.ndarray]:
    """Real arrays that NumPy orders as `x` should be: NaN last, complex by real, then imaginary."""
    if x.dtype.kind == "c":
        return [x.real, x.imag]
    return [in_compute_dtype(x)]


def _order(keys: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """The stable ascending order by the first key, then the second, and so on."""
    parts = [part for key in keys for part in _sort_keys(key)]
    if len(parts) == 1:
        return np.argsort(parts[0], axis=axis, kind="stable")
    return np.lexsort(parts[::-1], axis=axis)


@primitive
class sort(Primitive):
    """All operands in the stable ascending order of the first `keys` operands along `axis`.

    NaN is last, -0. equals 0., complex numbers are ordered by their real, then imaginary parts.
    """

    multiple = True

    def type(self, *types: TensorType, axis: int, keys: int) -> tuple[TensorType, ...]:
        if not 1 <= keys <= len(types):
            raise ShapeError(f"sort got keys={keys} for {len(types)} operands.", "Use at least one.")
        refuse_keys(self.name, *types[:keys])
        check_axes(self.name, (axis,), types[0].ndim)
        if any(t.shape != types[0].shape for t in types):
            raise ShapeError(f"sort got operands {', '.join(map(repr, types))}.", "Their shapes must be equal.")
        return types

    def axis_map(self, *types: TensorType, axis: int, keys: int) -> AxisMap:
        return (axes_but(types[0].ndim, (axis,)),) * len(types)

    def reference(self, *arrays: np.ndarray, axis: int, keys: int) -> tuple[np.ndarray, ...]:
        order = _order(arrays[:keys], axis)
        if order.ndim == 1:
            return tuple(x.take(order) for x in arrays)
        return tuple(np.take_along_axis(x, order, axis) for x in arrays)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, keys: int
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        shape = type_of(primals[0]).shape
        dtype = INT32 if shape[axis] <= np.iinfo(np.int32).max else np.dtype(np.int64)
        numbers = iota(type=TensorType(shape, dtype), axis=axis)
        *outs, order = self.bind(*primals, numbers, axis=axis, keys=keys)
        moved = tuple(
            Zero(type_of(out)) if isinstance(t, Zero) else take_along(t, order, axis)
            for t, out in zip(tangents, outs, strict=True)
        )
        return tuple(outs), moved

    def transpose(self, cotangents: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        raise not_linear("sort")

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, axis: int, keys: int
    ) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        fronted = [to_front(x, d, size) for x, d in zip(inputs, dims, strict=True)]
        return self.bind(*fronted, axis=axis + 1, keys=keys), (0,) * len(fronted)

    def lower(self, k: Any, *values: Any, axis: int, keys: int) -> tuple[Any, ...]:
        parts = [part for v in values[:keys] for part in _lowered_keys(k, v)]
        if len(parts) == keys:
            return tuple(k.sort(values, axis, keys))
        return tuple(k.sort((*parts, *values), axis, len(parts)))[len(parts) :]

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(12, dtype=np.float64) * 1.7).reshape(3, 4)
        tied = np.array([[2, 1, 2, 1], [0, 0, 0, 0], [3, 2, 1, 0]], np.int32)
        return typed_samples(
            ANY,
            ([x], {"axis": 1, "keys": 1}),
            ([x], {"axis": 0, "keys": 1}),
            ([tied, x], {"axis": 1, "keys": 1}),
            ([tied, x, x * 2], {"axis": 1, "keys": 2}),
            ([x[:, :0]], {"axis": 1, "keys": 1}),
        )


def _lowered_keys(k: Any, v: Any) -> list[Any]:
    """The real and imaginary parts of a complex key; a real one unchanged."""
    if not is_complex(v.type.dtype):
        return [v]
    part = v.type.update(dtype=np.dtype(f"f{v.type.dtype.itemsize // 2}"))
    return [
        k.elementwise(lambda s, x: s.real(x), (v,), part),
        k.elementwise(lambda s, x: s.imag(x), (v,), part),
    ]


def _largest_by_sorting(builder: Any, x: Any, k: int) -> tuple[Any, Any]:
    """The k largest along the last axis of a lowered value, and their positions."""
    shape, axis = x.type.shape, len(x.type.shape) - 1
    size = shape[axis]
    numbers = builder.iota(TensorType(shape, INT32), axis)
    ordered, places = builder.sort((builder.reverse(x, (axis,)), numbers), axis, 1)

    def last(v: Any) -> Any:
        starts = (*(0,) * axis, size - k)
        return builder.reverse(builder.slice(v, starts, shape, (1,) * len(shape)), (axis,))

    taken = last(places)
    kept = taken.type
    positions = builder.elementwise(lambda s, place: s.sub(s.constant_like(place, size - 1), place), (taken,), kept)
    return last(ordered), positions


@primitive
class top_k(Primitive):
    """The k largest elements along `axis`, largest first, and their int32 positions.

    Equal elements keep their order; NaN counts as largest.
    """

    multiple = True

    def type(self, x: TensorType, *, k: int, axis: int) -> tuple[TensorType, TensorType]:
        check_axes(self.name, (axis,), x.ndim)
        refuse_keys(self.name, x)
        if not 0 <= k <= x.shape[axis]:
            raise ShapeError(
                f"top_k got k={k} for an axis of size {x.shape[axis]}.",
                "k must be between 0 and the size of the axis.",
            )
        if is_complex(x.dtype):
            raise DtypeError("top_k does not take complex numbers.", "Use sort.")
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return TensorType(shape, x.dtype, x.weak), TensorType(shape, INT32)

    def axis_map(self, x: TensorType, *, k: int, axis: int) -> AxisMap:
        return (axes_but(x.ndim, (axis,)),)

    def reference(self, x: np.ndarray, *, k: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
        size = x.shape[axis]
        # ascending order of the reversed axis, read backwards, keeps ties in order
        order = np.flip(_order([np.flip(x, axis)], axis), axis)
        positions = size - 1 - np.take(order, range(k), axis)
        return np.take_along_axis(x, positions, axis), positions.astype(INT32)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, k: int, axis: int
    ) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        values, positions = self.bind(*primals, k=k, axis=axis)
        moved: Any = Zero(type_of(values))
        if not isinstance(tangents[0], Zero):
            moved = take_along(tangents[0], positions, axis)
        return (values, positions), (moved, Zero(type_of(positions)))

    def transpose(self, cotangents: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        raise not_linear("top_k")

    def batch(
        self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, k: int, axis: int
    ) -> tuple[tuple[Any, Any], tuple[int, int]]:
        return self.bind(to_front(inputs[0], dims[0], size), k=k, axis=axis + 1), (0, 0)

    def lower(self, builder: Any, x: Any, *, k: int, axis: int) -> tuple[Any, Any]:
        shape = x.type.shape
        order = (*(a for a in range(len(shape)) if a != axis), axis)
        rows = builder.transpose(x, order)
        if are_few(x.type.dtype, k, shape[axis]):
            found = few_largest(builder, rows, k, _largest_by_sorting)
        else:
            found = _largest_by_sorting(builder, rows, k)
        back = tuple(order.index(a) for a in range(len(shape)))
        return builder.transpose(found[0], back), builder.transpose(found[1], back)

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(12, dtype=np.float64) * 1.7).reshape(3, 4)
        return typed_samples(
            ORDERED,
            ([x], {"k": 2, "axis": 1}),
            ([x], {"k": 3, "axis": 0}),
            ([np.array([1, 3, 3, 1, 3], np.int32)], {"k": 4, "axis": 0}),
            ([x], {"k": 0, "axis": 1}),
        )
