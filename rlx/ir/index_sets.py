"""Which input elements each element of a value depends on: sets of indices, by axes or stored, and how operations read.

An operation states, for each operand, which elements of it an element of the result reads: a `Reading`. A value has
an `IndexSet` for each array of the inputs that it depends on. `read` composes the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rlx.forks import cached_property

__all__ = [
    "Along",
    "ByAxes",
    "Elements",
    "IndexSet",
    "Pairs",
    "Reading",
    "Stored",
    "TooLargeError",
    "identity_set",
    "joined_by_axes",
    "numbered",
    "read",
    "read_by_axes",
    "same_set",
    "size_of",
    "stacked",
    "stored",
    "united",
]

Shape = tuple[int, ...]
_LARGEST = 1 << 28  # stored indices of one value: 1 GiB


class TooLargeError(Exception):
    """A set has too many elements to be stored."""


# ------------------------------------------------------------- how an operation reads an operand
class Along(NamedTuple):
    """By axes: for each axis of the operand the result's axis that it runs along with, or None if all of it is read.

    reason: why all of an axis was assumed to be read, if it is not known.
    """

    axes: tuple[int | None, ...]
    reason: str = ""


class Elements:
    """By numbers: `numbers` has the result's shape and one more axis, and the elements of the operand that are read.

    Elements are numbered in row-major order; -1 reads nothing. `along` contains these elements, and is as exact for the
    axes that it maps if `full`: if every element reads something.
    """

    def __init__(self, numbers: Callable[[], np.ndarray], along: Along | None = None, full: bool = False) -> None:
        self._numbers = numbers
        self.along = along
        self.full = full

    @cached_property
    def numbers(self) -> np.ndarray:
        """The numbers [result elements, read elements]."""
        found = self._numbers()
        return np.ascontiguousarray(found).reshape(-1, found.shape[-1]) if found.size else np.zeros((0, 0), np.int64)


class Pairs(NamedTuple):
    """By pairs: element rows[i] of the result reads element columns[i] of the operand."""

    rows: np.ndarray
    columns: np.ndarray


Reading = Along | Elements | Pairs


# ------------------------------------------------------------- sets
class ByAxes(NamedTuple):
    """A set by axes: for each axis of the input the value's axis that it runs along with, or None for all of it.

    An element of the value depends on the input elements whose positions along the mapped axes are its own.
    """

    shape: Shape  # of the input
    axes: tuple[int | None, ...]


class Stored(NamedTuple):
    """A set by a boolean matrix of SciPy: rows are elements of the value, columns elements of the input."""

    shape: Shape  # of the input
    matrix: Any


IndexSet = ByAxes | Stored


def identity_set(shape: Shape) -> ByAxes:
    """The set of an input itself."""
    return ByAxes(shape, tuple(range(len(shape))))


def _matrix(indptr: np.ndarray, indices: np.ndarray, shape: tuple[int, int]) -> Any:
    import scipy.sparse

    return scipy.sparse.csr_array((np.ones(len(indices), bool), indices, indptr), shape=shape)


def _rows_of(numbers: np.ndarray, columns: int) -> Any:
    """The matrix whose row i has the columns numbers[i], without those that are -1."""
    present = numbers >= 0
    counts = np.concatenate([[0], np.cumsum(present.sum(axis=1, dtype=np.int64))])
    small = max(counts[-1], columns) < np.iinfo(np.int32).max
    dtype = np.int32 if small else np.int64
    found = _matrix(counts.astype(dtype), numbers[present].astype(dtype), (len(numbers), columns))
    found.sum_duplicates()
    return found


def _pairs_matrix(pairs: Pairs, shape: tuple[int, int]) -> Any:
    import scipy.sparse

    made = scipy.sparse.csr_array((np.ones(len(pairs.rows), bool), (pairs.rows, pairs.columns)), shape=shape)
    made.sum_duplicates()
    return made


def size_of(found: IndexSet, value: Shape) -> int:
    """The number of elements of the set of a value of this shape, over all elements of the value."""
    if isinstance(found, Stored):
        return found.matrix.nnz
    return prod(value) * prod(n for n, a in zip(found.shape, found.axes, strict=True) if a is None)


def stored(found: IndexSet, value: Shape) -> Stored:
    """The set of a value of this shape, stored. Raises TooLargeError if it has too many elements."""
    if isinstance(found, Stored):
        return found
    shape, axes = found
    if size_of(found, value) > _LARGEST:
        raise TooLargeError
    steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
    outer = np.zeros(value, np.int64)
    for step, axis in zip(steps, axes, strict=True):
        if axis is not None:
            outer += (step * np.arange(value[axis])).reshape(-1, *(1,) * (len(value) - 1 - axis))
    offsets = np.zeros((), np.int64)
    for n, step, axis in zip(shape, steps, axes, strict=True):
        if axis is None:
            offsets = np.add.outer(offsets, step * np.arange(n))
    numbers = outer.reshape(-1, 1) + offsets.reshape(1, -1)
    return Stored(shape, _rows_of(numbers, prod(shape)))


def _dense(shape: Shape) -> ByAxes:
    return ByAxes(shape, (None,) * len(shape))


def _is_dense(found: IndexSet) -> bool:
    return isinstance(found, ByAxes) and all(a is None for a in found.axes)


def united(a: IndexSet, b: IndexSet, value: Shape) -> IndexSet:
    """The union of two sets of one value, over the same input. Raises TooLargeError."""
    if same_set(a, b):
        return a
    for one in (a, b):
        if _is_dense(one):
            return one
    return Stored(a.shape, stored(a, value).matrix + stored(b, value).matrix)


def joined_by_axes(a: IndexSet, b: IndexSet) -> ByAxes:
    """A set by axes that contains both."""
    first, second = (x.axes if isinstance(x, ByAxes) else (None,) * len(x.shape) for x in (a, b))
    return ByAxes(a.shape, tuple(x if x == y else None for x, y in zip(first, second, strict=True)))


# ------------------------------------------------------------- composition
def read(found: IndexSet, how: Reading, operand: Shape, result: Shape) -> IndexSet:
    """The set of a result that reads an operand with a set. Raises TooLargeError."""
    if isinstance(how, Along):
        how = _checked(how, operand, result)
        if isinstance(found, ByAxes):
            return ByAxes(found.shape, tuple(None if a is None else how.axes[a] for a in found.axes))
        return Stored(found.shape, _read_along(found.matrix, how, operand, result))
    if isinstance(how, Elements) and how.full and how.along is not None and isinstance(found, ByAxes):
        along = _checked(how.along, operand, result)
        if all(a is None or along.axes[a] is not None for a in found.axes):
            return read(found, along, operand, result)
    matrix = stored(found, operand).matrix
    if isinstance(how, Pairs):
        made = _pairs_matrix(how, (prod(result), prod(operand)))
        return Stored(found.shape, _product(made, matrix))
    return Stored(found.shape, _taken(matrix, how.numbers, prod(result)))


def read_by_axes(found: IndexSet, how: Reading, operand: Shape, result: Shape) -> ByAxes:
    """As `read`, by axes: a larger set where it must be."""
    along = how.along if isinstance(how, Elements) else how
    if not isinstance(along, Along) or not isinstance(found, ByAxes):
        return _dense(found.shape)
    along = _checked(along, operand, result)
    return ByAxes(found.shape, tuple(None if a is None else along.axes[a] for a in found.axes))


def same_set(a: IndexSet, b: IndexSet) -> bool:
    """Whether two sets over one input are equal and represented alike."""
    if isinstance(a, ByAxes) or isinstance(b, ByAxes):
        return a == b if isinstance(a, ByAxes) and isinstance(b, ByAxes) else False
    x, y = a.matrix, b.matrix
    return x is y or (x.nnz == y.nnz and np.array_equal(x.indptr, y.indptr) and np.array_equal(x.indices, y.indices))


def stacked(found: Sequence[IndexSet | None], value: Shape) -> IndexSet:
    """The set of values of one shape, stacked along a new first axis; None depends on nothing. Raises TooLargeError."""
    import scipy.sparse

    shape = next(x.shape for x in found if x is not None)
    if all(x is not None and _is_dense(x) for x in found):
        return _dense(shape)
    empty = _matrix(np.zeros(prod(value) + 1, np.int32), np.zeros(0, np.int32), (prod(value), prod(shape)))
    return Stored(shape, scipy.sparse.vstack([empty if x is None else stored(x, value).matrix for x in found], "csr"))


def _checked(how: Along, operand: Shape, result: Shape) -> Along:
    """Axes of another size in the result are read whole."""
    return Along(
        tuple(
            place if place is not None and place >= 0 and result[place] == n else None
            for place, n in zip(how.axes, operand, strict=True)
        )
    )


def _taken(matrix: Any, numbers: np.ndarray, rows: int) -> Any:
    """For each row of numbers, the union of these rows of the matrix."""
    if numbers.shape[1] != 1:
        if not len(numbers):
            return _matrix(np.zeros(rows + 1, np.int32), np.zeros(0, np.int32), (rows, matrix.shape[1]))
        return _product(_rows_of(numbers, matrix.shape[0]), matrix)
    flat = numbers[:, 0]
    if len(flat) == matrix.shape[0] and np.array_equal(flat, np.arange(len(flat))):
        return matrix
    if (flat >= 0).all():
        return matrix[flat]
    ends = np.concatenate([matrix.indptr, matrix.indptr[-1:]])
    return _matrix(ends, matrix.indices, (matrix.shape[0] + 1, matrix.shape[1]))[flat]


def _product(left: Any, right: Any) -> Any:
    """The product of boolean matrices, with sorted indices."""
    if left.nnz and right.nnz * (left.nnz / max(left.shape[1], 1)) > _LARGEST:
        raise TooLargeError
    found = left @ right
    found.sort_indices()
    return found


def _read_along(matrix: Any, how: Along, operand: Shape, result: Shape) -> Any:
    """Rows of a result that runs along some axes of an operand with these rows: unions, then copies."""
    kept = [a for a, place in enumerate(how.axes) if place is not None]
    whole = [a for a in range(len(operand)) if a not in kept]
    sizes = [operand[a] for a in kept]
    if prod(operand[a] for a in whole) != 1:
        numbers = np.arange(prod(operand)).reshape(operand).transpose(kept + whole)
        matrix = _taken(matrix, numbers.reshape(prod(sizes), -1), prod(sizes))
    order = sorted(range(len(kept)), key=lambda i: how.axes[kept[i]] or 0)
    places = np.arange(prod(sizes)).reshape(sizes).transpose(order)
    aligned = [1] * len(result)
    for i in order:
        aligned[how.axes[kept[i]] or 0] = sizes[i]
    numbers = np.broadcast_to(places.reshape(aligned), result)
    return _taken(matrix, numbers.reshape(-1, 1), prod(result))


def numbered(shape: Sequence[int], start: int = 0) -> np.ndarray:
    """The numbers of an array's elements, in its shape."""
    return np.arange(start, start + prod(shape)).reshape(tuple(shape))
