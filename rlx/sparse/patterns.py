"""The places of stored elements, known on the host: checked once, compared by content, and used as static data."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, IndexBoundsError, ShapeError
from rlx.forks import cached_property
from rlx.trace.builder import is_traced
from rlx.trace.flat import as_array

__all__ = ["RowPattern", "index_array", "is_known"]

_INT32, _INT64 = np.dtype("i4"), np.dtype("i8")
_LARGEST = np.iinfo(np.int32).max


def is_known(*arrays: Any) -> bool:
    """Whether the arrays have values now, and are not being traced."""
    return not any(is_traced(a) for a in arrays)


def index_array(what: str, value: Any) -> Array:
    """Indices as an array of int32 or int64. Raises DtypeError, ShapeError."""
    array = as_array(np.asarray(value) if isinstance(value, (list, tuple)) else value, what)
    if array.dtype.kind not in "iu" and array.size:
        raise DtypeError(f"{what} are of {array.dtype.name}.", "Pass an array of int32 or int64.")
    if array.ndim != 1:
        raise ShapeError(f"{what} have the shape {array.shape}.", "They are an array of one axis.")
    if array.dtype in (_INT32, _INT64):
        return array
    return array.astype(_INT64 if array.dtype.itemsize >= 4 and array.dtype.kind == "u" else _INT32)


def _host(what: str, value: Any) -> np.ndarray:
    return np.asarray(index_array(what, value))


class RowPattern:
    """The stored places of a matrix by rows: row i has the columns indices[indptr[i]:indptr[i + 1]].

    Patterns are equal if their indices and shapes are. They are hashable, so that a matrix's pattern is part of the
    structure of its tree, and functions are compiled for it.

    Raises DtypeError, ShapeError, IndexBoundsError for arrays that are not such a pattern.

    >>> import numpy as np
    >>> from rlx.sparse.patterns import RowPattern
    >>> p = RowPattern(np.array([1, 0, 1]), np.array([0, 1, 3]), (2, 2))
    >>> p.nnz, p.rows.tolist(), p == RowPattern([1, 0, 1], [0, 1, 3], (2, 2))
    (3, [0, 1, 1], True)
    """

    def __init__(self, indices: Any, indptr: Any, shape: tuple[int, int]) -> None:
        columns, pointers = _host("A pattern's indices", indices), _host("A pattern's indptr", indptr)
        _check(columns, pointers, shape)
        dtype = np.promote_types(columns.dtype, pointers.dtype)
        self._take(columns.astype(dtype, copy=False), pointers.astype(dtype, copy=False), shape)

    def _take(self, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> None:
        self.indices, self.indptr, self.shape = indices, indptr, shape
        self.nnz = len(indices)
        for array in (indices, indptr):
            if array.flags.owndata:
                array.flags.writeable = False

    @classmethod
    def of_checked(cls, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> RowPattern:
        """A pattern of arrays that are known to be one; int32 where they fit."""
        made = object.__new__(cls)
        small = max(len(indices), *shape) <= _LARGEST and indices.dtype != _INT64
        dtype = _INT32 if small else _INT64
        made._take(indices.astype(dtype, copy=False), indptr.astype(dtype, copy=False), shape)
        return made

    # ------------------------------------------------------------- identity
    @cached_property
    def digest(self) -> bytes:
        """A hash of the contents."""
        found = hashlib.sha1(repr((self.shape, self.indices.dtype.str)).encode(), usedforsecurity=False)
        found.update(np.ascontiguousarray(self.indptr).data)
        found.update(np.ascontiguousarray(self.indices).data)
        return found.digest()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, RowPattern) and self.nnz == other.nnz and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.shape, self.nnz, self.indices.dtype))

    def __repr__(self) -> str:
        return f"RowPattern({list(self.shape)}, nnz={self.nnz})"

    # ------------------------------------------------------------- derived
    @cached_property
    def arrays(self) -> tuple[Array, Array]:
        """indices and indptr as arrays of rlx: one constant of each program that uses them."""
        return as_array(self.indices), as_array(self.indptr)

    @cached_property
    def rows(self) -> np.ndarray:
        """The row of each stored element."""
        return np.repeat(np.arange(self.shape[0], dtype=self.indices.dtype), np.diff(self.indptr))

    @cached_property
    def is_sorted(self) -> bool:
        """Whether each row's columns increase, and no place is stored twice."""
        ahead = self.indices[1:] > self.indices[:-1]
        starts = self.indptr[1:-1]
        ahead[starts[(starts > 0) & (starts < self.nnz)] - 1] = True
        return bool(ahead.all())

    @cached_property
    def transposition(self) -> tuple[RowPattern, np.ndarray]:
        """The pattern of the transposed matrix, and the stored element at each of its places."""
        order = np.argsort(self.indices, kind="stable").astype(self.indices.dtype, copy=False)
        counts = np.bincount(self.indices, minlength=self.shape[1])
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(self.indices.dtype)
        return RowPattern.of_checked(self.rows[order], indptr, (self.shape[1], self.shape[0])), order

    @property
    def sorting(self) -> np.ndarray:
        """The order of stored elements by rows, then columns."""
        return np.lexsort((self.indices, self.rows)).astype(self.indices.dtype, copy=False)

    @cached_property
    def canonical(self) -> tuple[RowPattern, np.ndarray]:
        """The pattern with sorted columns and each place once, and the place there of each stored element."""
        if self.is_sorted:
            return self, np.arange(self.nnz, dtype=self.indices.dtype)
        order = self.sorting
        rows, columns = self.rows[order], self.indices[order]
        first = np.ones(self.nnz, bool)
        first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        places = np.empty(self.nnz, self.indices.dtype)
        places[order] = np.cumsum(first, dtype=self.indices.dtype) - 1
        counts = np.bincount(rows[first], minlength=self.shape[0])
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(self.indices.dtype)
        return RowPattern.of_checked(columns[first], indptr, self.shape), places


def _check(indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> None:
    """Raise unless the arrays are a pattern."""
    if len(indptr) != shape[0] + 1:
        raise ShapeError(
            f"A sparse matrix of shape {shape} got indptr with {len(indptr)} elements.",
            f"Pass {shape[0] + 1}: where each row starts in data, and the end.",
        )
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise ShapeError(
            f"A sparse matrix got indptr from {indptr[0]} to {indptr[-1]}, for {len(indices)} indices.",
            "indptr starts at 0 and ends at the number of stored elements.",
        )
    steps = np.diff(indptr)
    if (steps < 0).any():
        row = int(np.argmax(steps < 0))
        raise ShapeError(
            f"A sparse matrix got indptr that decreases from {indptr[row]} to {indptr[row + 1]} at row {row}.",
            "indptr never decreases: pass the running sum of the rows' lengths.",
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        wrong = indices[(indices < 0) | (indices >= shape[1])][0]
        raise IndexBoundsError(
            f"A sparse matrix with {shape[1]} columns got the index {wrong}.",
            f"Indices are from 0 to {shape[1] - 1}; negative ones do not count from the end.",
        )
