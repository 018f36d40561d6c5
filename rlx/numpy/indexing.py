"""x[index]: the meaning of an index, and reading with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.array import ConcreteArray, is_array, is_plain
from rlx.errors import (
    DtypeError,
    IndexBoundsError,
    InputTypeError,
    NonConcreteBooleanIndexError,
    ShapeError,
    TracerSliceError,
)
from rlx.ir.size_functions import slice_indices, span, whole_number
from rlx.ir.types import broadcast_sizes, dtype_kind
from rlx.numpy.creation import array
from rlx.numpy.index_dtypes import holding, index_dtype
from rlx.numpy.promotion import convert_to, fill, scalar_array
from rlx.ops import arithmetic, comparison
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.ops.dynamic import dynamic_slice
from rlx.ops.gather import gather
from rlx.ops.index_windows import GatherDimensionNumbers
from rlx.trace.builder import is_traced, state
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed_in_traces
from rlx.trees import tree

__all__ = ["Cut", "Plan", "Slice", "ds", "expand_index", "getitem", "plan_index", "read_plan", "takes_axis"]


@dataclass(frozen=True)
class Cut:
    """A static slice of an axis: `count` elements start, start + step, ..."""

    start: int
    step: int
    count: int
    size: int

    @property
    def full(self) -> bool:
        """Whether the slice is the whole axis, in order."""
        return self.step == 1 and self.count == self.size

    @property
    def bounds(self) -> tuple[int, int, int]:
        """(start, limit, stride) of the same elements in increasing order."""
        if self.count == 0:
            return 0, 0, 1
        last = self.start + (self.count - 1) * self.step
        low, high = min(self.start, last), max(self.start, last)
        return low, high + 1, abs(self.step)


@dataclass(frozen=True)
class Window:
    """`count` elements start, start + step, ... of an axis, from a start known at run time only."""

    start: Any  # in bounds
    step: int
    count: int

    @property
    def positions(self) -> Any:
        """The positions of the elements, as an index array."""
        steps = ConcreteArray(self.step * np.arange(self.count, dtype=self.start.dtype))
        return arithmetic.add(shapes.broadcast_in_dim(self.start, shape=(self.count,), dims=()), steps)


@dataclass(frozen=True)
class Slice:
    """`size` elements from `start` on, with step `stride`, as an index; see `ds`. A tree node if `start` is traced."""

    start: Any
    size: Any
    stride: int = 1


def _slice_parts(x: Slice) -> tuple[tuple[Any, ...], Any]:
    static = isinstance(x.start, int)
    return (() if static else (x.start,)), (x.start if static else None, x.size, x.stride)


tree.register_node(
    Slice, _slice_parts, lambda held, start: Slice(held[0] if held[0] is not None else start[0], held[1], held[2])
)


def ds(start: Any, size: Any = None, stride: int | None = None) -> Any:
    """An index for `size` elements from `start` on, which may be traced: x[ds(start, size)].

    The start is moved so that all elements are inside, as by lax.dynamic_slice; a negative one counts from the end.

    Args:
      start: an integer, or an array of one. ds(None) is `:`, ds(n) is `:n`.
      size: the number of elements: an integer.
      stride: the distance between elements, 1 by default.

    Raises: InputTypeError for a size or stride that is not an integer; ShapeError (when used) for more elements than
    the axis has.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.jit(lambda x, i: x[rlx.ds(i, 2)])(jnp.arange(10), 4)
    Array([4, 5], dtype=int32)
    """
    if start is None and size is None:
        return slice(None, None, stride)
    start, size = (0, start) if size is None else (0 if start is None else start, size)
    stride = 1 if stride is None else stride
    for what, value in (("size", size), ("stride", stride)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise InputTypeError(
                f"ds got the {what} {value!r:.60}.", "It must be an integer: result sizes must be known while tracing."
            )
    return Slice(int(start) if isinstance(start, np.integer) else start, int(size), int(stride))


# ------------------------------------------------------------------ reading an index
def _classify(item: Any) -> Any:
    """One entry: None, Ellipsis, slice, int, bool, or an integer or bool array."""
    if isinstance(item, (bool, np.bool_)):
        return as_array(bool(item))
    if item is None or item is Ellipsis or isinstance(item, (slice, int, Slice)):
        return item
    if isinstance(item, np.integer):
        return int(item)
    if isinstance(item, (list, tuple)):
        item = array(item) if len(item) else np.zeros(0, np.int32)
    if isinstance(item, str):
        raise InputTypeError(
            f"An array was indexed with the string {item!r}.",
            "Indices are integers, slices and masks. If this should be a dict, look at the order of the arguments:"
            " fori_loop calls body_fun(i, value), scan calls f(carry, x), odeint calls func(y, t).",
        )
    positions: Any = as_array(item, "an index")
    if dtype_kind(positions.dtype) not in "biu":
        raise DtypeError(
            f"An index has dtype {positions.dtype.name}; indices are integers, slices or bool masks.",
            "Convert it with .astype(int).",
        )
    if positions.ndim == 0 and not is_array(item) and positions.dtype.kind != "b":
        return int(positions.numpy())
    return positions


def _mask_positions(mask: Any) -> list[Any]:
    """A bool mask as index arrays, one for each of its axes."""
    value = mask.known() if is_traced(mask) else mask
    if value is None:
        raise NonConcreteBooleanIndexError(
            f"A traced bool mask {mask.type!r} is used as an index: the result's size would depend on its values.",
            "Use rlx.numpy.where(mask, x, other), x.at[...] with where, or rlx.numpy.nonzero(mask, size=...).",
        )
    return [ConcreteArray(np.asarray(p)) for p in np.nonzero(np.atleast_1d(value.numpy()))]


def expand_index(shape: tuple[int, ...], index: Any, strict: bool = True, inside: bool = True) -> list[Any]:
    """The index as a list with one entry per axis of x (Cut, int, array), None for new axes, GAP for "..." of none.

    strict: ints must be in bounds, and 0-d arrays are clamped. Otherwise an index out of bounds stays an
    array, which the mode of a gather or scatter handles. inside: a Slice is moved inside; otherwise a Slice that does
    not fit is outside as a whole.
    """
    entries = [_classify(i) for i in (index if isinstance(index, tuple) else (index,))]
    if sum(i is Ellipsis for i in entries) > 1:
        raise IndexBoundsError("an index can have only a single ellipsis ('...')", "Use : for the other axes.")
    used = sum(_axes_of(i) for i in entries)
    if used > len(shape):
        raise IndexBoundsError(
            f"too many indices for array: array is {len(shape)}-dimensional, but {used} were indexed",
            f"The array has shape {shape}; None adds axes.",
        )
    if not any(i is Ellipsis for i in entries):
        entries.append(Ellipsis)
    result: list[Any] = []
    axis = 0
    for entry in entries:
        if entry is Ellipsis:
            rest = len(shape) - used
            result += [Cut(0, 1, n, n) for n in shape[axis : axis + rest]] or [GAP]
            axis += rest
        elif entry is None:
            result.append(None)
        elif is_array(entry) and entry.dtype.kind == "b":
            result += _mask_entries(entry, shape, axis)
            axis += entry.ndim
        else:
            result.append(_entry(entry, shape[axis], axis, strict, inside))
            axis += 1
    batched = any((is_array(e) and e.ndim) or isinstance(e, Mask0) for e in result)
    return result if batched else [e for e in result if e is not GAP]


def _axes_of(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    if is_array(entry) and entry.dtype.kind == "b":
        return entry.ndim
    return 1


def _mask_entries(mask: Any, shape: tuple[int, ...], axis: int) -> list[Any]:
    own = shape[axis : axis + mask.ndim]
    if any(n not in (size, 0) for n, size in zip(mask.shape, own, strict=True)):
        raise IndexBoundsError(
            f"boolean index of shape {mask.shape} does not match indexed axes {own}",
            "A mask must have the sizes of the axes that it indexes.",
        )
    positions = _mask_positions(mask)
    if mask.ndim == 0:  # x[True] is x[None]; x[False] has a new axis of size 0
        return [Mask0(positions[0].size)]
    return positions


@dataclass(frozen=True)
class Mask0:
    """A 0-d bool as index: a new axis of size 1 (True) or 0 (False) that goes with index arrays."""

    size: int


class Gap:
    """An ellipsis that stands for no axis: index arrays on both sides of it count as separated, as in NumPy."""


GAP = Gap()


def takes_axis(entry: Any) -> bool:
    """Whether an entry of an expanded index indexes an axis."""
    return not (entry is None or isinstance(entry, (Mask0, Gap)))


def _window(entry: Slice, size: int, axis: int, inside: bool) -> Cut | Window:
    """A Slice of an axis, moved inside, or outside if it does not fit."""
    span = (entry.size - 1) * entry.stride + 1 if entry.size else 0
    if span > size:
        raise ShapeError(
            f"{entry} takes {entry.size} elements of axis {axis}, which has {size}.",
            "A slice cannot have more elements than its axis.",
        )
    if isinstance(entry.start, int):
        start = entry.start + size if entry.start < 0 else entry.start
        if inside or 0 <= start <= size - span:
            return Cut(min(max(start, 0), size - span), entry.stride, entry.size, size)
        return Window(scalar_array(size, index_dtype(size), False), entry.stride, entry.size)
    start = as_array(entry.start, "the start of ds")
    if start.ndim or start.dtype.kind not in "iu":
        raise DtypeError(f"ds got a start {start.type!r}.", "It must be one integer.")
    start = wrapped(convert_to(start, np.dtype("i8")) if start.dtype.itemsize == 8 else holding(start, size), size)
    low, high = (scalar_array(n, start.dtype, True) for n in (0, size - span))
    moved = arithmetic.clamp(low, start, high)
    if not inside:
        moved = select(comparison.equal(moved, start), start, scalar_array(size, start.dtype, False))
    return Window(moved, entry.stride, entry.size)


def _entry(entry: Any, size: int, axis: int, strict: bool, inside: bool) -> Any:
    if isinstance(entry, Slice):
        return _window(entry, size, axis, inside)
    if isinstance(entry, slice):
        bounds = slice(*[_bound(b) for b in (entry.start, entry.stop, entry.step)])
        start, stop, step = slice_indices(bounds, size)
        return Cut(start, step, span(start, stop, step), size)
    if isinstance(entry, int):
        if not -size <= entry < size:
            if not strict:
                return ConcreteArray(np.asarray(entry, np.int64))
            raise IndexBoundsError(
                f"index {entry} is out of bounds for axis {axis} with size {size}",
                "Use x.at[index].get(mode=...) for indices out of bounds.",
            )
        return entry % size
    if strict and size and is_plain(entry) and entry.ndim == 0:
        number = int(entry.numpy())
        return min(max(number + size if number < 0 else number, 0), size - 1)
    return entry


def _bound(value: Any) -> int | None:
    if is_traced(value) and value.known() is None:
        raise TracerSliceError(
            f"A slice has the traced bound {value.type!r}, so that the size of its result is not known.",
            "Slices have static bounds: use rlx.lax.dynamic_slice(x, (start,), (size,)) for a moving window of one"
            " size, or a mask with rlx.numpy.where.",
        )
    return None if value is None else whole_number(value)


# ------------------------------------------------------------------ plans
@dataclass
class Plan:
    """An index as windows at computed starts.

    columns: index arrays for the axes in `indexed`, each of a shape that broadcasts to `batch`.
    windows: (axis, start, size, reversed) of axes read as contiguous pieces.
    layout: for each axis of the result, in order: ("batch", i) or ("window", axis).
    newaxes: positions in the final result of axes of size 1.
    """

    indexed: list[int]
    columns: list[Any]
    batch: tuple[int, ...]
    windows: list[tuple[int, int, int, bool]]
    layout: list[tuple[str, int]]
    newaxes: list[int]
    static: bool

    def result_shape(self) -> tuple[int, ...]:
        """Shape of the elements that are read, without the new axes."""
        sizes = {axis: size for axis, _, size, _ in self.windows}
        return tuple(self.batch[i] if kind == "batch" else sizes[i] for kind, i in self.layout)

    def final_shape(self) -> tuple[int, ...]:
        """Shape of x[index]."""
        sizes = list(self.result_shape())
        for position in self.newaxes:
            sizes.insert(position, 1)
        return tuple(sizes)

    def flipped(self) -> tuple[int, ...]:
        """Axes of the result that run backwards."""
        backwards = {axis for axis, _, _, reverse in self.windows if reverse}
        return tuple(i for i, (kind, axis) in enumerate(self.layout) if kind == "window" and axis in backwards)


def _is_advanced(entry: Any) -> bool:
    return (is_array(entry) or isinstance(entry, (int, Mask0))) and not isinstance(entry, Cut)


def plan_index(shape: tuple[int, ...], entries: list[Any], wrap_negative: bool = True) -> Plan:
    """The plan of an expanded index, by NumPy's rules for the position of indexed axes."""
    arrays = [e for e in entries if (is_array(e) and e.ndim) or isinstance(e, Mask0)]
    advanced = [i for i, e in enumerate(entries) if _is_advanced(e)]
    common = _common_shape([_shape_of(entries[i]) for i in advanced])
    together = advanced == list(range(advanced[0], advanced[-1] + 1)) if advanced else True
    first = advanced[0] if advanced and together else -1 if advanced else None
    plan = Plan([], [], (), [], [], [], True)
    raw: list[tuple[int, Any, int | None]] = []  # (axis, index, own batch dimension or None)
    batch: list[int] = []
    batch_of_common: list[int] = []

    def place_common() -> None:
        for size in common:
            batch_of_common.append(len(batch))
            plan.layout.append(("batch", len(batch)))
            batch.append(size)

    if first == -1:
        place_common()
    axis = 0
    position_of_new: list[tuple[int, int]] = []
    for i, entry in enumerate(entries):
        if i == first:
            place_common()
        if entry is None:
            position_of_new.append((len(plan.layout), len(position_of_new)))
            continue
        if not takes_axis(entry):
            continue
        if isinstance(entry, Window):
            plan.layout.append(("batch", len(batch)))
            raw.append((axis, entry.positions, len(batch)))
            batch.append(entry.count)
            plan.static = False
        elif isinstance(entry, Cut):
            if entry.full or abs(entry.step) == 1 or entry.count <= 1:
                plan.layout.append(("window", axis))
                plan.windows.append((axis, entry.bounds[0], entry.count, entry.step < 0 and entry.count > 1))
            else:
                plan.layout.append(("batch", len(batch)))
                steps = entry.start + entry.step * np.arange(entry.count)
                raw.append((axis, steps.astype(index_dtype(shape[axis])), len(batch)))
                batch.append(entry.count)
        else:
            raw.append((axis, entry, None))
            plan.static = plan.static and isinstance(entry, int)
        axis += 1
    plan.batch = tuple(batch)
    plan.static = plan.static and not batch and not arrays
    plan.newaxes = [position + before for position, before in position_of_new]
    for number, entry, own in raw:
        plan.indexed.append(number)
        dims = [own] if own is not None else batch_of_common[len(batch_of_common) - len(_shape_of(entry)) :]
        plan.columns.append(_column(entry, shape[number], dims, len(batch), wrap_negative))
    return plan


