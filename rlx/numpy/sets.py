"""Sets: unique, isin, unions and differences."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx.array import Array
from rlx.config import config
from rlx.errors import ShapeError
from rlx.ir.types import is_complex, is_inexact
from rlx.numpy.creation import count_along
from rlx.numpy.elementwise import equal
from rlx.numpy.floats import isnan
from rlx.numpy.index_dtypes import position_dtype
from rlx.numpy.joining import concatenate
from rlx.numpy.lookups import nonzero, take
from rlx.numpy.manipulation import moveaxis, ravel, reshape
from rlx.numpy.promotion import (
    beside_arrays,
    broadcast_array,
    canonical_axis,
    canonical_size,
    convert_to,
    fill,
    known_numpy,
    operand,
    promote,
    scalar_array,
)
from rlx.numpy.reductions import any as any_
from rlx.ops import arithmetic, comparison, sorting
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.ops.cumulative import cumsum
from rlx.ops.reduction import argmax, reduce_or, reduce_sum
from rlx.trace.flat import as_array

__all__ = [
    "intersect1d",
    "isin",
    "setdiff1d",
    "setxor1d",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]

_SIZE = "Pass size=, the maximum number of different elements."


class _Unique(NamedTuple):
    values: Any
    index: Any
    inverse: Any
    counts: Any


def _array(value: Any, name: str) -> Any:
    return as_array(np.asarray(value) if isinstance(value, (list, tuple)) else operand(value, name))


def _columns(rows: Any) -> list[Any]:
    """The columns of a matrix, as sort keys."""
    return [shapes.squeeze(shapes.slice_along(rows, i, i + 1, 1), (1,)) for i in range(rows.shape[1])]


def _one_nan(x: Any) -> Any:
    """Complex numbers, with every number that has a NaN replaced by the one that is last in order."""
    return select(isnan(x), scalar_array(complex(np.nan, np.nan), x.dtype, False), x)


def _same_as_before(ordered: list[Any], equal_nan: bool) -> Any:
    """For every sorted row after the first: whether it equals the one before."""
    size = ordered[0].shape[0]
    result: Any = None
    for column in ordered:
        left, right = shapes.slice_along(column, 0, size - 1, 0), shapes.slice_along(column, 1, size, 0)
        same = comparison.equal(left, right)
        if equal_nan and is_inexact(column.dtype):
            same = comparison.bitwise_or(same, comparison.bitwise_and(isnan(left), isnan(right)))
        result = same if result is None else comparison.bitwise_and(result, same)
    return result


def _unique_rows(rows: Any, size: int | None, fill_value: Any, equal_nan: bool) -> _Unique:
    """Different rows of a matrix in ascending order, their first positions, and their counts."""
    dtype, count = position_dtype(rows.shape[0]), rows.shape[0]
    if count == 0 or rows.shape[1] == 0:
        return _of_nothing(rows, size, fill_value)
    columns = [_one_nan(c) if equal_nan and is_complex(c.dtype) else c for c in _columns(rows)]
    *ordered, order = sorting.sort(*columns, count_along((count,), 0, dtype), axis=0, keys=len(columns))
    first = fill((1,), True, np.dtype(bool))
    if count > 1:
        first = concatenate([first, comparison.bitwise_not(_same_as_before(ordered, equal_nan))])
    number = arithmetic.subtract(cumsum(convert_to(first, dtype), axis=0), scalar_array(1, dtype, True))
    inverse = fill((count,), 0, dtype).at[order].set(number, unique_indices=True)
    if size is None:
        total = int(known_numpy(first, "unique", _SIZE).sum())
    else:
        total = size
    (edges,) = nonzero(first, size=total + 1, fill_value=count)
    starts, ends = shapes.slice_along(edges, 0, total, 0), shapes.slice_along(edges, 1, total + 1, 0)
    found = reduce_sum(convert_to(first, dtype), axes=(0,))
    index = take(order, starts, mode="clip")
    counts = arithmetic.subtract(ends, starts)
    values = take(rows, index, axis=0, mode="clip")
    if size is not None:
        there = comparison.less(count_along((total,), 0, dtype), found)
        # missing elements repeat the smallest row, unless a fill value is given
        smallest = shapes.slice_along(values, 0, 1, 0)
        spare = smallest if fill_value is None else convert_to(operand(fill_value), rows.dtype)
        values = select(reshape(there, (total, 1)), values, broadcast_array(spare, values.shape))
        index = (
            select(there, index, broadcast_array(shapes.slice_along(index, 0, 1, 0), index.shape)) if total else index
        )
        counts = select(there, counts, scalar_array(0, dtype, True))
    return _Unique(values, index, inverse, counts)


def _of_nothing(rows: Any, size: int | None, fill_value: Any) -> _Unique:
    total = min(rows.shape[0], 1) if size is None else size
    if total and rows.shape[1] and fill_value is None:
        raise ShapeError("unique got no elements to fill size= with.", "Pass fill_value=.")
    zeros = fill((total,), 0, config.default_int)
    values = fill((total, rows.shape[1]), 0 if fill_value is None else fill_value, rows.dtype)
    counts = zeros.at[:1].set(rows.shape[0])  # rows without elements are all the same
    return _Unique(values, zeros, fill((rows.shape[0],), 0, config.default_int), counts)


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
    sorted: bool = True,
) -> Any:  # fmt: skip
    """The different elements (or slices along an axis) in ascending order.

    Args: ar: array; return_index, return_inverse, return_counts: also return the index of each first occurrence,
    each element's index among the results, and the number of occurrences; axis: int (None: all elements in a row);
    equal_nan: whether NaN are all the same; size: maximum number of results (needed if ar is
    traced); fill_value: for the rest (None: the smallest one).
    Returns: an array, or a tuple. Raises: ConcretizationTypeError if ar is traced and size is None.

    >>> import rlx.numpy as jnp
    >>> jnp.unique(jnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    x = _array(ar, "unique")
    if size is not None:
        size = canonical_size(size, "unique")
    if axis is None:
        found = _unique_rows(reshape(x, (x.size, 1)), size, fill_value, equal_nan)
        values, inverse = ravel(found.values), reshape(found.inverse, x.shape)
    else:
        number = canonical_axis(axis, x.ndim, "unique")
        moved = moveaxis(x, number, 0)
        rest = moved.shape[1:]
        rows = reshape(moved, (moved.shape[0], int(np.prod(rest))))
        found = _unique_rows(rows, size, fill_value, equal_nan)
        values, inverse = moveaxis(reshape(found.values, (found.values.shape[0], *rest)), 0, number), found.inverse
    parts = [values]
    parts += [found.index] if return_index else []
    parts += [inverse] if return_inverse else []
    parts += [found.counts] if return_counts else []
    return parts[0] if len(parts) == 1 else tuple(parts)


class UniqueAll(NamedTuple):
    """Result of unique_all."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Result of unique_counts."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Result of unique_inverse."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """`unique` with everything it can return, by the array API standard.

    Args: x: array; size, fill_value: as `unique`. Returns: (values, indices, inverse_indices, counts).

    >>> import rlx.numpy as jnp
    >>> jnp.unique_all(jnp.array([3, 1, 3])).counts
    Array([1, 2], dtype=int32)
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Different elements and their numbers of occurrences.

    Args: as `unique_all`. Returns: (values, counts).

    >>> import rlx.numpy as jnp
    >>> jnp.unique_counts(jnp.array([3, 1, 3])).values
    Array([1, 3], dtype=int32)
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Different elements, and each element's index among them.

    Args: as `unique_all`. Returns: (values, inverse_indices).

    >>> import rlx.numpy as jnp
    >>> jnp.unique_inverse(jnp.array([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Different elements.

    Args: as `unique_all`. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.unique_values(jnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# ------------------------------------------------------------------ membership
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Array:
    """Whether elements occur in another array.

    Args: element, test_elements: arrays; invert: whether they do not.
    Returns: a bool array of element's shape.

    >>> import rlx.numpy as jnp
    >>> jnp.isin(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([False,  True], dtype=bool)
    """
    x, test = promote("isin", *[_array(a, "isin") for a in beside_arrays(element, test_elements)])
    if x.size == 0 or test.size == 0:
        found = fill(x.shape, False, np.dtype(bool))
    else:
        pairs = equal(reshape(x, (x.size, 1)), reshape(test, (1, test.size)))
        found = reshape(reduce_or(pairs, axes=(1,)), x.shape)
    return comparison.bitwise_not(found) if invert else found


def _kept(name: str, values: Any, mask: Any, size: int | None, fill_value: Any) -> Any:
    """The elements for which the mask holds: all of them, or `size`."""
    if size is None:
        (index,) = np.nonzero(known_numpy(mask, name, _SIZE))
        return take(values, index, mode="clip")
    (index,) = nonzero(mask, size=size, fill_value=values.shape[0])
    return take(values, index, mode="fill", fill_value=0 if fill_value is None else fill_value)


def _there(mask: Any, size: int) -> Any:
    """Which of `size` positions have elements for which the mask is true."""
    dtype = position_dtype(max(size, mask.size))
    return comparison.less(count_along((size,), 0, dtype), reduce_sum(convert_to(mask, dtype), axes=(0,)))


def _kept_of_ordered(name: str, ordered: Any, mask: Any, size: int | None, fill_value: Any) -> Any:
    """As _kept, of sorted elements; by default the smallest kept element fills the rest."""
    values = _kept(name, ordered, mask, size, fill_value)
    if size is None or fill_value is not None or not ordered.shape[0]:
        return values
    (smallest,) = _kept(name, ordered, mask, 1, None)
    return select(_there(mask, size), values, smallest)


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Elements of either array, each once, in ascending order.

    Args: ar1, ar2: arrays; size, fill_value: as `unique`. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.union1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([1, 2, 3], dtype=int32)
    """
    both = concatenate([ravel(_array(a, "union1d")) for a in beside_arrays(ar1, ar2)])
    return unique(both, size=size, fill_value=fill_value)


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """Elements of the first array that the second lacks, each once, in ascending order.

    Args: ar1, ar2: arrays; assume_unique: keep ar1's order and repetitions; size, fill_value.
    Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.setdiff1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([1], dtype=int32)
    """
    x = ravel(_array(ar1, "setdiff1d"))
    if not assume_unique and size is None:
        x = unique(x)
    absent = isin(x, ar2, invert=True)
    if not assume_unique and size is not None:
        (x,) = sorting.sort(x, axis=0, keys=1)
        absent = comparison.bitwise_and(isin(x, ar2, invert=True), _first_of_runs(x))
    return _kept("setdiff1d", x, absent, size, fill_value)


def _first_of_runs(ordered: Any) -> Any:
    first = fill((min(ordered.shape[0], 1),), True, np.dtype(bool))
    if ordered.shape[0] < 2:
        return first
    return concatenate([first, comparison.bitwise_not(_same_as_before([ordered], True))])


def _only_one_of_runs(ordered: Any) -> Any:
    """Whether elements in order differ from both neighbours."""
    first = _first_of_runs(ordered)
    if ordered.shape[0] < 2:
        return first
    last = concatenate([shapes.slice_along(first, 1, first.shape[0], 0), fill((1,), True, np.dtype(bool))])
    return comparison.bitwise_and(first, last)


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, *,
    size: int | None = None, fill_value: Any = None,
) -> Any:  # fmt: skip
    """Elements that both arrays have, each once, in ascending order.

    Args: ar1, ar2: arrays; return_indices: also return the first index in both; size: maximum number of results
    (needed if an operand is traced); fill_value: for the rest (None: the smallest one).
    Returns: a 1-d array, or a tuple of three.

    >>> import rlx.numpy as jnp
    >>> jnp.intersect1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([2], dtype=int32)
    """
    x, y = promote("intersect1d", *[ravel(_array(a, "intersect1d")) for a in beside_arrays(ar1, ar2)])
    dtype = position_dtype(x.size)
    ordered, order = sorting.sort(x, count_along(x.shape, 0, dtype), axis=0, keys=1)
    common = comparison.bitwise_and(_first_of_runs(ordered), isin(ordered, y))
    values = _kept_of_ordered("intersect1d", ordered, common, size, fill_value)
    if not return_indices:
        return values
    missing_first, missing_second = x.shape[0], y.shape[0]
    first = _kept("intersect1d", order, common, size, missing_first)
    if not missing_second:
        return values, first, fill(first.shape, 0, dtype)
    matches = equal(reshape(values, (-1, 1)), reshape(y, (1, -1)))
    second = argmax(matches, axis=1, index_dtype=dtype) if values.shape[0] else fill((0,), 0, dtype)
    valid = any_(matches, axis=1)
    if size is not None:  # the fill value may also be an element
        valid = comparison.bitwise_and(valid, _there(common, size))
    second = select(valid, second, scalar_array(missing_second, dtype, True))
    return values, first, second


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """Elements that exactly one of the arrays has, each once, in ascending order.

    Args: ar1, ar2: arrays; assume_unique: they have no repetitions (an element of either that is repeated
    counts as one of both); size, fill_value: as `intersect1d`. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([1, 3], dtype=int32)
    """
    x, y = promote("setxor1d", *[ravel(_array(a, "setxor1d")) for a in beside_arrays(ar1, ar2)])
    (ordered,) = sorting.sort(concatenate([x, y]), axis=0, keys=1)
    if assume_unique:
        return _kept_of_ordered("setxor1d", ordered, _only_one_of_runs(ordered), size, fill_value)
    once = comparison.bitwise_xor(isin(ordered, x), isin(ordered, y))
    first = comparison.bitwise_and(once, _first_of_runs(ordered))
    return _kept_of_ordered("setxor1d", ordered, first, size, fill_value)
