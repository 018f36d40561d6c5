"""Sparse matrices made from others, from diagonals, and from matrices of SciPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import is_array
from rlx.errors import OptionError, ShapeError
from rlx.sparse.compressed import CSC, CSR, known_pattern
from rlx.sparse.coordinates import COO
from rlx.sparse.matrix import SparseMatrix
from rlx.sparse.patterns import RowPattern
from rlx.trace.flat import as_array

__all__ = ["block_diag", "diags", "eye", "from_dense", "fromscipy", "hstack", "kron", "vstack"]

_FORMATS: dict[str, Any] = {"csr": CSR, "csc": CSC, "coo": COO}


def _format(name: str, format: str) -> Any:
    if format not in _FORMATS:
        raise OptionError(f"{name} got format={format!r}.", f"There are {', '.join(map(repr, _FORMATS))}.")
    return _FORMATS[format]


def from_dense(array: Any, *, nse: int | None = None, format: str = "csr") -> Any:
    """The nonzero elements of a matrix as a sparse one; of a traced matrix, `nse` of them.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.from_dense(np.eye(3, dtype=np.float32))
    CSR(float32[3, 3], nnz=3)
    """
    return _format("from_dense", format).from_dense(array, nse=nse)


def fromscipy(matrix: Any, *, format: str = "csr") -> Any:
    """A sparse matrix from a matrix or an array of SciPy in any format.

    >>> import scipy.sparse
    >>> from rlx import sparse
    >>> sparse.fromscipy(scipy.sparse.eye_array(2), format="coo")
    COO(float64[2, 2], nnz=2)
    """
    return _format("fromscipy", format).fromscipy(matrix)


def diags(diagonals: Any, offsets: Any = 0, shape: Sequence[int] | None = None, dtype: Any = None) -> CSR:
    """The matrix with these elements on its diagonals, by rows.

    Args:
      diagonals: a sequence of arrays or numbers, one for each offset; or one array for one offset. Lists and numbers of
        Python are NumPy's: float64.
      offsets: of the diagonals: 0 is the main one, 1 the one above it.
      shape: of the matrix (None: the square matrix in which the first diagonal fits).

    Raises ShapeError if a diagonal does not fit.

    >>> from rlx import sparse
    >>> sparse.diags([[-1.0, -1.0], [2.0, 2.0, 2.0]], [1, 0]).todense().tolist()
    [[2.0, -1.0, 0.0], [0.0, 2.0, -1.0], [0.0, 0.0, 2.0]]
    """
    places = np.atleast_1d(np.asarray(offsets)).tolist()
    given = [diagonals] if np.ndim(offsets) == 0 else diagonals
    values = [as_array(d if is_array(d) else np.asarray(d)) for d in given]
    if len(values) != len(places):
        raise ShapeError(f"diags got {len(values)} diagonals and {len(places)} offsets.", "Pass one for each other.")
    if shape is None and not places:
        raise ShapeError("diags got no diagonals and no shape.", "Pass the shape of the matrix.")
    if shape is None:
        side = max(v.shape[0] + abs(k) for v, k in zip(values, places, strict=True) if v.ndim)
        shape = (side, side)
    rows, columns, data = [np.zeros(0, int)], [np.zeros(0, int)], []
    for value, offset in zip(values, places, strict=True):
        first = max(0, -offset)
        length = max(0, min(shape[0] - first, shape[1] - max(0, offset)))
        if value.ndim > 1 or (value.ndim == 1 and value.shape[0] not in (1, length)):
            raise ShapeError(
                f"diags got a diagonal of shape {value.shape} at the offset {offset} of a matrix of shape"
                f" {tuple(shape)}.",
                f"It has {length} elements.",
            )
        rows.append(np.arange(first, first + length))
        columns.append(rows[-1] + offset)
        data.append(jnp.broadcast_to(value, (length,)))
    joined = jnp.concatenate(data) if data else jnp.zeros(0, np.float64 if dtype is None else dtype)
    made = COO(joined if dtype is None else joined.astype(dtype), np.concatenate(rows), np.concatenate(columns), shape)
    return made.tocsr().sum_duplicates()


def eye(rows: int, columns: int | None = None, k: int = 0, dtype: Any = np.float64) -> CSR:
    """The matrix with ones on a diagonal.

    >>> from rlx import sparse
    >>> sparse.eye(2).todense().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return diags([np.ones((), dtype)], [k], (rows, rows if columns is None else columns))


def _parts(name: str, matrices: Sequence[Any]) -> list[CSR]:
    if not matrices:
        raise ShapeError(f"{name} got no matrices.", "Pass at least one.")
    return [m.tocsr() if isinstance(m, SparseMatrix) else CSR.from_dense(m) for m in matrices]


def _patterns(name: str, parts: Sequence[CSR]) -> list[RowPattern]:
    return [known_pattern(name, part, "the places of all parts must be known") for part in parts]


def vstack(matrices: Sequence[Any]) -> CSR:
    """Matrices one below the other. Raises ShapeError if their columns differ.

    >>> from rlx import sparse
    >>> sparse.vstack([sparse.eye(2), sparse.eye(2)]).shape
    (4, 2)
    """
    parts = _parts("vstack", matrices)
    if len({p.shape[1] for p in parts}) != 1:
        raise ShapeError(f"vstack got matrices of shapes {[p.shape for p in parts]}.", "They need the same columns.")
    patterns = _patterns("vstack", parts)
    starts = np.cumsum([0] + [p.nnz for p in patterns[:-1]])
    indptr = np.concatenate([[0]] + [p.indptr[1:] + s for p, s in zip(patterns, starts, strict=True)])
    shape = (sum(p.shape[0] for p in parts), parts[0].shape[1])
    return CSR(jnp.concatenate([p.data for p in parts]), np.concatenate([p.indices for p in patterns]), indptr, shape)


def hstack(matrices: Sequence[Any]) -> CSR:
    """Matrices side by side. Raises ShapeError if their rows differ.

    >>> from rlx import sparse
    >>> sparse.hstack([sparse.eye(2), sparse.eye(2)]).shape
    (2, 4)
    """
    return vstack([p.T.tocsr() for p in _parts("hstack", matrices)]).T.tocsr()


def block_diag(matrices: Sequence[Any]) -> CSR:
    """Matrices along the diagonal.

    >>> from rlx import sparse
    >>> sparse.block_diag([sparse.eye(2), sparse.eye(3)]).shape
    (5, 5)
    """
    parts = _parts("block_diag", matrices)
    patterns = _patterns("block_diag", parts)
    lefts = np.cumsum([0] + [p.shape[1] for p in patterns[:-1]])
    width = sum(p.shape[1] for p in patterns)
    moved = [
        CSR.of_pattern(part.data, RowPattern.of_checked(p.indices + left, p.indptr, (p.shape[0], width)))
        for part, p, left in zip(parts, patterns, lefts, strict=True)
    ]
    return vstack(moved)


def kron(a: Any, b: Any) -> CSR:
    """The Kronecker product: each element of a times b.

    >>> from rlx import sparse
    >>> sparse.kron(sparse.eye(2), sparse.eye(3)).shape
    (6, 6)
    """
    left, right = _parts("kron", [a, b])
    p, q = _patterns("kron", [left, right])
    rows = (p.rows[:, None].astype(np.int64) * right.shape[0] + q.rows).ravel()
    columns = (p.indices[:, None].astype(np.int64) * right.shape[1] + q.indices).ravel()
    data = (left.data[:, None] * right.data).reshape(-1)
    return COO(data, rows, columns, (left.shape[0] * right.shape[0], left.shape[1] * right.shape[1])).tocsr()