def _shape_of(entry: Any) -> tuple[int, ...]:
    if isinstance(entry, int):
        return ()
    return (entry.size,) if isinstance(entry, Mask0) else entry.shape


def _common_shape(sizes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return broadcast_sizes(*sizes)
    except ValueError:
        raise IndexBoundsError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {sizes}",
            "Index arrays are broadcast against one another: use rlx.numpy.ix_ for their outer product.",
        ) from None


def _column(entry: Any, size: int, dims: list[int], rank: int, wrap_negative: bool) -> Any:
    """An index array aligned to the batch axes, with its negative entries optionally wrapped."""
    if isinstance(entry, int):
        column: Any = ConcreteArray(np.full((1,) * rank, entry, index_dtype(size)))
        return column
    column = as_array(entry)
    if column.dtype.itemsize < 4 or column.dtype == np.uint32:
        column = convert_to(column, np.dtype("i4") if column.dtype.itemsize < 4 else np.dtype("i8"))
    if dtype_kind(column.dtype) == "i" and wrap_negative:
        column = wrapped(column, size)
    aligned = [1] * rank
    for dim, n in zip(dims, column.shape, strict=True):
        aligned[dim] = n
    return column if column.shape == tuple(aligned) else shapes.reshape(column, shape=tuple(aligned))


