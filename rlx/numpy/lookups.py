"""Looking up by index: take, take_along_axis, nonzero, compress."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.array import Array, is_array, wrap
from rlx.config import config
from rlx.errors import DtypeError, IndexBoundsError, ShapeError, UnsupportedError, immutable
from rlx.ir.types import broadcast_sizes, dtype_kind
from rlx.numpy.elementwise import truth
from rlx.numpy.index_dtypes import holding, index_dtype, position_dtype
from rlx.numpy.indexing import Cut, read, wrapped
from rlx.numpy.manipulation import ravel, reshape
from rlx.numpy.placement import placed, refuse_out
from rlx.numpy.promotion import (
    beside_arrays,
    broadcast_array,
    canonical_axis,
    canonical_size,
    convert_to,
    fill,
    known_numpy,
    operand,
    scalar_array,
)
from rlx.numpy.rounding import remainder
from rlx.numpy.updates import convert_update
from rlx.ops import arithmetic, comparison
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.ops.cumulative import cumsum
from rlx.ops.families import refuse_keys
from rlx.ops.gather import gather
from rlx.ops.index_windows import GatherDimensionNumbers, ScatterDimensionNumbers
from rlx.ops.reduction import reduce_sum
from rlx.ops.scatter import scatter
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = [
    "argwhere",
    "compress",
    "extract",
    "flatnonzero",
    "nonzero",
    "place",
    "put",
    "put_along_axis",
    "take",
    "take_along_axis",
]


def _integer_indices(name: str, indices: Any) -> Any:
    if isinstance(indices, (list, tuple)):
        indices = np.asarray(indices)
    array = as_array(indices, "indices")
    if dtype_kind(array.dtype) not in "iu":
        raise DtypeError(f"{name} got indices of dtype {array.dtype.name}.", "Convert them with .astype(int).")
    return array


def _within(index: Any, size: int, mode: str | None) -> tuple[Any, str]:
    """Indices prepared for an out-of-bounds mode, and the gather's mode."""
    if mode == "clip":
        index = holding(index, size)
        low, high = [scalar_array(n, index.dtype, True) for n in (0, max(size - 1, 0))]
        return arithmetic.minimum(arithmetic.maximum(index, low), high), "clip"
    if mode == "wrap":
        return remainder(holding(index, size), size), "clip"
    if mode in (None, "fill", "drop"):
        return index, "fill"
    if mode == "promise_in_bounds":
        return index, "promise_in_bounds"
    if mode == "raise":
        raise UnsupportedError('rlx.numpy has no mode "raise".', 'Use "fill", "clip", "wrap" or "promise_in_bounds".')
    raise UnsupportedError(f"There is no mode {mode!r}.", 'Use "fill", "clip" or "wrap".')


@replayed
def take(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: Any = None,
    unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None,
) -> Array:  # fmt: skip
    """Elements (or slices along an axis) by number.

    Args: a: array; indices: integers, negative ones count from the end; axis: int (None: all
    elements in a row); mode: for indices out of bounds, "fill" (NaN, or the extreme integer, or
    fill_value), "clip" or "wrap".
    Returns: an array: indices' shape in place of the axis. Raises: DtypeError for other indices.

    >>> import rlx.numpy as jnp
    >>> jnp.take(jnp.array([10, 20, 30]), jnp.array([2, 0]))
    Array([30, 10], dtype=int32)
    """
    refuse_out("take", out)
    x = as_array(operand(a, "take"))
    index = _integer_indices("take", indices)
    if axis is None:
        x, number = ravel(x), 0
    else:
        number = canonical_axis(axis, x.ndim, "take")
    size = x.shape[number]
    mode = getattr(mode, "name", mode)
    index, mode = _within(index, size, mode.lower() if isinstance(mode, str) else mode)
    if size == 0 and index.size:
        if mode != "fill" or fill_value is None:
            raise IndexBoundsError("take cannot pick elements from an axis of size 0.", "Pass fill_value=.")
        return fill((*x.shape[:number], *index.shape, *x.shape[number + 1 :]), fill_value, x.dtype)
    entries: list[Any] = [Cut(0, 1, n, n) for n in x.shape]
    entries[number] = index
    fill_with = fill_value.item() if is_array(fill_value) else fill_value
    return read(x, entries, mode, fill_with, default=mode == "clip")


