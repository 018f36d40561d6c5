"""CSR and CSC: sparse matrices by rows, and by columns."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ConcretizationTypeError, ShapeError
from rlx.numpy.promotion import promote
from rlx.ops.check import report
from rlx.ops.sparse_products import csr_product, sampled_product
from rlx.sparse.matrix import SparseMatrix, matrix_shape
from rlx.sparse.patterns import RowPattern, index_array, is_known
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["CSC", "CSR", "known_pattern"]


class CSR(SparseMatrix):
    """A sparse matrix by rows: row i has the elements data[indptr[i]:indptr[i + 1]] in the columns `indices`.

    It is a node of trees. If its pattern (indices, indptr and shape) is known when it is made, the pattern is static:
    the only leaf is `data`, so that rlx.grad gives the cotangent as a CSR of the same pattern, and jit compiles for the
    pattern. If the indices are traced, all three arrays are leaves. Elements at one place add up.

    Args:
      data: the stored elements [nnz]; indices: their columns, int32 or int64 [nnz]; indptr: [rows + 1].
      shape: (rows, columns).

    An element whose traced index is outside of the matrix counts as zero; rlx.experimental.checkify reports it.

    Raises: ShapeError, DtypeError, IndexBoundsError for arrays that do not form a matrix.

    >>> import numpy as np, rlx
    >>> from rlx.sparse import CSR
    >>> a = CSR(np.array([1.0, 2.0, 3.0]), [0, 2, 1], [0, 2, 3], (2, 3))
    >>> a @ np.ones(3)
    Array([3., 3.], dtype=float64)
    >>> rlx.grad(lambda a: (a @ np.array([1.0, 10.0, 100.0])).sum())(a).data
    Array([  1., 100.,  10.], dtype=float64)
    """

    format = "csr"

    def __init__(self, data: Any, indices: Any, indptr: Any, shape: Sequence[int]) -> None:
        self.data = as_array(data, "a sparse matrix's data")
        self.shape = matrix_shape("CSR", shape)
        columns, pointers = index_array("CSR's indices", indices), index_array("CSR's indptr", indptr)
        if self.data.shape != columns.shape:
            raise ShapeError(
                f"CSR got data of shape {self.data.shape} and indices of shape {columns.shape}.",
                "Pass one index for each stored element.",
            )
        if is_known(columns, pointers):
            self.pattern: RowPattern | None = RowPattern(columns, pointers, self.shape)
            self.indices, self.indptr = self.pattern.arrays
        else:
            self.pattern = None
            self._take_traced(columns, pointers)

    def _take_traced(self, columns: Array, pointers: Array) -> None:
        """Keep traced indices, brought into bounds, with zeros in the place of elements that are outside."""
        count, (rows, width) = self.data.shape[0], self.shape
        if pointers.shape != (rows + 1,):
            raise ShapeError(f"CSR of shape {self.shape} got indptr of shape {pointers.shape}.")
        columns, pointers = promote("CSR", columns, pointers)
        report((columns >= 0).all() & (columns < width).all(), f"an index of a CSR with {width} columns is outside")
        report((jnp.diff(pointers) >= 0).all() & (pointers[0] == 0), "a CSR's indptr is not increasing from 0")
        pointers = jnp.clip(jnp.maximum.accumulate(pointers), 0, count)
        stored = (columns >= 0) & (columns < width) & (jnp.arange(count) < pointers[-1])
        self.data = jnp.where(stored, self.data, jnp.zeros_like(self.data))
        self.indices, self.indptr = jnp.clip(columns, 0, max(width - 1, 0)), pointers

    @classmethod
    def of_pattern(cls, data: Any, pattern: RowPattern) -> CSR:
        """The matrix of these elements at the places of a pattern."""
        made = object.__new__(cls)
        made.data, made.pattern, made.shape = as_array(data), pattern, pattern.shape
        made.indices, made.indptr = pattern.arrays
        return made

    def with_data(self, data: Any) -> CSR:
        """The matrix of the same pattern with other elements."""
        value = as_array(data)
        if value.shape != self.data.shape:
            raise ShapeError(f"A matrix with data of shape {self.data.shape} got {value.shape}.")
        made = object.__new__(CSR)
        made.__dict__.update(self.__dict__, data=value)
        return made

    @classmethod
    def from_dense(cls, array: Any, *, nse: int | None = None) -> CSR:
        """The nonzero elements of a matrix; of a traced one, `nse` of them, which is then required.

        >>> import numpy as np
        >>> from rlx.sparse import CSR
        >>> CSR.from_dense(np.array([[0.0, 2.0], [3.0, 0.0]])).indices.tolist()
        [1, 0]
        """
        dense = as_array(array)
        if dense.ndim != 2:
            raise ShapeError(f"CSR.from_dense got an array of shape {dense.shape}.", "Pass a matrix.")
        if is_known(dense) and nse is None:
            rows, columns = np.nonzero(np.asarray(dense))
            indptr = np.searchsorted(rows, np.arange(dense.shape[0] + 1))
            pattern = RowPattern(columns.astype(np.int32), indptr.astype(np.int32), matrix_shape("CSR", dense.shape))
            return cls.of_pattern(dense[rows, columns], pattern)
        if nse is None:
            raise ConcretizationTypeError(
                "CSR.from_dense got a traced array: the number of its nonzero elements is unknown.",
                "Pass it as nse, or make the matrix outside of the compiled function.",
            )
        rows, columns = jnp.nonzero(dense, size=nse, fill_value=dense.shape[0])
        data = dense.at[rows, columns].get(mode="fill", fill_value=0)
        indptr = jnp.searchsorted(rows, jnp.arange(dense.shape[0] + 1)).astype(np.int32)
        return cls(data, columns.astype(np.int32), indptr, dense.shape)

    @classmethod
    def fromscipy(cls, matrix: Any) -> CSR:
        """From a matrix or an array of SciPy in any format.

        >>> import scipy.sparse
        >>> from rlx.sparse import CSR
        >>> CSR.fromscipy(scipy.sparse.eye_array(3)).nnz
        3
        """
        rows = matrix.tocsr()
        return cls(np.array(rows.data), rows.indices, rows.indptr, rows.shape)

    # ------------------------------------------------------------- products
    def multiply_columns(self, x: Any) -> Array:
        return csr_product(self.data, self.indices, self.indptr, x, columns=self.shape[1], transposed=False)

    def multiply_transposed(self, x: Any) -> Array:
        return csr_product(self.data, self.indices, self.indptr, x, columns=self.shape[1], transposed=True)

    def sample(self, x: Any, y: Any) -> CSR:
        """The matrix of this pattern with the elements of x @ y.T."""
        return self.with_data(sampled_product(x, y, self.indices, self.indptr))

    # ------------------------------------------------------------- conversions
    def tocsr(self) -> CSR:
        """The matrix itself."""
        return self

    def row_numbers(self) -> Array:
        """The row of each stored element."""
        if self.pattern is not None:
            return as_array(self.pattern.rows)
        places = jnp.arange(self.nnz, dtype=self.indptr.dtype)
        return (jnp.searchsorted(self.indptr[1:-1], places, side="right")).astype(self.indices.dtype)

    def todense(self) -> Array:
        dense = jnp.zeros(self.shape, self.dtype)
        return dense.at[self.row_numbers(), self.indices].add(self.data, mode="promise_in_bounds")

    def toscipy(self) -> Any:
        import scipy.sparse

        pattern = known_pattern("toscipy", self, "SciPy's matrices have values")
        arrays = (np.array(self.data), pattern.indices.copy(), pattern.indptr.copy())
        return scipy.sparse.csr_array(arrays, shape=self.shape)

    def diagonal(self) -> Array:
        size = min(self.shape)
        rows = self.row_numbers()
        inside = jnp.where(rows == self.indices, rows, size)
        return jnp.zeros(size, self.dtype).at[inside].add(self.data, mode="drop")

    def getrow(self, row: int) -> CSR:
        """One row, as a matrix of one row; its pattern must be known."""
        pattern = known_pattern("getrow", self, "the number of elements in a row must be known")
        start, end = pattern.indptr[operator.index(row) :][:2].tolist()
        return CSR(self.data[start:end], pattern.indices[start:end], [0, end - start], (1, self.shape[1]))

    def sum_duplicates(self) -> CSR:
        """The matrix with each place stored once and columns sorted in each row; its pattern must be known."""
        pattern = known_pattern("sum_duplicates", self, "its places must be compared")
        unique, places = pattern.canonical
        if unique is pattern:
            return self
        return CSR.of_pattern(_added_at(places, self.data, unique.nnz), unique)

    def sort_indices(self) -> CSR:
        """The matrix with its elements sorted by columns in each row; its pattern must be known."""
        pattern = known_pattern("sort_indices", self, "its places must be compared")
        order = pattern.sorting
        sorted_pattern = RowPattern.of_checked(pattern.indices[order], pattern.indptr, self.shape)
        return CSR.of_pattern(self.data[order], sorted_pattern)

    def eliminate_zeros(self) -> CSR:
        """The matrix without stored zeros; it must not be traced."""
        if not is_known(self.data):
            raise ConcretizationTypeError(
                "eliminate_zeros got a traced matrix: the number of its zeros is unknown.",
                "Call it outside of the compiled function.",
            )
        return CSR.fromscipy(_without_zeros(self.toscipy()))

    # ------------------------------------------------------------- sums and elementwise products
    def added(self, other: CSR) -> CSR:
        """The sum with a matrix of the same shape, at the places of both."""
        a, b = _alike("added", self, other)
        if a.pattern == b.pattern:
            return a.with_data(a.data + b.data)
        ours, theirs = (known_pattern("+", m, "the places of both must be compared") for m in (a, b))
        both, places = _union(ours, theirs)
        return CSR.of_pattern(_added_at(places, jnp.concatenate([a.data, b.data]), both.nnz), both)

    def multiply_elements(self, other: CSR) -> CSR:
        """The elementwise product with a sparse matrix, at the places of both."""
        a, b = (m.sum_duplicates() for m in _alike("multiplied", self, other))
        ours, theirs = (known_pattern("*", m, "the places of both must be compared") for m in (a, b))
        keys = (p.rows.astype(np.int64) * self.shape[1] + p.indices for p in (ours, theirs))
        _, left, right = np.intersect1d(*keys, assume_unique=True, return_indices=True)
        indptr = np.searchsorted(ours.rows[left], np.arange(self.shape[0] + 1))
        pattern = RowPattern.of_checked(ours.indices[left], indptr.astype(ours.indptr.dtype), self.shape)
        return CSR.of_pattern(a.data[left] * b.data[right], pattern)

    def scaled(self, factor: Array) -> CSR:
        """The elementwise product with an array that broadcasts to the matrix: stored elements remain stored."""
        if factor.ndim > 2 or np.broadcast_shapes(factor.shape, self.shape) != self.shape:
            raise ShapeError(f"A sparse matrix of shape {self.shape} was multiplied by an array of {factor.shape}.")
        rows, columns = (1,) * (2 - factor.ndim) + factor.shape
        places = (self.row_numbers() if rows != 1 else 0, self.indices if columns != 1 else 0)
        return self.with_data(self.data * factor.reshape(rows, columns)[places])

    def multiply_sparse(self, other: CSR) -> CSR:
        """The product with a sparse matrix; both patterns must be known."""
        if self.shape[1] != other.shape[0]:
            raise ShapeError(f"Sparse matrices of shapes {self.shape} and {other.shape} were multiplied.")
        why = "the places of the product must be known"
        ours, theirs = (known_pattern("spgemm", m, why) for m in (self, other))
        return _product_of(self, other, ours, theirs)

    @property
    def T(self) -> CSC:
        """The transposed matrix, by columns: of the same arrays."""
        return CSC.of_transposed(self)


class CSC(SparseMatrix):
    """A sparse matrix by columns: column j has the elements data[indptr[j]:indptr[j + 1]] in the rows `indices`.

    Arguments, leaves and errors are the same as in `CSR`, with rows and columns exchanged.

    >>> import numpy as np
    >>> from rlx.sparse import CSC
    >>> CSC(np.array([1.0, 2.0, 3.0]), [0, 2, 1], [0, 2, 3], (3, 2)).todense().tolist()
    [[1.0, 0.0], [0.0, 3.0], [2.0, 0.0]]
    """

    format = "csc"

    def __init__(self, data: Any, indices: Any, indptr: Any, shape: Sequence[int]) -> None:
        rows, columns = matrix_shape("CSC", shape)
        self.transposed = CSR(data, indices, indptr, (columns, rows))

    @classmethod
    def of_transposed(cls, matrix: CSR) -> CSC:
        """The transposed matrix of a CSR, of the same arrays."""
        made = object.__new__(cls)
        made.transposed = matrix
        return made

    @classmethod
    def from_dense(cls, array: Any, *, nse: int | None = None) -> CSC:
        """The nonzero elements of a dense matrix; see `CSR.from_dense`."""
        return CSR.from_dense(jnp.swapaxes(as_array(array), -1, -2), nse=nse).T

    @classmethod
    def fromscipy(cls, matrix: Any) -> CSC:
        """From a matrix or an array of SciPy in any format."""
        return CSR.fromscipy(matrix.T).T

    @property
    def data(self) -> Array:  # type: ignore[override]  # ty: ignore[incompatible-property-override]
        """The stored elements."""
        return self.transposed.data

    @property
    def indices(self) -> Array:
        """The row of each stored element."""
        return self.transposed.indices

    @property
    def indptr(self) -> Array:
        """Where each column starts in data, and the end."""
        return self.transposed.indptr

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]  # ty: ignore[incompatible-property-override]
        return self.transposed.shape[::-1]

    def with_data(self, data: Any) -> CSC:
        return self.transposed.with_data(data).T

    def multiply_columns(self, x: Any) -> Array:
        return self.transposed.multiply_transposed(x)

    def multiply_transposed(self, x: Any) -> Array:
        return self.transposed.multiply_columns(x)

    def tocsr(self) -> CSR:
        pattern = known_pattern("CSC.tocsr", self.transposed, "its elements must be sorted by rows")
        rows, order = pattern.transposition
        return CSR.of_pattern(self.data[order], rows)

    @property
    def T(self) -> CSR:
        """The transposed matrix, by rows: of the same arrays."""
        return self.transposed


def _alike(what: str, a: CSR, b: CSR) -> tuple[CSR, CSR]:
    """Two matrices with elements of one dtype. Raises ShapeError if their shapes differ."""
    if a.shape != b.shape:
        raise ShapeError(
            f"Sparse matrices of shapes {a.shape} and {b.shape} were {what}.", "Their shapes must be equal."
        )
    left, right = promote("sparse", a.data, b.data)
    return a.with_data(left), b.with_data(right)


def _without_zeros(matrix: Any) -> Any:
    matrix.eliminate_zeros()
    return matrix


def _added_at(places: np.ndarray, data: Array, count: int) -> Array:
    """`count` numbers, each the sum of the elements with its place."""
    return jnp.zeros(count, data.dtype).at[places].add(data, mode="promise_in_bounds")


def _union(a: RowPattern, b: RowPattern) -> tuple[RowPattern, np.ndarray]:
    """The places of two patterns, and the place of each of their elements."""
    rows = np.concatenate([a.rows, b.rows])
    order = np.argsort(rows, kind="stable")
    columns = np.concatenate([a.indices, b.indices])[order]
    joined = RowPattern.of_checked(columns, a.indptr + b.indptr, a.shape)
    both, places = joined.canonical
    back = np.empty_like(places)
    back[order] = places
    return both, back


def _product_of(a: CSR, b: CSR, ours: RowPattern, theirs: RowPattern) -> CSR:
    """The elements of a product: a sparse matrix, which has a's elements once for each use, times b's elements."""
    lengths = np.diff(theirs.indptr)[ours.indices]
    ends = np.cumsum(lengths, dtype=np.int64)
    count = int(ends[-1]) if len(ends) else 0
    number = np.int32 if max(count, a.shape[0], b.shape[1]) < np.iinfo(np.int32).max else np.int64
    used = np.repeat(np.arange(ours.nnz, dtype=number), lengths)
    first = (ends - lengths - theirs.indptr[ours.indices]).astype(number)
    other = np.arange(count, dtype=number) - np.repeat(first, lengths)
    counts = np.concatenate([[0], ends])[ours.indptr]
    every = RowPattern.of_checked(theirs.indices[other], counts.astype(number), (a.shape[0], b.shape[1]))
    pattern, places = every.canonical
    order = np.argsort(places, kind="stable").astype(number)
    ends = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=pattern.nnz))])
    uses = RowPattern.of_checked(other[order], ends.astype(number), (pattern.nnz, theirs.nnz))
    left, right = promote("spgemm", a.data, b.data)
    return CSR.of_pattern(CSR.of_pattern(left[used[order]], uses) @ right, pattern)


def known_pattern(name: str, matrix: CSR, why: str) -> RowPattern:
    """The matrix's pattern. Raises ConcretizationTypeError if it is traced."""
    if matrix.pattern is None:
        raise ConcretizationTypeError(
            f"{name} got a matrix whose indices are traced, and {why}.",
            "Make the matrix outside of the compiled function: its pattern is then static, and its data may be traced.",
        )
    return matrix.pattern


def _flatten(m: CSR) -> tuple[tuple[Any, ...], Any]:
    if m.pattern is None:
        return (m.data, m.indices, m.indptr), m.shape
    return (m.data,), m.pattern


def _unflatten(static: Any, children: Sequence[Any]) -> CSR:
    made = object.__new__(CSR)
    if isinstance(static, RowPattern):
        (made.data,), made.pattern, made.shape = children, static, static.shape
        made.indices, made.indptr = static.arrays
    else:
        (made.data, made.indices, made.indptr), made.pattern, made.shape = children, None, static
    return made


tree.register_node(CSR, _flatten, _unflatten)
tree.register_node(CSC, lambda m: ((m.transposed,), None), lambda _, kids: CSC.of_transposed(kids[0]))