def wrapped(array: Any, size: int) -> Any:
    """Signed indices with negative ones counted from the end, in a dtype that holds the axis's size."""
    array = holding(array, size)
    if is_plain(array) and state.builder is None:
        values = array.numpy()
        return (
            array
            if not values.size or values.min() >= 0
            else ConcreteArray(np.where(values < 0, values + values.dtype.type(size), values))
        )
    zero, length = scalar_array(0, array.dtype, True), scalar_array(size, array.dtype, True)
    return select(comparison.less(array, zero), arithmetic.add(array, length), array)


def stack_columns(columns: list[Any], batch: tuple[int, ...]) -> Any:
    """Index columns broadcast to the batch axes and stacked along a new last axis."""
    dtype = np.result_type(*[c.dtype for c in columns])
    dtype = dtype if dtype_kind(dtype) in "iu" else np.dtype("i8")
    parts = []
    for column in columns:
        column = convert_to(column, dtype)
        kept = tuple(i for i, n in enumerate(column.shape) if n == batch[i])
        if len(kept) != len(batch):
            column = shapes.reshape(column, shape=tuple(batch[i] for i in kept))
            column = shapes.broadcast_in_dim(column, shape=(*batch, 1), dims=kept)
        else:
            column = shapes.reshape(column, shape=(*batch, 1))
        parts.append(column)
    return parts[0] if len(parts) == 1 else shapes.concatenate(*parts, axis=len(batch))


