"""Gather: slices of an operand at computed starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.extended import key_dtype_of
from rlx.ir.index_sets import Reading
from rlx.ir.types import TensorType, dtype_kind, is_inexact
from rlx.ops.families import full_like, move_axis
from rlx.ops.index_windows import (
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    WindowMap,
    as_int64,
    fits,
    gather_windows,
)
from rlx.ops.sample_dtypes import ANY, typed_samples
from rlx.ops.shape import AxisMap, Movement
from rlx.trace.primitive import Sample, Zero, primitive, registry, type_of

__all__ = ["default_fill", "gather"]

Axes = tuple[int, ...]
MODES = ("clip", "fill", "promise_in_bounds")


def default_fill(dtype: np.dtype) -> Any:
    """The value for an index out of bounds: NaN, the smallest signed, largest unsigned."""
    if is_inexact(dtype):
        return float("nan")
    if dtype.kind == "b":
        return True
    if key_dtype_of(dtype):
        return np.iinfo(np.uint32).max  # in each word
    info = ml_dtypes.iinfo(dtype)
    return int(info.min if dtype_kind(dtype) == "i" else info.max)


def up(axes: Axes) -> Axes:
    """Axis numbers after a new first axis."""
    return tuple(a + 1 for a in axes)


@primitive
class gather(Movement):
    """result[batch, offset] = operand[start(batch) + offset].

    mode: "clip" clamps slices to the operand; "fill" replaces a whole slice out of bounds by fill_value (None: NaN, or
    the extreme integer); "promise_in_bounds" also clamps slices, but the elements found there have no part in the
    derivative.
    """

    def type(
        self,
        operand: TensorType,
        indices: TensorType,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Axes,
        mode: str,
        fill_value: Any,
    ) -> TensorType:
        if mode not in MODES:
            raise UnsupportedError(f"gather has no mode {mode!r}.", f"Use one of {MODES}.")
        windows = gather_windows(self.name, operand, indices, dimension_numbers, slice_sizes)
        return TensorType(windows.windows_shape, operand.dtype, operand.weak)

    def axis_map(
        self,
        operand: TensorType,
        indices: TensorType,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Axes,
        **_: Any,
    ) -> AxisMap:
        """Axes of whole windows, and axes of the indices."""
        return gather_windows(self.name, operand, indices, dimension_numbers, slice_sizes).axis_maps()

    def of_parts(
        self,
        shape: tuple[int, ...],
        /,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Axes,
        **params: Any,
    ) -> dict[str, Any]:
        gone = {*dimension_numbers.collapsed_slice_dims, *dimension_numbers.operand_batching_dims}
        windows = (shape[place] for place in dimension_numbers.offset_dims)
        sizes = tuple(size if axis in gone else next(windows) for axis, size in enumerate(slice_sizes))
        return {"dimension_numbers": dimension_numbers, "slice_sizes": sizes, **params}

    def reference(
        self,
        operand: np.ndarray,
        indices: np.ndarray,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Axes,
        mode: str,
        fill_value: Any,
    ) -> np.ndarray:
        windows = self._windows(type_of(operand), type_of(indices), dimension_numbers, slice_sizes)
        starts, valid = windows.starts(indices)
        if 0 in windows.windows_shape:
            return np.empty(windows.windows_shape, operand.dtype)
        rows = windows.moved(operand)[windows.coordinates(starts)]
        if mode == "fill" and not valid.all():
            rows[~valid] = default_fill(operand.dtype) if fill_value is None else fill_value
        return windows.from_rows(rows)

    def reads(self, known: Any, *types: TensorType, **params: Any) -> list[Reading | None]:
        """As of a movement; a window out of bounds that is filled reads nothing."""
        return super().reads(known, *types, **{**params, "fill_value": -1})

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = self.bind(*primals, **params)
        if isinstance(tangents[0], Zero):
            return out, Zero(type_of(out))
        return out, self.bind(tangents[0], primals[1], **{**params, "fill_value": 0})

    def pull_back(
        self,
        ct: Any,
        operand: Any,
        indices: Any,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Axes,
        mode: str,
        fill_value: Any,
    ) -> tuple[Any, None]:
        add_windows = registry["scatter_add"]
        ct_operand = add_windows(
            full_like(TensorType(operand.type.shape, type_of(ct).dtype), 0),
            indices,
            ct,
            dimension_numbers=ScatterDimensionNumbers(*dimension_numbers.encode_key()),
            mode="drop" if mode == "fill" else mode,
            unique_indices=False,
            indices_are_sorted=False,
        )
        return ct_operand, None

    def batch(
        self,
        size: int,
        inputs: Sequence[Any],
        dims: Sequence[int | None],
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Axes,
        **params: Any,
    ) -> tuple[Any, int]:
        operand, indices = (x if d is None else move_axis(x, d, 0) for x, d in zip(inputs, dims, strict=True))
        numbers = batched_numbers(dimension_numbers, dims[0] is not None, dims[1] is not None)
        if dims[0] is not None:
            whole = size if dims[1] is None else min(size, 1)
            slice_sizes = (whole, *slice_sizes)
        params.update(dimension_numbers=numbers, slice_sizes=slice_sizes)
        return self.bind(operand, indices, **params), 0

    def lower(
        self,
        k: Any,
        operand: Any,
        indices: Any,
        *,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Axes,
        mode: str,
        fill_value: Any,
    ) -> Any:
        windows = self._windows(operand.type, indices.type, dimension_numbers, slice_sizes)
        shape = windows.windows_shape
        out = k.gather(operand, windows.index(indices), shape)
        if mode != "fill" or not windows.started:
            return out
        fill = default_fill(operand.type.dtype) if fill_value is None else fill_value
        inside = k.broadcast(lowered_validity(k, windows, indices), shape, windows.batch_places)
        return k.elementwise(lambda s, ok, x: s.select(ok, x, s.constant_like(x, fill)), (inside, out), out.type)

    def _windows(
        self, operand: TensorType, indices: TensorType, numbers: GatherDimensionNumbers, slice_sizes: Axes
    ) -> WindowMap:
        return gather_windows(self.name, operand, indices, numbers, slice_sizes)

    def samples(self) -> Iterator[Sample]:
        rows = GatherDimensionNumbers((1,), (0,), (0,))
        boxes = GatherDimensionNumbers((0, 2), (), (1, 0))
        paired = GatherDimensionNumbers((1,), (), (1,), (0,), (0,))
        x = np.sin(np.arange(20, dtype=np.float64)).reshape(4, 5)
        row_indices = np.array([[2], [0], [9], [-1], [2]], np.int32)

        def case(indices: Any, numbers: Any, sizes: Axes, mode: str) -> Any:
            params = {"dimension_numbers": numbers, "slice_sizes": sizes}
            return [x, indices], {**params, "mode": mode, "fill_value": None}

        return typed_samples(
            ANY,
            case(row_indices, rows, (1, 5), "clip"),
            case(row_indices[:2], rows, (1, 5), "promise_in_bounds"),
            case(np.array([[1, 2], [3, 3], [0, 1]], np.int64), boxes, (2, 3), "clip"),
            case(np.array([[1], [3], [0], [2]], np.int32), paired, (1, 2), "clip"),
            case(np.zeros((0, 1), np.int32), rows, (1, 5), "clip"),
        )


def batched_numbers(
    numbers: GatherDimensionNumbers, operand_batched: bool, indices_batched: bool
) -> GatherDimensionNumbers:
    """The dimension numbers and windows for a leading batch axis of operand, indices or both."""
    offset, collapsed, started, operand_batching, indices_batching = numbers.encode_key()
    offset = up(offset)
    if operand_batched:
        collapsed, started, operand_batching = up(collapsed), up(started), up(operand_batching)
    if indices_batched:
        indices_batching = up(indices_batching)
    if operand_batched and indices_batched:
        operand_batching, indices_batching = (0, *operand_batching), (0, *indices_batching)
    elif operand_batched:
        offset = (0, *offset)
    return GatherDimensionNumbers(offset, collapsed, started, operand_batching, indices_batching)


def lowered_validity(k: Any, windows: WindowMap, indices: Any) -> Any:
    """A lowered bool array over the batch axes: whether the window fits into the operand."""
    shape, ndim = indices.type.shape, indices.type.ndim
    columns = []
    for j in range(shape[-1]):
        column = k.slice(indices, (*(0,) * (ndim - 1), j), (*shape[:-1], j + 1), (1,) * ndim)
        columns.append(k.reshape(column, shape[:-1]))

    def inside(s: Any, *starts: Any) -> Any:
        wide = [as_int64(s, x, limit) for x, limit in zip(starts, windows.limits, strict=True)]
        return fits(s, wide, windows.limits)

    return k.elementwise(inside, columns, TensorType(shape[:-1], np.dtype(bool)))