def _along(
    name: str, arr: Any, indices: Any, axis: int | None, mode: Any, wrap_negative: bool = True
) -> tuple[Any, Any, int, str]:
    x = as_array(operand(arr, name))
    index = _integer_indices(name, indices)
    if axis is None:
        x, axis = ravel(x), 0
        if index.ndim != 1:
            index = ravel(index)
    number = canonical_axis(axis, x.ndim, name)
    if index.ndim != x.ndim:
        raise ShapeError(
            f"{name} got indices of shape {index.shape} for an array of shape {x.shape}.",
            "Both need the same number of axes.",
        )
    mode = getattr(mode, "name", mode)
    if dtype_kind(index.dtype) == "i" and wrap_negative:
        index = wrapped(index, x.shape[number])
    index, mode = _within(index, x.shape[number], mode.lower() if isinstance(mode, str) else mode)
    return x, index, number, mode


def _matched(x: Any, index: Any, axis: int) -> tuple[Any, Any]:
    """Both broadcast against one another in all axes but one."""
    one = (1,)
    shape = broadcast_sizes(
        x.shape[:axis] + one + x.shape[axis + 1 :], index.shape[:axis] + one + index.shape[axis + 1 :]
    )

    def full(v: Any) -> Any:
        return broadcast_array(v, shape[:axis] + (v.shape[axis],) + shape[axis + 1 :], "take_along_axis")

    return full(x), full(index)


@replayed
def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: Any = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """Elements by their number along an axis, separately at each position of the others.

    Args: arr: array; indices: integers of the same rank, other axes broadcast; axis; mode: for
    indices out of bounds, "fill", "clip", "wrap" or "one_hot" (fill with 0); wrap_negative_indices: False
    takes negative ones as outside. Returns: an array of the indices' shape.
    Raises: ShapeError for another rank.

    >>> import rlx.numpy as jnp
    >>> jnp.take_along_axis(jnp.array([[10, 20], [30, 40]]), jnp.array([[1], [0]]), axis=1)
    Array([[20],
           [30]], dtype=int32)
    """
    if mode == "one_hot":  # JAX's name for reading 0 outside
        mode, fill_value = "fill", 0
    x, index, number, mode = _along("take_along_axis", arr, indices, axis, mode, wrap_negative_indices is not False)
    x, index = _matched(x, index, number)
    others = tuple(i for i in range(x.ndim) if i != number)
    if 0 in index.shape:
        return fill(index.shape, 0, x.dtype)
    return gather(
        x,
        shapes.reshape(index, shape=(*index.shape, 1)),
        dimension_numbers=GatherDimensionNumbers((), (number,), (number,), others, others),
        slice_sizes=(1,) * x.ndim,
        mode=mode,
        fill_value=fill_value,
    )


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: Any = None
) -> Array:
    """An array with elements replaced, named as in `take_along_axis`.

    Args: arr: array; indices: integers of the same rank; values: broadcast to the indices; axis;
    inplace: must be False. Returns: an array. Raises: ImmutableArrayError for inplace=True.

    >>> import rlx.numpy as jnp
    >>> jnp.put_along_axis(jnp.zeros((1, 2)), jnp.array([[1]]), 5.0, axis=1, inplace=False)
    Array([[0., 5.]], dtype=float32)
    """
    if inplace:
        raise immutable("put_along_axis")
    shape = as_array(operand(arr, "put_along_axis")).shape
    x, index, number, mode = _along("put_along_axis", arr, indices, axis, mode)
    index = broadcast_array(index, tuple(n if i == number else x.shape[i] for i, n in enumerate(index.shape)))
    given = broadcast_array(convert_update(values, x), index.shape, "put_along_axis")
    others = tuple(i for i in range(x.ndim) if i != number)
    result = scatter(
        x,
        shapes.reshape(index, shape=(*index.shape, 1)),
        given,
        dimension_numbers=ScatterDimensionNumbers((), (number,), (number,), others, others),
        mode="drop" if mode == "fill" else mode,
        unique_indices=False,
        indices_are_sorted=False,
    )
    return reshape(result, shape)