# ------------------------------------------------------------------ reading
def getitem(x: Any, index: Any) -> Any:
    """x[index]: static indices are views, a traced scalar a dynamic slice, arrays a gather."""
    plain = type(x) is ConcreteArray and (x._type is None or x._type.plain) and state.builder is None
    if plain and _is_static(index):
        values = x._numpy
        return ConcreteArray(_view(x.numpy() if values is None else values, index), x._weak)
    if plain and is_plain(index):
        numbers = index.numpy()
        if dtype_kind(numbers.dtype) in "iu" and numbers.ndim and x.shape and x.shape[0]:
            return ConcreteArray(_take_rows(x.numpy(), numbers), x._weak)
    return _read_index(x, index)


@replayed_in_traces
def _read_index(x: Any, index: Any) -> Any:
    return read(x, expand_index(x.shape, index))


_BOUNDS = (
    "An axis of size n has the indices -n to n - 1, and takes one index. Indices in arrays are not checked:"
    " see x.at[index].get(mode=...)."
)


def _view(values: np.ndarray, index: Any) -> np.ndarray:
    """values[index] for a static index."""
    try:
        if isinstance(index, tuple):
            # the trailing ellipsis keeps 0-d results arrays
            return values[index if Ellipsis in index else (*index, ...)]
        return values[index, ...] if index is not Ellipsis else values
    except IndexError as error:
        raise IndexBoundsError(f"{error}: the array has shape {values.shape}.", _BOUNDS) from None


