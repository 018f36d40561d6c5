"""Direct solutions of sparse linear systems on the host.

Factors are SciPy's SuperLU's (Li, Demmel and others), or the Cholesky factors that a backend offers.

Factors are found by the contents of the matrix: the solves of a gradient use the function's factors. The ordering of a
pattern is found by the contents of the pattern, so that a matrix with new values is only factored.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rlx.forks import cached_property, reopen_after_fork
from rlx.routines.common import Arrays, Attributes

__all__ = [
    "SparseFactor",
    "csr_eigsh",
    "csr_inverse_change",
    "csr_inverse_entries",
    "csr_logdet",
    "csr_lstsq",
    "csr_solve",
    "factor_of",
    "offer_cholesky",
]

Found = TypeVar("Found")
_ORDERINGS = {"colamd": "COLAMD", "minimum degree": "MMD_AT_PLUS_A", "natural": "NATURAL"}
_PIVOTS = {"general": 1.0, "symmetric": 0.1, "positive definite": 0.0}  # the least pivot, relative to its column
_BLOCK = 64  # columns that are solved for together
_SINGLE_STEPS = 3  # of refinement, for factors in single precision
_LEAST_CHOLESKY = 500  # columns of a matrix that a backend's Cholesky factors; smaller ones take SuperLU no time

# (indices, indptr, order of elimination) to an object with `nbytes` and factors(elements), or None. The factors have
# nnz, solve, slogdet and inverse_entries, and are None for a matrix that is not positive definite.
CholeskyOffer = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
_cholesky_offers: list[CholeskyOffer] = []


def offer_cholesky(offer: CholeskyOffer) -> None:
    """Use a backend's Cholesky factors for large positive definite matrices."""
    _cholesky_offers[:] = [offer]


class _RecentValues:
    """Values by key. The least recently used ones are dropped. weigh: the bytes of a value."""

    def __init__(self, count: int, nbytes: int, weigh: Callable[[Any], int]) -> None:
        self.values: OrderedDict[Any, Any] = OrderedDict()
        self.count, self.nbytes, self.weigh = count, nbytes, weigh
        self._lock = threading.Lock()
        reopen_after_fork(self)

    def get(self, key: Any, make: Callable[[], Found]) -> Found:
        """The value of a key, made if there is none."""
        with self._lock:
            if key in self.values:
                self.values.move_to_end(key)
                return self.values[key]
        made = make()
        with self._lock:
            self.values[key] = made
            while len(self.values) > self.count or sum(map(self.weigh, self.values.values())) > self.nbytes:
                if len(self.values) == 1:
                    break
                self.values.popitem(last=False)
        return made


