"""Rolling, repeating, inserting, deleting, resizing."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray, is_array, is_array_or_numpy
from rlx.errors import DtypeError, ShapeError
from rlx.numpy.creation import count_along
from rlx.numpy.dtypes import unwrapped
from rlx.numpy.index_dtypes import holding, index_dtype
from rlx.numpy.joining import concatenate
from rlx.numpy.lookups import nonzero, take
from rlx.numpy.manipulation import moveaxis, ravel, reshape
from rlx.numpy.placement import arrays_and_shardings, check_placement
from rlx.numpy.promotion import (
    beside_arrays,
    broadcast_array,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    canonical_size,
    convert_to,
    fill,
    known_numpy,
    operand,
    scalar_array,
)
from rlx.numpy.rounding import remainder
from rlx.numpy.searching import searchsorted
from rlx.ops import comparison, sorting
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import add, select, subtract
from rlx.ops.cumulative import cumsum
from rlx.trace.builder import is_traced
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["delete", "insert", "repeat", "resize", "roll", "trim_zeros"]


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding: Any = None
) -> Array:
    """Each element repeated.

    Args: a: array; repeats: int, or ints along the axis; axis: int (None: all elements in a row);
    total_repeat_length: size of the result along the axis, needed if repeats is traced.
    Returns: an array. Raises: ConcretizationTypeError for traced repeats without a length.

    >>> import rlx.numpy as jnp
    >>> jnp.repeat(jnp.array([1, 2]), 2)
    Array([1, 1, 2, 2], dtype=int32)
    """
    check_placement(None, out_sharding)
    x = as_array(operand(a, "repeat"))
    if axis is None:
        x, axis = ravel(x), 0
    number = canonical_axis(axis, x.ndim, "repeat")
    counts = as_array(np.asarray(repeats) if isinstance(repeats, (list, tuple)) else repeats)
    if counts.ndim > 1:
        raise ShapeError(f"repeat got repeats of shape {counts.shape}.", "Pass an int or a 1-d array.")
    hidden = is_traced(counts) and counts.known() is None
    if total_repeat_length is not None:
        total_repeat_length = canonical_size(total_repeat_length, "repeat")
    if total_repeat_length is None or not hidden:
        values = known_numpy(counts, "repeat", "Pass total_repeat_length=, the size of the result.")
        if values.size and values.dtype.kind not in "iub":
            raise DtypeError(f"repeat got repeats of dtype {values.dtype.name}.", "Pass integers: .astype(int).")
        return _repeat_known(x, values, number, total_repeat_length)
    size = x.shape[number]
    counts = broadcast_array(ravel(counts), (size,), "repeat")
    ends = cumsum(counts, axis=0)
    position = shapes.iota(type=ends.type.update(shape=(total_repeat_length,), weak=False), axis=0)
    return take(x, searchsorted(ends, position, side="right"), axis=number, mode="clip")


def _repeat_known(x: Any, counts: np.ndarray, axis: int, total: int | None) -> Any:
    size = x.shape[axis]
    if counts.size and counts.min() < 0:
        raise ShapeError(f"repeat got the negative number of repeats {counts.min()}.", "Pass numbers >= 0.")
    if counts.size == 1 and total is None:
        count = int(counts.reshape(()))
        grown = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
        dims = tuple(i for i in range(len(grown)) if i != axis + 1)
        spread = shapes.broadcast_in_dim(x, shape=grown, dims=dims)
        return shapes.reshape(spread, shape=(*x.shape[:axis], size * count, *x.shape[axis + 1 :]))
    if counts.size not in (1, size):
        raise ShapeError(
            f"repeat got {counts.size} repeats for an axis of size {size}.",
            "Give one for each element of the axis, or one for all; without axis= all elements are in a row.",
        )
    index = np.repeat(np.arange(size), np.broadcast_to(counts.reshape(-1), (size,)))
    if total is not None:
        last = index[-1] if index.size else 0
        index = np.concatenate([index[:total], np.full(max(total - index.size, 0), last)])
    return take(x, ConcreteArray(index.astype(index_dtype(size))), axis=axis, mode="clip")


@replayed
def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """Elements shifted along axes; elements shifted out at one end reappear at the other.

    Args: a: array; shift: int or ints, may be traced; axis: int or ints (None: all elements in a row).
    Returns: an array of the same shape. Raises: ShapeError if the numbers of shifts and axes differ.

    >>> import rlx.numpy as jnp
    >>> jnp.roll(jnp.arange(4), 1)
    Array([3, 0, 1, 2], dtype=int32)
    """
    x = as_array(operand(a, "roll"))
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = [axis] if not isinstance(axis, (tuple, list)) else list(axis)
    amounts = _amounts(shift)
    if len(amounts) == 1:
        amounts = amounts * len(axes)
    elif len(axes) == 1:
        axes = axes * len(amounts)
    if len(axes) != len(amounts):
        raise ShapeError(f"roll got {len(amounts)} shifts for {len(axes)} axes.", "Give one shift for each axis.")
    for amount, number in zip(amounts, axes, strict=True):
        x = _roll_one(x, amount, canonical_axis(number, x.ndim, "roll"))
    return x


def _amounts(shift: Any) -> list[Any]:
    """Shifts one by one: ints, or traced integers."""
    shift = unwrapped(shift)
    if is_array_or_numpy(shift):
        if is_traced(shift):
            return [shift] if shift.ndim == 0 else [shift[i] for i in range(shift.shape[0])]
        return np.ravel(shift).tolist()
    return list(shift) if isinstance(shift, (tuple, list)) else [shift]


def _roll_one(x: Any, amount: Any, axis: int) -> Any:
    size = x.shape[axis]
    if size == 0:
        return x
    if not is_array(amount):
        distance = operator.index(amount) % size
        if distance == 0:
            return x
        if getattr(x, "_sharding", None) is not None:
            return arrays_and_shardings().rolled(x, distance, axis)
        return shapes.rotated(x, distance, axis)
    index = count_along((size,), 0, index_dtype(2 * size))
    distance = remainder(holding(amount, size), size)
    moved = remainder(subtract(index, convert_to(distance, index.dtype)), size)
    return take(x, moved, axis=axis, mode="clip")


def resize(a: Any, new_shape: Any) -> Array:
    """An array of another size, filled with repetitions of all elements.

    Args: a: array; new_shape: int or ints. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.resize(jnp.array([1, 2]), 3)
    Array([1, 2, 1], dtype=int32)
    """
    sizes = canonical_shape(new_shape, "resize")
    x = ravel(a)
    total = math.prod(sizes)
    if x.size == 0 or total == 0:
        return fill(sizes, 0, x.dtype)
    copies = -(-total // x.size)
    repeated = shapes.broadcast_in_dim(x, shape=(copies, x.size), dims=(1,))
    return reshape(shapes.slice_along(reshape(repeated, (-1,)), 0, total, 0), sizes)


def _static_index(obj: Any, size: int, name: str) -> np.ndarray:
    """The axis numbers of an index object."""
    if isinstance(obj, slice):
        return np.arange(size)[obj]
    obj = unwrapped(obj)
    values = known_numpy(obj, name, "Indices are static here: use x.at[...] or rlx.numpy.where instead.")
    if values.dtype.kind == "b":
        if values.shape != (size,):
            raise ShapeError(f"{name} got a mask of shape {values.shape} for size {size}.", "")
        return np.flatnonzero(values)
    return values.astype(np.int64)


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Array:
    """Slices removed.

    Args: arr: array; obj: int, ints, slice or mask, known while tracing; axis: int (None: all
    elements in a row). Returns: an array. Raises: IndexError for an index out of bounds.

    >>> import rlx.numpy as jnp
    >>> jnp.delete(jnp.array([1, 2, 3]), 1)
    Array([1, 3], dtype=int32)
    """
    x = as_array(operand(arr, "delete"))
    if axis is None:
        x, axis = ravel(x), 0
    number = canonical_axis(axis, x.ndim, "delete")
    size = x.shape[number]
    if is_traced(obj) and obj.known() is None and (assume_unique_indices or obj.size == 1):
        return _without(x, ravel(obj), number)
    gone = np.atleast_1d(_static_index(obj, size, "delete"))
    if gone.size and (gone.min() < -size or gone.max() >= size):
        raise IndexError(f"delete: an index is out of bounds for axis {number} with size {size}")
    if gone.size == 1:
        here = int(gone.reshape(())) % size
        parts = shapes.slice_along(x, 0, here, number), shapes.slice_along(x, here + 1, size, number)
        return shapes.concatenate(*parts, axis=number)
    keep = np.setdiff1d(np.arange(size), gone % max(size, 1))
    return take(x, ConcreteArray(keep.astype(index_dtype(size))), axis=number, mode="clip")


def _without(x: Any, index: Any, axis: int) -> Any:
    """x without slices at different traced positions."""
    size = x.shape[axis]
    kept = fill((size,), True, np.dtype(bool)).at[index].set(False)
    (positions,) = nonzero(kept, size=size - index.size)
    return take(x, positions, axis=axis, mode="clip")


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """Values inserted before given positions.

    Args: arr: array; obj: int, ints or slice; values: broadcast to the inserted shape; axis: int (None:
    all elements in a row). Returns: an array of arr's dtype.
    Raises: IndexError for an index out of bounds.

    >>> import rlx.numpy as jnp
    >>> jnp.insert(jnp.array([1, 3]), 1, 2)
    Array([1, 2, 3], dtype=int32)
    """
    x = as_array(operand(arr, "insert"))
    if axis is None:
        x, axis = ravel(x), 0
    number = canonical_axis(axis, x.ndim, "insert")
    size = x.shape[number]
    traced = is_traced(obj) and obj.known() is None
    places = obj if traced else _static_index(obj, size, "insert")
    single = places.ndim == 0
    value = np.asarray(values) if isinstance(values, (list, tuple)) else beside_arrays(x, values)[1]
    value = convert_to(as_array(value), x.dtype, x.weak_type)
    where = places.reshape(-1)
    if traced:
        return _with_inserted(x, where, value, number, single)
    if where.size and (where.min() < -size or where.max() > size):
        raise IndexError(f"insert: an index is out of bounds for axis {number} with size {size}")
    where = np.where(where < 0, where + size, where)
    value = reshape(value, (1,) * max(x.ndim - value.ndim, 0) + value.shape) if value.ndim < x.ndim else value
    if single:  # NumPy inserts the first axis of the values along `axis`
        value = moveaxis(value, 0, number)
    count = value.shape[number] if where.size == 1 else where.size
    where = np.repeat(where, count) if where.size == 1 else where
    shape = tuple(count if i == number else n for i, n in enumerate(x.shape))
    value = broadcast_array(value, shape, "insert")
    order = np.argsort(where, kind="stable")
    source = np.insert(np.arange(size), where[order], size + order)
    source = ConcreteArray(source.astype(index_dtype(source.size)))
    return take(concatenate([x, value], number), source, axis=number, mode="clip")


def _with_inserted(x: Any, where: Any, value: Any, axis: int, single: bool) -> Any:
    """As insert, before traced positions."""
    size = x.shape[axis]
    value = reshape(value, (1,) * max(x.ndim - value.ndim, 0) + value.shape)
    value = moveaxis(value, 0, axis) if single else value
    count = value.shape[axis] if where.size == 1 else where.size
    value = broadcast_array(value, tuple(count if i == axis else n for i, n in enumerate(x.shape)), "insert")
    index = index_dtype(size + count)
    length, one = scalar_array(size, index, True), scalar_array(1, index, True)
    where = convert_to(where, index)
    where = select(comparison.less(where, 0), add(where, length), where)
    numbers = count_along((count,), 0, index)
    ordered, order = sorting.sort(broadcast_array(where, (count,)), numbers, axis=0, keys=1)
    # at each new element's position, its number; -1 at the positions of old elements
    source = fill((size + count,), -1, index).at[add(ordered, numbers)].set(add(order, length))
    old = comparison.less(source, 0)
    source = select(old, subtract(cumsum(convert_to(old, index), axis=0), one), source)
    return take(concatenate([x, value], axis), source, axis=axis, mode="clip")


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Array:
    """An array without the slices of zeros at the ends of its axes.

    Args: filt: array, known while tracing; trim: "f" for front, "b" for back; axis: int or ints
    (None: all). Returns: an array. Raises: ConcretizationTypeError for a traced array.

    >>> import rlx.numpy as jnp
    >>> jnp.trim_zeros(jnp.array([0, 1, 0]))
    Array([1], dtype=int32)
    """
    x = as_array(np.asarray(filt) if isinstance(filt, (list, tuple)) else operand(filt))
    places = np.nonzero(known_numpy(x, "trim_zeros", "The size of the result depends on values."))
    front, back = "f" in trim.lower(), "b" in trim.lower()
    for number in canonical_axes(axis, x.ndim, "trim_zeros"):
        here = places[number]
        start = here.min() if here.size and front else 0
        stop = here.max() + 1 if here.size and back else x.shape[number] if here.size else 0
        x = shapes.slice_along(x, operator.index(start), operator.index(stop), number)
    return x