def _take_rows(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """values[numbers] of concrete arrays, as the gather reads: from the end if negative, then clamped."""
    size = values.shape[0]
    if dtype_kind(numbers.dtype) == "i" and numbers.size and numbers.min() < 0:
        wide = numbers.astype(np.int64, copy=False)
        numbers = np.where(wide < 0, wide + size, wide)
    if numbers.dtype == np.uint64:
        numbers = np.minimum(numbers, np.uint64(size - 1)).astype(np.int64)
    return values.take(numbers, 0, mode="clip")


def _is_static(index: Any) -> bool:
    kind = type(index)
    if kind is int or index is None or index is Ellipsis:
        return True
    if kind is slice:
        return all(b is None or type(b) is int for b in (index.start, index.stop, index.step))
    return kind is tuple and all(type(i) is not tuple and _is_static(i) for i in index)


def read(
    x: Any,
    entries: list[Any],
    mode: str = "promise_in_bounds",
    fill_value: Any = None,
    default: bool = True,
    wrap_negative: bool = True,
) -> Any:
    """The elements at an expanded index."""
    arrays = any((is_array(e) and e.ndim) or isinstance(e, Mask0) for e in entries)
    x, entries, backwards = _cut(x, entries, drop_integers=not arrays)
    if not any(_is_advanced(e) or isinstance(e, Window) for e in entries):
        x = shapes.reverse(x, axes=backwards) if backwards else x
        return _with_new_axes(x, [i for i, e in enumerate(entries) if e is None])
    x = shapes.reverse(x, axes=backwards) if backwards else x
    if not arrays and default and not any(isinstance(e, Window) and e.step != 1 for e in entries):
        return _read_scalars(x, entries)
    plan = plan_index(x.shape, entries, wrap_negative)
    return read_plan(x, plan, mode, fill_value)


def _cut(x: Any, entries: list[Any], drop_integers: bool) -> tuple[Any, list[Any], tuple[int, ...]]:
    """Apply the static slices, and the integers if there are no index arrays. Returns also the rest of the index."""
    starts, limits, strides, backwards = [], [], [], []
    kept: list[int] = []
    rest: list[Any] = []
    axis = 0
    for entry in entries:
        if not takes_axis(entry):
            rest.append(entry)
            continue
        size = x.shape[axis]
        bounds = (0, size, 1)
        if isinstance(entry, Cut):
            bounds = entry.bounds
            if entry.step < 0 and entry.count > 1:
                backwards.append(axis)
            rest.append(Cut(0, 1, entry.count, entry.count))
        elif isinstance(entry, int) and drop_integers:
            bounds = (entry, entry + 1, 1)
        else:
            rest.append(entry)
        if not (isinstance(entry, int) and drop_integers):
            kept.append(axis)
        for values, bound in zip((starts, limits, strides), bounds, strict=True):
            values.append(bound)
        axis += 1
    if tuple(starts) != (0,) * x.ndim or tuple(limits) != x.shape or any(s != 1 for s in strides):
        x = shapes.slice(x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))
    if len(kept) != x.ndim:
        x = shapes.reshape(x, shape=tuple(x.shape[i] for i in kept))
    return x, rest, tuple(kept.index(i) for i in backwards)


