"""Windows of an operand at computed starts: the index arithmetic that gather and scatter share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError
from rlx.forks import cached_property
from rlx.ir.types import TensorType, is_integer
from rlx.ops.shape import AxisMap, check_axes, check_lengths

__all__ = [
    "GatherDimensionNumbers",
    "ScatterDimensionNumbers",
    "WindowMap",
    "gather_windows",
    "scatter_windows",
]

Axes = tuple[int, ...]
INT64 = np.dtype(np.int64)
_ALL = slice(None)


@dataclass(frozen=True)
class GatherDimensionNumbers:
    """The correspondence of the axes of operand, indices and result, with the names of XLA's Gather.

    offset_dims: axes of the result that run inside a slice. collapsed_slice_dims: operand axes of
    slice size 1 that the result lacks. start_index_map: the operand axis of each component of an
    index. operand_batching_dims and start_indices_batching_dims run together.
    The last axis of the indices contains the components.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> table = jnp.array([[1, 2], [3, 4], [5, 6]])
    >>> lax.gather(table, jnp.array([[2], [0]]), numbers, slice_sizes=(1, 2)).tolist()
    [[5, 6], [1, 2]]
    """

    offset_dims: Axes
    collapsed_slice_dims: Axes
    start_index_map: Axes
    operand_batching_dims: Axes = ()
    start_indices_batching_dims: Axes = ()

    def encode_key(self) -> tuple[Axes, ...]:
        """The fields, for structural hashes."""
        return astuple(self)


@dataclass(frozen=True)
class ScatterDimensionNumbers:
    """The correspondence of the axes of operand, indices and updates, with the names of XLA's Scatter.

    update_window_dims: axes of the updates that run inside a window. inserted_window_dims: operand axes of
    window size 1 that the updates lack. scatter_dims_to_operand_dims: the operand axis of each component
    of an index. operand_batching_dims and scatter_indices_batching_dims run together.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_add(jnp.zeros(3), jnp.array([[2], [2]]), jnp.array([1.0, 5.0]), numbers).tolist()
    [0.0, 0.0, 6.0]
    """

    update_window_dims: Axes
    inserted_window_dims: Axes
    scatter_dims_to_operand_dims: Axes
    operand_batching_dims: Axes = ()
    scatter_indices_batching_dims: Axes = ()

    def encode_key(self) -> tuple[Axes, ...]:
        """The fields, for structural hashes."""
        return astuple(self)

    def gather(self) -> GatherDimensionNumbers:
        """The gather that reads the windows that the scatter writes."""
        return GatherDimensionNumbers(*astuple(self))


@dataclass(frozen=True)
class WindowMap:
    """Windows of `sizes` in an operand, one for each position of the batch axes.

    `started` contains the operand axis of each component of an index. An array of windows has its
    batch axes at `batch_places` and its window axes, which belong to the operand axes
    `window_axes`, at `window_places`.
    """

    operand_shape: Axes
    batch_shape: Axes
    sizes: Axes
    started: Axes
    operand_batching: Axes
    indices_batching: Axes
    window_axes: Axes
    window_places: Axes
    batch_places: Axes

    @cached_property
    def limits(self) -> Axes:
        """The largest start of a window, for each component of an index."""
        return tuple(self.operand_shape[a] - self.sizes[a] for a in self.started)

    @cached_property
    def single(self) -> bool:
        """Whether there is one window, or one for each position of the operand's batch axes, so that none overlap."""
        return all(n == 1 or i in self.indices_batching for i, n in enumerate(self.batch_shape))

    @cached_property
    def windows_shape(self) -> Axes:
        """The shape of the array of windows."""
        shape = [0] * (len(self.window_places) + len(self.batch_places))
        for place, axis in zip(self.window_places, self.window_axes, strict=True):
            shape[place] = self.sizes[axis]
        for place, size in zip(self.batch_places, self.batch_shape, strict=True):
            shape[place] = size
        return tuple(shape)

    @cached_property
    def leading_order(self) -> Axes:
        """The permutation of the array of windows that moves its batch axes to the front."""
        return self.batch_places + self.window_places

    def axis_maps(self) -> AxisMap:
        """Of operand and indices, for an axis_map: the corresponding axes of the array of windows."""
        of_operand = {a: p for a, p in zip(self.window_axes, self.window_places, strict=True) if a in self._whole}
        pairs = zip(self.operand_batching, self.indices_batching, strict=True)
        of_operand.update({axis: self.batch_places[i] for axis, i in pairs})
        return tuple(map(of_operand.get, range(len(self.operand_shape)))), (*self.batch_places, None)

    def batch_leading(self) -> WindowMap:
        """The map for an array of windows that was permuted so."""
        batches = len(self.batch_places)
        return replace(
            self,
            batch_places=tuple(range(batches)),
            window_places=tuple(range(batches, batches + len(self.window_places))),
        )

    # ---------------------------------------------------------------- NumPy
    def starts(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Starts clamped to the valid range, as rows of int64, and which of them were valid."""
        limits = np.array(self.limits, INT64)
        rows = int(np.prod(self.batch_shape, dtype=INT64))
        given = indices.reshape(rows, len(limits))
        if given.dtype == np.uint64:
            given = np.minimum(given, np.uint64(np.iinfo(np.int64).max))
        given = given.astype(INT64, copy=False)
        starts = np.minimum(np.maximum(given, 0), limits)
        return starts, (starts == given).all(axis=1)

    def moved(self, operand: np.ndarray) -> np.ndarray:
        """A view of the operand: a dummy axis, the axes that need coordinates, the whole ones."""
        return operand.transpose(self._pointed + self._whole)[None]

    def coordinates(self, starts: np.ndarray, chosen: np.ndarray | slice = _ALL) -> tuple[np.ndarray, ...]:
        """Coordinates into the leading axes of `moved`, broadcasting over (rows, *partial axes)."""
        partial = self._partial
        start_of = {axis: starts[chosen, j] for j, axis in enumerate(self.started)}
        if self.operand_batching:
            places = np.indices(self.batch_shape).reshape(len(self.batch_shape), len(starts))
            pairs = zip(self.operand_batching, self.indices_batching, strict=True)
            start_of.update({axis: places[i, chosen] for axis, i in pairs})
        column_shape = (len(starts[chosen]),) + (1,) * len(partial)
        coordinates: list[Any] = [np.zeros(column_shape, INT64)]
        for axis in self._pointed:
            column = start_of[axis].reshape(column_shape) if axis in start_of else np.intp(0)
            if axis in partial:
                shape = [1] * (1 + len(partial))
                shape[1 + partial.index(axis)] = self.sizes[axis]
                column = column + np.arange(self.sizes[axis]).reshape(shape)
            coordinates.append(column)
        return tuple(coordinates)

    def to_rows(self, windows: np.ndarray) -> np.ndarray:
        """An array of windows as (rows, *partial axes, *whole axes)."""
        order = windows.transpose(self._row_order)
        return order.reshape((-1, *order.shape[len(self.batch_shape) :]))

    def from_rows(self, rows: np.ndarray) -> np.ndarray:
        """The inverse of `to_rows`."""
        return rows.reshape(self.batch_shape + rows.shape[1:]).transpose(np.argsort(self._row_order))

    @cached_property
    def _whole(self) -> Axes:
        return tuple(a for a in self.window_axes if self.sizes[a] == self.operand_shape[a])

    @cached_property
    def _partial(self) -> Axes:
        return tuple(a for a in self.window_axes if self.sizes[a] != self.operand_shape[a])

    @cached_property
    def _pointed(self) -> Axes:
        whole = set(self._whole)
        return tuple(a for a in range(len(self.operand_shape)) if a not in whole)

    @cached_property
    def _row_order(self) -> Axes:
        place = dict(zip(self.window_axes, self.window_places, strict=True))
        return self.batch_places + tuple(place[a] for a in self._partial + self._whole)

    # ---------------------------------------------------------------- kernels
    def scalar_starts(self, s: Any, indices: Any, batch: Sequence[Any]) -> list[Any]:
        """The components of an index as int64 scalars."""
        return [
            as_int64(s, s.load(indices, (*batch, s.constant(j, INT64))), limit) for j, limit in enumerate(self.limits)
        ]

    def index(self, indices: Any) -> Callable[..., list[Any]]:
        """index(s, *positions in the windows) -> the position in the operand, always in bounds."""

        def index(s: Any, *positions: Any) -> list[Any]:
            batch = [positions[p] for p in self.batch_places]
            starts = self.scalar_starts(s, indices, batch)
            where: dict[int, Any] = {}
            for axis, start, limit in zip(self.started, starts, self.limits, strict=True):
                where[axis] = s.clamp(0, start, limit)
            for axis, i in zip(self.operand_batching, self.indices_batching, strict=True):
                where[axis] = batch[i]
            for axis, place in zip(self.window_axes, self.window_places, strict=True):
                offset = positions[place]
                where[axis] = s.add(where[axis], offset) if axis in where else offset
            return [where.get(a, s.constant(0, INT64)) for a in range(len(self.operand_shape))]

        return index

    def guard(self, indices: Any) -> Callable[..., Any]:
        """guard(s, *positions in the windows) -> whether the window fits into the operand."""

        def guard(s: Any, *positions: Any) -> Any:
            starts = self.scalar_starts(s, indices, [positions[p] for p in self.batch_places])
            return fits(s, starts, self.limits)

        return guard


def as_int64(s: Any, start: Any, limit: int) -> Any:
    """An index as int64; one that is too large for that becomes limit + 1."""
    if start.dtype == np.uint64:
        start = s.min(start, s.constant(limit + 1, np.uint64))
    return s.cast(start, INT64)


def fits(s: Any, starts: Sequence[Any], limits: Sequence[int]) -> Any:
    """Whether every start is in 0..limit."""
    inside = s.constant(True, np.dtype(bool))
    for start, limit in zip(starts, limits, strict=True):
        inside = s.and_(inside, s.and_(s.ge(start, 0), s.le(start, limit)))
    return inside


# ------------------------------------------------------------- creating and checking maps
@lru_cache(maxsize=1024)
def gather_windows(
    name: str, operand: TensorType, indices: TensorType, numbers: GatherDimensionNumbers, sizes: Axes
) -> WindowMap:
    """The windows of a gather; ShapeError or DtypeError if the parts do not fit."""
    check_lengths(name, operand.ndim, slice_sizes=sizes)
    check_axes(name, numbers.offset_dims, max(indices.ndim - 1, 0) + len(numbers.offset_dims))
    _check_order(name, "offset_dims", numbers.offset_dims)
    _check_order(name, "collapsed_slice_dims", numbers.collapsed_slice_dims)
    dropped = numbers.collapsed_slice_dims + numbers.operand_batching_dims
    check_axes(name, dropped, operand.ndim)
    fitting = all(0 <= n <= d for n, d in zip(sizes, operand.shape, strict=True))
    collapsed = all(sizes[a] == 1 for a in numbers.collapsed_slice_dims)
    if not fitting or not collapsed or any(sizes[a] > 1 for a in dropped):
        raise ShapeError(
            f"{name} got slice sizes {sizes} for an operand {operand!r}.",
            "A slice must fit into the operand; collapsed and batching axes have slice size 1.",
        )
    return _window_map(name, operand, indices, numbers, tuple(sizes))


@lru_cache(maxsize=1024)
def scatter_windows(
    name: str, operand: TensorType, indices: TensorType, updates: TensorType, numbers: ScatterDimensionNumbers
) -> WindowMap:
    """The windows of a scatter; ShapeError or DtypeError if the parts do not fit."""
    if operand.dtype != updates.dtype:
        raise DtypeError(
            f"{name} got an operand {operand!r} and updates {updates!r}.",
            "Convert the updates to the operand's dtype with .astype(...).",
        )
    check_axes(name, numbers.update_window_dims, updates.ndim)
    _check_order(name, "update_window_dims", numbers.update_window_dims)
    _check_order(name, "inserted_window_dims", numbers.inserted_window_dims)
    dropped = numbers.inserted_window_dims + numbers.operand_batching_dims
    check_axes(name, dropped, operand.ndim)
    kept = [a for a in range(operand.ndim) if a not in dropped]
    check_lengths(name, len(kept), update_window_dims=numbers.update_window_dims)
    sizes = [1] * operand.ndim
    for axis in numbers.operand_batching_dims:
        sizes[axis] = min(1, operand.shape[axis])
    for axis, place in zip(kept, numbers.update_window_dims, strict=True):
        sizes[axis] = updates.shape[place]
    if any(n > d for n, d in zip(sizes, operand.shape, strict=True) if n > 1):
        raise ShapeError(
            f"{name} got updates {updates!r} whose windows exceed the operand {operand!r}.",
            "A window must fit into the operand.",
        )
    window = _window_map(name, operand, indices, numbers.gather(), tuple(sizes))
    if window.windows_shape != updates.shape:
        raise ShapeError(
            f"{name} got updates {updates!r} for indices {indices!r}.",
            f"With these dimension numbers the updates need shape {window.windows_shape}.",
        )
    return window


def _check_order(name: str, what: str, axes: Axes) -> None:
    if list(axes) != sorted(axes):
        raise ShapeError(f"{name} got {what}={axes}.", "These axes must be in ascending order.")


def _window_map(
    name: str, operand: TensorType, indices: TensorType, numbers: GatherDimensionNumbers, sizes: Axes
) -> WindowMap:
    rank = max(indices.ndim - 1, 0) + len(numbers.offset_dims)
    dropped = numbers.collapsed_slice_dims + numbers.operand_batching_dims
    window = WindowMap(
        operand.shape,
        indices.shape[:-1],
        sizes,
        numbers.start_index_map,
        numbers.operand_batching_dims,
        numbers.start_indices_batching_dims,
        tuple(a for a in range(operand.ndim) if a not in dropped),
        tuple(numbers.offset_dims),
        tuple(i for i in range(rank) if i not in numbers.offset_dims),
    )
    _check(name, window, operand, indices)
    return window


def _check(name: str, window: WindowMap, operand: TensorType, indices: TensorType) -> None:
    if not is_integer(indices.dtype):
        raise DtypeError(f"{name} got indices of dtype {indices.dtype.name}.", "Indices must be integers.")
    components = indices.shape[-1] if indices.ndim else 0
    check_axes(name, window.started + window.operand_batching, operand.ndim)
    check_axes(name, window.indices_batching, len(window.batch_shape))
    if indices.ndim == 0 or len(window.started) != components:
        raise ShapeError(
            f"{name} got indices {indices!r} whose components index axes {window.started}.",
            "The last axis of the indices needs one entry for each indexed axis.",
        )
    check_lengths(name, len(window.window_axes), window_dims=window.window_places)
    check_lengths(name, len(window.operand_batching), batching_dims=window.indices_batching)
    pairs = list(zip(window.operand_batching, window.indices_batching, strict=True))
    if any(operand.shape[a] != window.batch_shape[i] for a, i in pairs):
        raise ShapeError(
            f"{name} got {operand!r} and indices {indices!r} with batching axes {pairs}.",
            "Batching axes must have equal sizes in both.",
        )