class _Analysis:
    """What is known about a pattern: sorted places without duplicates, and the ordering of an earlier factor."""

    def __init__(self, indices: np.ndarray, indptr: np.ndarray) -> None:
        self.order = len(indptr) - 1
        rows = np.repeat(np.arange(self.order), np.diff(indptr))
        steps = (rows[1:] > rows[:-1]) | (indices[1:] > indices[:-1])
        self.places: np.ndarray | None = None
        self.indices, self.indptr = indices.astype(np.int32), indptr.astype(np.int32)  # copies
        if not steps.all():
            keys, self.places = np.unique(rows * np.int64(self.order) + indices, return_inverse=True)
            self.indices = (keys % self.order).astype(np.int32)
            self.indptr = np.searchsorted(keys // self.order, np.arange(self.order + 1)).astype(np.int32)
        self.permuted: dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = {}
        self.cholesky: dict[str, Any] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        extra = sum(a.nbytes for kept in self.permuted.values() for a in kept)
        extra += sum(pattern.nbytes for pattern in self.cholesky.values() if pattern is not None)
        return self.indices.nbytes + self.indptr.nbytes + extra

    def cholesky_factors(self, elements: np.ndarray, ordering: str) -> Any:
        """A backend's Cholesky factors of the matrix; None if there are none."""
        if self.order < _LEAST_CHOLESKY or not _cholesky_offers or ordering == "colamd":
            return None
        if ordering not in self.cholesky:
            order = np.arange(self.order) if ordering == "natural" else self._minimum_degree()
            self.cholesky[ordering] = _cholesky_offers[0](self.indices, self.indptr, order)
        pattern = self.cholesky[ordering]
        return None if pattern is None else pattern.factors(elements)

    def _minimum_degree(self) -> np.ndarray:
        """SuperLU's ordering, from incomplete factors without any element beside the diagonal."""
        from scipy.sparse import csc_array, eye_array
        from scipy.sparse.linalg import spilu

        ones = csc_array((np.ones(len(self.indices)), self.indices, self.indptr), shape=(self.order, self.order))
        factors = spilu(
            ones + 2 * eye_array(self.order), drop_tol=1e30, fill_factor=1,
            permc_spec=_ORDERINGS["minimum degree"], diag_pivot_thresh=0, options={"SymmetricMode": True},
        )  # fmt: skip
        return np.argsort(factors.perm_c)

    def summed(self, data: np.ndarray) -> np.ndarray:
        """The elements at the sorted places."""
        if self.places is None:
            return data
        found = np.zeros(len(self.indices), data.dtype)
        np.add.at(found, self.places, data)
        return found

    def keep_ordering(self, key: Any, permutation: np.ndarray, both: bool) -> None:
        """Remember the order of the columns (and rows) of a factor, and the matrix's pattern in that order."""
        from scipy.sparse import csc_array

        order = np.argsort(permutation)
        numbers = csc_array((np.arange(len(self.indices)), self.indices, self.indptr), shape=(self.order,) * 2)
        found = numbers[order][:, order] if both else numbers[:, order]
        found.sort_indices()
        self.permuted[key] = (order, found.data, found.indices, found.indptr)


class SparseFactor:
    """The factors of a sparse matrix, for solves with it and with its transpose.

    The arrays of a matrix by rows are also the arrays of the transposed matrix by columns, which is factored.
    """

    def __init__(self, analysis: _Analysis, data: np.ndarray, attributes: Attributes) -> None:
        assume, ordering = attributes.get("assume", "general"), attributes.get("ordering")
        wide = np.result_type(data.dtype, np.float64)
        values = analysis.summed(data.astype(wide))  # a copy: the memory of operands is used again
        self.single = attributes.get("factor_dtype") == "float32"
        self.narrow = np.dtype("c8" if wide.kind == "c" else "f4") if self.single else wide
        self.analysis, self.values = analysis, values
        self.order: np.ndarray | None = None
        self.row_order: np.ndarray | None = None
        self.factor: Any = None
        self.is_cholesky = False
        if np.isfinite(values).all():
            self._set_factor(assume, ordering or ("minimum degree" if assume != "general" else "colamd"))

    def _set_factor(self, assume: str, ordering: str) -> None:
        """Cholesky's factors of a positive definite matrix, or else LU factors, in an order that is known or found."""
        analysis, symmetric = self.analysis, assume != "general"
        if assume == "positive definite":
            self.factor = analysis.cholesky_factors(self.values.astype(self.narrow, copy=False), ordering)
            self.is_cholesky = self.factor is not None
            if self.is_cholesky:
                return
        key = (ordering, symmetric)
        indices, indptr, elements, spec = analysis.indices, analysis.indptr, self.values, _ORDERINGS[ordering]
        if key in analysis.permuted and ordering != "natural":
            self.order, numbers, indices, indptr = analysis.permuted[key]
            elements, spec = self.values[numbers], "NATURAL"
            self.row_order = self.order if symmetric else None
        self.factor = _factored(elements.astype(self.narrow, copy=False), indices, indptr, spec, assume)
        if self.factor is not None and self.order is None and ordering != "natural":
            analysis.keep_ordering(key, self.factor.perm_c, symmetric)

    @property
    def nbytes(self) -> int:
        """The bytes of the factors, with their indices."""
        return 0 if self.factor is None else self.factor.nnz * (self.narrow.itemsize + 4)

    @cached_property
    def matrix(self) -> Any:
        """The transposed matrix, by columns, in double precision."""
        from scipy.sparse import csc_array

        kept = self.analysis
        return csc_array((self.values, kept.indices, kept.indptr), shape=(kept.order, kept.order))

    def solve(self, b: np.ndarray, transposed: bool = False, refine: int = 1) -> np.ndarray:
        """x with A x = b, or A.T x = b, in double precision; NaN if the matrix is singular."""
        right = b.astype(np.result_type(b.dtype, self.values.dtype), copy=False)
        if self.factor is None:
            return np.full(right.shape, np.nan, right.dtype)
        x = self._once(right, transposed)
        operator = self.matrix if transposed else self.matrix.T
        for _ in range(max(refine, _SINGLE_STEPS) if self.single else refine):
            x = x + self._once(right - operator @ x, transposed)
        return x

    def _once(self, b: np.ndarray, transposed: bool) -> np.ndarray:
        """A solve with the factors, of the matrix in their order."""
        # the factored matrix is P A.T Q: rows in row_order, columns in order
        into, out = (self.row_order, self.order) if transposed else (self.order, self.row_order)
        right = np.ascontiguousarray(b if into is None else b[into], self.narrow)
        found = self.factor.solve(right, "N" if transposed else "T")
        if out is None:
            return found.astype(b.dtype, copy=False)
        x = np.empty(found.shape, b.dtype)
        x[out] = found
        return x

    def logdet(self) -> tuple[Any, Any]:
        """The sign of the determinant, and the logarithm of its absolute value."""
        if self.factor is None:
            return self.values.dtype.type(0), np.float64(-np.inf)
        if self.is_cholesky:
            return self.factor.slogdet()
        diagonal = self.factor.U.diagonal()
        sizes = np.abs(diagonal)
        orders = [self.factor.perm_r, self.factor.perm_c, self.order, self.row_order]
        odd = sum(_is_odd(order) for order in orders if order is not None) % 2
        with np.errstate(all="ignore"):
            return np.prod(diagonal / sizes) * (-1 if odd else 1), np.log(sizes).sum()


def _factored(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, ordering: str, assume: str) -> Any:
    """SuperLU's factors; None for a singular matrix."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    order = len(indptr) - 1
    matrix = csc_array((data, indices, indptr), shape=(order, order))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    try:
        return splu(
            matrix, permc_spec=ordering, diag_pivot_thresh=_PIVOTS[assume],
            options={"SymmetricMode": assume != "general"},
        )  # fmt: skip
    except RuntimeError as error:
        if "singular" not in str(error):
            raise
        return None


def _is_odd(order: np.ndarray) -> bool:
    """Whether a permutation is odd: it has n - cycles transpositions."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(order)
    graph = csr_array((np.ones(n, np.int8), (np.arange(n), order)), shape=(n, n))
    return bool((n - connected_components(graph, directed=False, return_labels=False)) % 2)


_analyses = _RecentValues(8, 256 << 20, lambda a: a.nbytes)
_factors = _RecentValues(4, 512 << 20, lambda f: f.nbytes)


def factor_of(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, attributes: Attributes) -> SparseFactor:
    """The factors of a matrix by rows; factors of an equal matrix are used again if they are kept."""
    pattern = _digest(indices, indptr)
    options = (attributes.get("assume"), attributes.get("ordering"), attributes.get("factor_dtype"))
    analysis = _analyses.get(pattern, lambda: _Analysis(indices, indptr))
    key = (pattern, _digest(data), options)
    return _factors.get(key, lambda: SparseFactor(analysis, data, attributes))


def _digest(*arrays: np.ndarray) -> bytes:
    found = hashlib.sha1(usedforsecurity=False)
    for array in arrays:
        found.update(repr((array.dtype.str, array.shape)).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.digest()


# ------------------------------------------------------------- routines
def csr_solve(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """x with A x = b, for one matrix or a batch of matrices of one pattern."""
    data, indices, indptr, b = inputs
    if not b.size:
        return (b.copy(),)
    batches = zip(data, b, strict=True) if data.ndim == 2 else [(data, b)]
    found = [
        factor_of(values, indices, indptr, attributes).solve(right, attributes["transposed"], attributes["refine"])
        for values, right in batches
    ]
    return (np.ascontiguousarray(np.stack(found).reshape(b.shape), b.dtype),)


def csr_logdet(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The sign and the logarithm of the absolute value of the determinant."""
    data, indices, indptr = inputs
    real = np.empty(0, data.dtype).real.dtype
    found = [factor_of(row, indices, indptr, attributes).logdet() for row in np.atleast_2d(data)]
    signs, logs = (np.array(part).reshape(data.shape[:-1]) for part in zip(*found, strict=True))
    return signs.astype(data.dtype), logs.astype(real)


def csr_inverse_entries(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The elements of the transposed inverse at the stored places of the matrix."""
    data, indices, indptr = inputs
    found = [_inverse_entries(factor_of(row, indices, indptr, attributes)) for row in np.atleast_2d(data)]
    return (np.stack(found).reshape(data.shape).astype(data.dtype),)


def csr_inverse_change(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The first-order change of csr_inverse_entries, by two solves for each column, in blocks."""
    from scipy.sparse import csr_array

    data, indices, indptr, changes = inputs
    order = len(indptr) - 1
    rows = np.repeat(np.arange(order), np.diff(indptr))
    found = np.empty(data.shape, data.dtype)
    for values, change, out in zip(np.atleast_2d(data), np.atleast_2d(changes), np.atleast_2d(found), strict=True):
        factor = factor_of(values, indices, indptr, attributes)
        matrix = csr_array((change, indices, indptr), shape=(order, order))
        for start in range(0, order, _BLOCK):
            columns = np.eye(order, min(_BLOCK, order - start), -start)
            block = factor.solve(matrix @ factor.solve(columns))
            inside = (rows >= start) & (rows < start + _BLOCK)
            out[inside] = -block[indices[inside], rows[inside] - start]
    return (found,)


def _inverse_entries(factor: SparseFactor) -> np.ndarray:
    """By Takahashi's recursion over the columns of the factors, from the last to the first.

    The inverse Z of L U fulfils, for the places s below the diagonal in column j of L or row j of U:
    Z[s, j] = -Z[s, s] L[s, j], Z[j, s] = -U[j, s] / U[j, j] Z[s, s], Z[j, j] = (1 - U[j, s] Z[s, j]) / U[j, j].
    All of s but its first place p are places of column p, so that Z[s, s] is part of the block that p leaves.
    Source: Takahashi, Fagan and Chin 1973; Erisman and Tinney 1975.
    """
    kept = factor.analysis
    count = len(kept.indices) if kept.places is None else len(kept.places)
    if factor.factor is None:
        return np.full(count, np.nan, factor.values.dtype)
    if factor.is_cholesky:
        found = factor.factor.inverse_entries()
        return found if kept.places is None else found[kept.places]
    lower, upper = factor.factor.L.tocsc(), factor.factor.U.tocsr()
    lower.sort_indices()
    upper.sort_indices()
    rows = np.repeat(np.arange(kept.order), np.diff(kept.indptr))
    # A.T[i, j] is at row perm_r[i'], column perm_c[j'] of L U, where i', j' are its places in the factored order
    i, j = (np.arange(kept.order) if o is None else np.argsort(o) for o in (factor.row_order, factor.order))
    at_row, at_column = factor.factor.perm_r[i[kept.indices]], factor.factor.perm_c[j[rows]]
    found = _InverseBlocks(lower, upper, at_column, at_row).elements()
    return found if kept.places is None else found[kept.places]


class _InverseBlocks:
    """The inverse of L U at the places of the factors, column by column."""

    def __init__(self, lower: Any, upper: Any, rows: np.ndarray, columns: np.ndarray) -> None:
        self.lower, self.upper, self.order = lower, upper, lower.shape[0]
        self.rows, self.columns = rows, columns
        first = np.minimum(rows, columns)
        self.wanted = np.argsort(first, kind="stable")
        self.starts = np.searchsorted(first[self.wanted], np.arange(self.order + 1))
        self.places = self._closed()

    def _wanted(self, j: int) -> np.ndarray:
        """The numbers of the wanted places that column j is the first row or column of."""
        return self.wanted[self.starts[j] : self.starts[j + 1]]

    def _closed(self) -> list[np.ndarray]:
        """For each column, the places below the diagonal: of the factors, wanted ones, and what elimination fills.

        Factors do not have the places of stored zeros.
        """
        fill: list[list[np.ndarray]] = [[] for _ in range(self.order)]
        places: list[np.ndarray] = []
        last = np.maximum(self.rows, self.columns)
        l_indices, l_ends, u_indices, u_ends = (
            self.lower.indices, self.lower.indptr, self.upper.indices, self.upper.indptr,
        )  # fmt: skip
        for j in range(self.order):
            own = (l_indices[l_ends[j] : l_ends[j + 1]], u_indices[u_ends[j] : u_ends[j + 1]], last[self._wanted(j)])
            s = np.unique(np.concatenate([*own, *fill[j]]))
            s = s[s > j]
            fill[j] = []
            places.append(s)
            if len(s) > 1:
                fill[s[0]].append(s[1:])
        return places

    def elements(self) -> np.ndarray:
        """The elements of the inverse at the wanted places."""
        rows, columns = self.rows, self.columns
        found = np.empty(len(rows), np.result_type(self.upper.dtype, np.float64))
        blocks: dict[int, np.ndarray] = {}
        children: list[int] = [0] * self.order
        for s in self.places:
            if len(s):
                children[s[0]] += 1
        for j in range(self.order - 1, -1, -1):
            s = self.places[j]
            block = self._block(j, s, blocks)
            if len(s):
                children[s[0]] -= 1
                if not children[s[0]]:
                    del blocks[s[0]]
            if children[j]:
                blocks[j] = block
            numbers = self._wanted(j)
            if len(numbers):
                every = np.concatenate([[j], s])
                found[numbers] = block[
                    np.searchsorted(every, rows[numbers]), np.searchsorted(every, columns[numbers])
                ]
        return found

    def _block(self, j: int, s: np.ndarray, blocks: dict[int, np.ndarray]) -> np.ndarray:
        """The inverse at the rows and columns j and s."""
        u = _dense_row(self.upper, j, s)
        pivot = self.upper.data[self.upper.indptr[j]]
        block = np.empty((len(s) + 1, len(s) + 1), np.result_type(self.upper.dtype, np.float64))
        if len(s):
            above = np.concatenate([[s[0]], self.places[s[0]]])
            at = np.searchsorted(above, s)
            inner = blocks[s[0]][np.ix_(at, at)]
            block[1:, 1:] = inner
            block[1:, 0] = -inner @ _dense_row(self.lower, j, s)
            block[0, 1:] = -(u / pivot) @ inner
        block[0, 0] = (1 - u @ block[1:, 0]) / pivot
        return block


def _dense_row(matrix: Any, number: int, places: np.ndarray) -> np.ndarray:
    """The elements of a compressed row (or column) at places that include all of its own after the diagonal."""
    start, end = matrix.indptr[number], matrix.indptr[number + 1]
    own = matrix.indices[start:end]
    later = own > number
    row = np.zeros(len(places), matrix.dtype)
    row[np.searchsorted(places, own[later])] = matrix.data[start:end][later]
    return row


# ------------------------------------------------------------- iterations of SciPy
def csr_lstsq(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The least squares solutions of the smallest norm, column by column, by LSQR or LSMR."""
    from scipy.sparse import csr_array
    from scipy.sparse import linalg as solvers

    data, indices, indptr, b = inputs
    matrix: Any = csr_array((data, indices, indptr), shape=(len(indptr) - 1, attributes["columns"]))
    matrix = matrix.T.tocsr() if attributes["transposed"] else matrix
    options = {"atol": attributes["tol"], "btol": attributes["tol"], "conlim": 0}
    limit = attributes["maxiter"]
    x = np.empty((matrix.shape[1], b.shape[1]), b.dtype)
    counts = np.zeros(b.shape[1], np.int32)
    for number, column in enumerate(np.ascontiguousarray(b.T)):
        if not (np.isfinite(column).all() and np.isfinite(data).all()):
            x[:, number] = np.nan
        elif attributes["method"] == "lsqr":
            x[:, number], _, counts[number] = solvers.lsqr(matrix, column, iter_lim=limit, **options)[:3]
        else:
            x[:, number], _, counts[number] = solvers.lsmr(matrix, column, maxiter=limit, **options)[:3]
    return x, counts


def csr_eigsh(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """Some eigenvalues of a symmetric matrix, ascending, and their eigenvectors as columns, by ARPACK."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    data, indices, indptr = inputs
    order, k = len(indptr) - 1, attributes["count"]
    matrix = csc_array((data, indices, indptr), shape=(order, order))
    start = np.random.default_rng(0).standard_normal(order).astype(data.dtype)
    values = vectors = None
    try:
        values, vectors = eigsh(
            matrix, k, which=attributes["which"], sigma=attributes["sigma"], tol=attributes["tol"],
            maxiter=attributes["maxiter"], v0=start,
        )  # fmt: skip
    except (ArpackNoConvergence, RuntimeError):
        pass  # the values say so
    if values is None or vectors is None:
        return np.full(k, np.nan, data.dtype), np.full((order, k), np.nan, data.dtype)
    ascending = np.argsort(values)
    vectors = vectors[:, ascending]
    # the largest component is positive, so that equal matrices have equal vectors
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    return values[ascending], np.ascontiguousarray(vectors * np.where(largest < 0, -1, 1), data.dtype)