def _with_new_axes(x: Any, positions: list[int]) -> Any:
    return shapes.expand_dims(x, positions) if positions else x


def _read_scalars(x: Any, entries: list[Any]) -> Any:
    """Traced scalars as the only advanced entries: one dynamic slice."""
    axes = [e for e in entries if e is not None]
    starts: list[Any] = []
    sizes: list[int] = []
    for size, entry in zip(x.shape, axes, strict=True):
        if isinstance(entry, Cut):
            starts.append(scalar_array(0, np.dtype("i4"), False))
            sizes.append(size)
            continue
        if isinstance(entry, Window):
            starts.append(entry.start)
            sizes.append(entry.count)
            continue
        if size == 0:
            raise IndexBoundsError("index is out of bounds for an axis with size 0", "It has no elements to read.")
        array = as_array(entry)
        starts.append(wrapped(array, size) if dtype_kind(array.dtype) == "i" else _wide_start(array))
        sizes.append(1)
    x = dynamic_slice(x, *starts, sizes=tuple(sizes))
    kept = [i for i, e in enumerate(axes) if isinstance(e, (Cut, Window))]
    x = shapes.reshape(x, shape=tuple(x.shape[i] for i in kept))
    ranges = [e for e in entries if e is None or isinstance(e, (Cut, Window))]
    positions = [i for i, e in enumerate(ranges) if e is None]
    return _with_new_axes(x, positions)


def _wide_start(array: Any) -> Any:
    """An unsigned start."""
    return array if array.dtype == np.uint64 else convert_to(array, np.dtype("i8"))


def read_plan(x: Any, plan: Plan, mode: str = "promise_in_bounds", fill_value: Any = None) -> Any:
    """The elements of a plan, by one gather."""
    if any(x.shape[axis] == 0 for axis in plan.indexed):
        if 0 not in plan.result_shape():
            raise IndexBoundsError(
                f"index is out of bounds for an axis of size 0: the array has shape {x.shape}",
                "It has no elements to read.",
            )
        return fill(plan.final_shape(), 0, x.dtype, x.weak_type)
    if not plan.indexed and not plan.batch:
        plan_columns: Any = ConcreteArray(np.zeros((0,), np.int32))
    elif not plan.indexed:
        plan_columns = ConcreteArray(np.zeros((*plan.batch, 0), np.int32))
    else:
        plan_columns = stack_columns(plan.columns, plan.batch)
    sizes = [1] * x.ndim
    for axis, _, size, _ in plan.windows:
        sizes[axis] = size
    numbers = GatherDimensionNumbers(
        tuple(i for i, (kind, _) in enumerate(plan.layout) if kind == "window"),
        tuple(plan.indexed),
        tuple(plan.indexed),
    )
    out = gather(x, plan_columns, dimension_numbers=numbers, slice_sizes=tuple(sizes), mode=mode, fill_value=fill_value)
    return _with_new_axes(out, plan.newaxes)