# ------------------------------------------------------------------ by truth
_SIZE = "Pass size=, the maximum number of results, or use rlx.numpy.where with three arguments."


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """Where elements are nonzero: one index array for each axis.

    Args: a: array; size: length of the results (needed if a is traced); fill_value: the padding after
    the last result (None: 0), one for all axes or one for each.
    Returns: a tuple of integer arrays. Raises: ConcretizationTypeError if a is traced and size is None.

    >>> import rlx.numpy as jnp
    >>> jnp.nonzero(jnp.array([3, 0, 4]))
    (Array([0, 2], dtype=int32),)
    """
    x = as_array(operand(a, "nonzero"))
    if x.ndim == 0:
        raise ShapeError("nonzero got a 0-d array, which has no axis to count along.", "Use rlx.numpy.atleast_1d(x).")
    if size is None:
        refuse_keys("nonzero", x.type)
        values = known_numpy(x, "nonzero", _SIZE)
        dtype = position_dtype(max(x.shape))
        return tuple(placed(wrap(p.astype(dtype)), like=x) for p in np.nonzero(values))
    return _sized_nonzero(truth(x), canonical_size(size, "nonzero"), fill_value)


def _sized_nonzero(mask: Any, size: int, fill_value: Any) -> tuple[Array, ...]:
    dtype = position_dtype(max(mask.size, size))
    flat = shapes.reshape(mask, shape=(mask.size,))
    counted = cumsum(convert_to(flat, dtype), axis=0)
    outside = scalar_array(size, dtype, True)
    place_of = select(flat, arithmetic.subtract(counted, scalar_array(1, dtype, True)), outside)
    place_of = select(comparison.less(place_of, outside), place_of, outside)
    numbers = shapes.iota(type=mask.type.update(shape=(mask.size,), dtype=dtype, weak=False), axis=0)
    found = _write(fill((size,), 0, dtype), place_of, numbers)
    count = reduce_sum(convert_to(flat, dtype), axes=(0,))
    position = shapes.iota(type=mask.type.update(shape=(size,), dtype=dtype, weak=False), axis=0)
    filled = comparison.less(position, count)
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * mask.ndim
    if len(fills) != mask.ndim:
        raise ShapeError(f"nonzero got {len(fills)} fill values for {mask.ndim} axes.", "Pass one each.")
    results = []
    for axis, n in enumerate(mask.shape):
        stride = math.prod(mask.shape[axis + 1 :])
        quotient = arithmetic.divide(found, scalar_array(max(stride, 1), dtype, True))
        index = arithmetic.remainder(quotient, scalar_array(max(n, 1), dtype, True))
        default = 0 if fills[axis] is None else fills[axis]
        results.append(select(filled, index, convert_to(operand(default), dtype)))
    return tuple(results)


