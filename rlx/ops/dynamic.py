"""Dynamic slices: one window of an array at starts that are known only when the program runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError
from rlx.ir.index_sets import Along, Elements, Reading, numbered
from rlx.ir.types import TensorType, is_integer
from rlx.ops.families import full_like, instantiate, move_axis, to_front
from rlx.ops.gather import gather
from rlx.ops.index_windows import (
    INT64,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    as_int64,
)
from rlx.ops.sample_dtypes import ANY, typed_samples
from rlx.ops.scatter import scatter, zero_cotangents
from rlx.ops.shape import AxisMap, Movement, axes_but, broadcast_in_dim, check_lengths, concatenate, reshape
from rlx.trace.primitive import Linear, Primitive, Sample, Zero, primitive, registry, type_of

__all__ = ["dynamic_slice", "dynamic_update_slice"]

Axes = tuple[int, ...]


def _check_window(name: str, x: TensorType, sizes: Axes, starts: Sequence[TensorType]) -> None:
    check_lengths(name, x.ndim, sizes=sizes, starts=starts)
    for t in starts:
        if t.shape or not is_integer(t.dtype):
            raise DtypeError(f"{name} got a start of type {t!r}.", "Starts are integer scalars.")
    if any(not 0 <= n <= d for n, d in zip(sizes, x.shape, strict=True)):
        raise ShapeError(
            f"{name} got a window of shape {sizes} in an array of shape {x.shape}.",
            "The window must fit into the array.",
        )


def _window(shape: Axes, sizes: Axes, starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
    """The window as slices, clamped to the array."""
    limits = (d - n for d, n in zip(shape, sizes, strict=True))
    clamped = [min(max(int(i), 0), limit) for i, limit in zip(starts, limits, strict=True)]
    return tuple(slice(i, i + n) for i, n in zip(clamped, sizes, strict=True))


def _lowered_starts(k: Any, shape: Axes, sizes: Axes, starts: Sequence[Any]) -> list[Any]:
    scalar = TensorType((), INT64)
    return [
        k.elementwise(lambda s, x, limit=d - n: s.clamp(0, as_int64(s, x, limit), limit), (start,), scalar)
        for start, d, n in zip(starts, shape, sizes, strict=True)
    ]


def _stacked_starts(size: int, starts: Sequence[Any], dims: Sequence[int | None]) -> Any:
    """Starts of every batch member as rows of one (size, ndim) array."""
    wanted = np.result_type(*[type_of(x).dtype for x in starts])
    dtype = wanted if is_integer(wanted) else INT64
    columns = []
    for start, dim in zip(starts, dims, strict=True):
        if type_of(start).dtype != dtype:
            start = registry["convert"](start, dtype=dtype, weak=False)
        if dim is None:
            columns.append(broadcast_in_dim(start, shape=(size, 1), dims=()))
        else:
            columns.append(reshape(start, shape=(size, 1)))
    return concatenate(*columns, axis=1)


@primitive
class dynamic_slice(Movement):
    """The window of `sizes` that begins at `starts`, clamped to the array."""

    def type(self, x: TensorType, *starts: TensorType, sizes: Axes) -> TensorType:
        _check_window(self.name, x, sizes, starts)
        return TensorType(tuple(sizes), x.dtype, x.weak)

    def axis_map(self, x: TensorType, *starts: TensorType, sizes: Axes) -> AxisMap:
        cut = [a for a, (n, size) in enumerate(zip(x.shape, sizes, strict=True)) if n != size]
        return axes_but(x.ndim, cut), *(() for _ in starts)

    def of_parts(self, shape: tuple[int, ...], /, **params: Any) -> dict[str, Any]:
        return {"sizes": shape}

    def reference(self, x: np.ndarray, *starts: np.ndarray, sizes: Axes) -> np.ndarray:
        return x[(*_window(x.shape, sizes, starts), ...)]

    def pull_back(self, ct: Any, x: Any, *starts: Any, sizes: Axes) -> tuple[Any, ...]:
        zeros = full_like(TensorType(x.type.shape, type_of(ct).dtype), 0)
        return (dynamic_update_slice(zeros, ct, *starts), *(None for _ in starts))

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, sizes: Axes) -> tuple[Any, int]:
        x, *starts = inputs
        if dims[0] is not None and all(d is None for d in dims[1:]):
            return self.bind(move_axis(x, dims[0], 0), 0, *starts, sizes=(size, *sizes)), 0
        indices = _stacked_starts(size, starts, dims[1:])
        axes = tuple(range(len(sizes)))
        numbers = GatherDimensionNumbers(tuple(a + 1 for a in axes), (), axes)
        if dims[0] is not None:
            x = move_axis(x, dims[0], 0)
            up = tuple(a + 1 for a in axes)
            numbers = GatherDimensionNumbers(up, (), up, (0,), (0,))
            sizes = (min(size, 1), *sizes)
        params = {"dimension_numbers": numbers, "slice_sizes": sizes}
        return gather(x, indices, mode="clip", fill_value=None, **params), 0

    def lower(self, k: Any, x: Any, *starts: Any, sizes: Axes) -> Any:
        return k.dynamic_slice(x, _lowered_starts(k, x.type.shape, sizes, starts), sizes)

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(12, dtype=np.float64)).reshape(3, 4)
        return typed_samples(
            ANY,
            ([x, np.int32(1), np.int32(2)], {"sizes": (2, 2)}),
            ([x, np.int32(-7), np.int64(9)], {"sizes": (1, 3)}),
            ([x, np.uint8(1), np.int8(0)], {"sizes": (0, 4)}),
            ([x[0, 0]], {"sizes": ()}),
        )


@primitive
class dynamic_update_slice(Primitive):
    """x with the window that begins at `starts` (clamped) replaced by `update`."""

    linear_groups = ((0, 1),)

    def type(self, x: TensorType, update: TensorType, *starts: TensorType) -> TensorType:
        if x.dtype != update.dtype:
            raise DtypeError(
                f"dynamic_update_slice got {x!r} and an update {update!r}.",
                "Convert the update with .astype(...).",
            )
        check_lengths(self.name, x.ndim, update_shape=update.shape)
        _check_window(self.name, x, update.shape, starts)
        return x

    def axis_map(self, x: TensorType, update: TensorType, *starts: TensorType) -> AxisMap:
        cut = [a for a, (n, size) in enumerate(zip(x.shape, update.shape, strict=True)) if n != size]
        return axes_but(x.ndim, cut), axes_but(x.ndim, cut), *(() for _ in starts)

    def reads(self, known: Any, x: TensorType, update: TensorType, *starts: TensorType) -> list[Reading | None]:
        """An element of one of them; of either if the starts are not known."""
        places = [known(number) for number in range(2, 2 + len(starts))]
        if any(place is None for place in places):
            written = Along(self.axis_map(x, update, *starts)[1], "the indices are not known")
            return [Along(tuple(range(x.ndim))), written, *[None] * len(starts)]
        kept = self.reference(numbered(x.shape), np.full(update.shape, -1), *places)
        taken = self.reference(np.full(x.shape, -1), numbered(update.shape), *places)
        return [Elements(lambda: kept[..., None]), Elements(lambda: taken[..., None]), *[None] * len(starts)]

    def reference(self, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        out = x.copy()
        out[(*_window(x.shape, update.shape, starts), ...)] = update
        return out

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        out = self.bind(*primals)
        if isinstance(tangents[0], Zero) and isinstance(tangents[1], Zero):
            return out, Zero(type_of(out))
        x, update = instantiate(tangents[0]), instantiate(tangents[1])
        return out, self.bind(x, update, *primals[2:])

    def transpose(self, cotangent: Any, x: Any, update: Any, *starts: Any) -> tuple[Any, ...]:
        if isinstance(cotangent, Zero):
            return zero_cotangents(x, update, *starts)
        ct_x = ct_update = None
        window = type_of(update).update(dtype=type_of(cotangent).dtype)
        if isinstance(x, Linear):
            ct_x = self.bind(cotangent, full_like(window, 0), *starts)
        if isinstance(update, Linear):
            ct_update = dynamic_slice(cotangent, *starts, sizes=window.shape)
        return (ct_x, ct_update, *(None for _ in starts))

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
        x, update, *starts = inputs
        x, update = to_front(x, dims[0], size), to_front(update, dims[1], size)
        if all(d is None for d in dims[2:]):
            return self.bind(x, update, 0, *starts), 0
        up = tuple(range(1, type_of(x).ndim))
        numbers = ScatterDimensionNumbers(up, (), up, (0,), (0,))
        flags = {"unique_indices": True, "indices_are_sorted": True}
        indices = _stacked_starts(size, starts, dims[2:])
        return scatter(x, indices, update, dimension_numbers=numbers, mode="clip", **flags), 0

    def write_in_lanes(self, lanes: Any, x: Any, update: Any, *starts: Any) -> Any:
        """Lanes that do not write rewrite the old window."""
        sizes = type_of(update).shape
        axes = tuple(range(type_of(lanes).ndim))
        if axes and sizes[0] != type_of(x).shape[0]:
            return None
        mask = broadcast_in_dim(lanes, shape=sizes, dims=axes)
        kept = dynamic_slice(x, *starts, sizes=sizes)
        return self.bind(x, registry["select"](mask, update, kept), *starts)

    def lower(self, k: Any, x: Any, update: Any, *starts: Any) -> Any:
        lowered = _lowered_starts(k, x.type.shape, update.type.shape, starts)
        return k.dynamic_update_slice(x, update, lowered)

    def samples(self) -> Iterator[Sample]:
        x = np.sin(np.arange(12, dtype=np.float64)).reshape(3, 4)
        y = np.cos(np.arange(4, dtype=np.float64)).reshape(2, 2)
        return typed_samples(
            ANY,
            ([x, y, np.int32(1), np.int32(1)], {}),
            ([x, y, np.int32(-7), np.int64(9)], {}),
            ([x, y[:0, :1], np.int32(0), np.int32(0)], {}),
            ([x[0, 0], y[0, 0]], {}),
        )
