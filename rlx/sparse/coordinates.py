"""COO: a sparse matrix by the coordinates of its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import IndexBoundsError, ShapeError
from rlx.sparse.compressed import CSR
from rlx.sparse.matrix import SparseMatrix, matrix_shape
from rlx.sparse.patterns import RowPattern, index_array, is_known
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["COO"]


class _Order:
    """The order of elements by rows, known on the host: part of a matrix's static structure."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> None:
        self.order = np.argsort(rows, kind="stable")
        self.back = np.empty_like(self.order)
        self.back[self.order] = np.arange(len(rows))
        indptr = np.searchsorted(rows[self.order], np.arange(shape[0] + 1))
        self.pattern = RowPattern.of_checked(columns[self.order], indptr.astype(columns.dtype), shape)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, _Order) and self.pattern == other.pattern
        return same and (self is other or np.array_equal(self.order, other.order))

    def __hash__(self) -> int:
        return hash(self.pattern)


class COO(SparseMatrix):
    """A sparse matrix by coordinates: data[k] is in row[k] and col[k]; elements at one place add up.

    Args:
      data: the stored elements [nnz]; row, col: their rows and columns, int32 or int64 [nnz].
      shape: (rows, columns).

    Its only leaf is `data` if the coordinates are known when it is made, as in CSR. Traced coordinates
    outside of the matrix belong to zeros.

    Raises: ShapeError, DtypeError, IndexBoundsError.

    >>> import numpy as np
    >>> from rlx.sparse import COO
    >>> COO(np.array([1.0, 2.0]), [1, 0], [0, 1], (2, 2)) @ np.ones(2)
    Array([2., 1.], dtype=float64)
    """

    format = "coo"

    def __init__(self, data: Any, row: Any, col: Any, shape: Sequence[int]) -> None:
        self.data, self.shape = as_array(data, "a sparse matrix's data"), matrix_shape("COO", shape)
        self.row, self.col = index_array("COO's rows", row), index_array("COO's columns", col)
        if not self.data.shape == self.row.shape == self.col.shape:
            raise ShapeError(
                f"COO got data of shape {self.data.shape}, rows of {self.row.shape} and columns of {self.col.shape}.",
                "Pass one row and one column for each stored element.",
            )
        self.places: _Order | None = None
        if is_known(self.row, self.col):
            rows, columns = np.asarray(self.row), np.asarray(self.col)
            for what, found, size in (("row", rows, self.shape[0]), ("column", columns, self.shape[1])):
                if found.size and not 0 <= found.min() <= found.max() < size:
                    raise IndexBoundsError(
                        f"COO of shape {self.shape} got the {what} {found[(found < 0) | (found >= size)][0]}.",
                        f"It is from 0 to {size - 1}; negative ones do not count from the end.",
                    )
            self.places = _Order(rows, columns, self.shape)

    @classmethod
    def from_dense(cls, array: Any, *, nse: int | None = None) -> COO:
        """The nonzero elements of a dense matrix; see `CSR.from_dense`."""
        return cls.from_csr(CSR.from_dense(array, nse=nse))

    @classmethod
    def fromscipy(cls, matrix: Any) -> COO:
        """From a matrix or an array of SciPy in any format."""
        found = matrix.tocoo()
        return cls(np.array(found.data), found.row, found.col, found.shape)

    @classmethod
    def from_csr(cls, matrix: CSR) -> COO:
        """From a matrix by rows."""
        return cls(matrix.data, matrix.row_numbers(), matrix.indices, matrix.shape)

    def with_data(self, data: Any) -> COO:
        made = object.__new__(COO)
        made.__dict__.update(self.__dict__, data=as_array(data))
        return made

    def tocsr(self) -> CSR:
        """The matrix by rows; elements keep their order within a row."""
        if self.places is not None:
            return CSR.of_pattern(self.data[self.places.order], self.places.pattern)
        outside = (self.row < 0) | (self.row >= self.shape[0])
        rows = jnp.where(outside, self.shape[0], self.row)
        order = jnp.argsort(rows, stable=True)
        indptr = jnp.searchsorted(rows[order], jnp.arange(self.shape[0] + 1))
        data, columns = self.data[order], self.col[order]
        return CSR(data, columns, indptr.astype(self.col.dtype), self.shape)

    def multiply_columns(self, x: Any) -> Array:
        return self.tocsr().multiply_columns(x)

    def multiply_transposed(self, x: Any) -> Array:
        return self.tocsr().multiply_transposed(x)

    @property
    def T(self) -> COO:
        """The transposed matrix."""
        return COO(self.data, self.col, self.row, self.shape[::-1])


def _flatten(m: COO) -> tuple[tuple[Any, ...], Any]:
    return ((m.data, m.row, m.col), m.shape) if m.places is None else ((m.data,), m.places)


def _unflatten(static: Any, children: Sequence[Any]) -> COO:
    made = object.__new__(COO)
    if isinstance(static, _Order):
        (made.data,), made.places, made.shape = children, static, static.pattern.shape
        made.row, made.col = (as_array(v[static.back]) for v in (static.pattern.rows, static.pattern.indices))
    else:
        (made.data, made.row, made.col), made.places, made.shape = children, None, static
    return made


tree.register_node(COO, _flatten, _unflatten)