def _write(x: Any, index: Any, values: Any) -> Any:
    """x[index] = values for unique 1-d indices; those outside are dropped."""
    return scatter(
        x,
        shapes.reshape(index, shape=(index.shape[0], 1)),
        values,
        dimension_numbers=ScatterDimensionNumbers((), (0,), (0,)),
        mode="drop",
        unique_indices=True,
        indices_are_sorted=False,
    )


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Where elements are nonzero, counting all elements in a row.

    Args: as `nonzero`. Returns: an integer array.

    >>> import rlx.numpy as jnp
    >>> jnp.flatnonzero(jnp.array([[0, 1], [1, 0]]))
    Array([1, 2], dtype=int32)
    """
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Where elements are nonzero: one row of indices for each.

    Args: as `nonzero`. Returns: a 2-d integer array.

    >>> import rlx.numpy as jnp
    >>> jnp.argwhere(jnp.array([[0, 1], [1, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    x = as_array(operand(a, "argwhere"))
    columns = nonzero(x if x.ndim else reshape(x, (1,)), size=size, fill_value=fill_value)
    if x.ndim == 0:
        return fill((columns[0].shape[0], 0), 0, config.default_int)
    return shapes.concatenate(*[reshape(c, (-1, 1)) for c in columns], axis=1)


def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0, out: None = None
) -> Array:
    """The slices of an array for which a condition is true.

    Args: condition: 1-d bools, known while tracing (or pass size); a: array; axis: int (None: all
    elements in a row); size, fill_value: number of slices, and the value of missing ones.
    Returns: an array. Raises: ConcretizationTypeError for a traced condition without size.

    >>> import rlx.numpy as jnp
    >>> jnp.compress(jnp.array([True, False]), jnp.array([1, 2]))
    Array([1], dtype=int32)
    """
    refuse_out("compress", out)
    mask = as_array(np.asarray(condition) if isinstance(condition, (list, tuple)) else operand(condition))
    if mask.ndim != 1:
        raise ShapeError(f"compress got a condition of shape {mask.shape}.", "It must be 1-d.")
    x = as_array(operand(a, "compress"))
    x = ravel(x) if axis is None else x
    number = 0 if axis is None else canonical_axis(axis, x.ndim, "compress")
    if size is None:
        (index,) = np.nonzero(known_numpy(mask, "compress", _SIZE))
        if index.size and index.max() >= x.shape[number]:
            raise IndexError(f"compress: the condition is true outside of axis {number} of size {x.shape[number]}")
        return take(x, index, axis=number)
    (index,) = nonzero(mask, size=size, fill_value=x.shape[number])
    return take(x, index, axis=number, mode="fill", fill_value=fill_value)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The elements of an array for which a condition is true.

    Args: condition, arr: arrays of equal size; size, fill_value: as `compress`. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.extract(jnp.array([[True, False]]), jnp.array([[1, 2]]))
    Array([1], dtype=int32)
    """
    return compress(ravel(truth(condition)), ravel(arr), size=size, fill_value=fill_value)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Array:
    """An array with elements replaced by number, counting all in a row.

    Args: a: array; ind: integers; v: values, repeated if there are fewer; mode: "clip" or "wrap"
    for indices out of bounds (None: dropped); inplace: must be False.
    Returns: an array of a's shape. Raises: ImmutableArrayError for inplace=True.

    >>> import rlx.numpy as jnp
    >>> jnp.put(jnp.zeros(3), jnp.array([0, 2]), 1.0, inplace=False)
    Array([1., 0., 1.], dtype=float32)
    """
    if inplace:
        raise immutable("put")
    x = as_array(operand(a, "put"))
    index = ravel(_integer_indices("put", ind))
    values = ravel(as_array(np.asarray(v) if isinstance(v, (list, tuple)) else beside_arrays(x, v)[1]))
    if index.size == 0 or values.size == 0:
        return x
    repeated = np.arange(index.size) % values.size
    values = values if values.size == index.size else values[repeated]
    if mode == "clip":  # NumPy does not count from the end then
        index = arithmetic.maximum(index, scalar_array(0, index.dtype, True))
    return reshape(ravel(x).at[index].set(values, mode=mode), x.shape)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Array:
    """An array with elements replaced where a mask holds, by values in order.

    Args: arr: array; mask: bools of the same size; vals: values, repeated if there are fewer;
    inplace: must be False. Returns: an array. Raises: ImmutableArrayError for inplace=True.

    >>> import rlx.numpy as jnp
    >>> jnp.place(jnp.zeros(3), jnp.array([True, False, True]), jnp.array([1.0, 2.0]), inplace=False)
    Array([1., 0., 2.], dtype=float32)
    """
    if inplace:
        raise immutable("place")
    x = as_array(operand(arr, "place"))
    holds, values = ravel(truth(mask)), ravel(beside_arrays(x, vals)[1])
    if holds.size != x.size:
        raise ShapeError(f"place got a mask of {holds.size} elements for {x.size}.", "Sizes must be equal.")
    if not x.size:
        return x
    index = index_dtype(x.size)
    order = arithmetic.subtract(cumsum(convert_to(holds, index), axis=0), scalar_array(1, index, True))
    chosen = take(values, remainder(order, values.size), mode="clip")
    return reshape(select(holds, convert_to(chosen, x.dtype), ravel(x)), x.shape)
