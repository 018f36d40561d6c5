"""Some eigenvalues and eigenvectors of symmetric matrices and operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import InputTypeError, OptionError, ShapeError
from rlx.numpy.promotion import promote_inexact
from rlx.ops.sparse_least_squares import csr_eigsh
from rlx.sparse.compressed import CSR, known_pattern
from rlx.sparse.construction import eye, hstack, vstack
from rlx.sparse.direct import spsolve
from rlx.sparse.matrix import SparseMatrix
from rlx.trace.flat import as_array
from rlx.transforms.custom import custom_jvp

__all__ = ["eigsh", "lobpcg_standard"]

_WHICH = ("LM", "SM", "LA", "SA", "BE")


def eigsh(
    A: Any, k: int = 6, *, which: str = "LM", sigma: float | None = None, tol: float = 0.0, maxiter: int | None = None
) -> tuple[Array, Array]:
    """k eigenvalues of a real symmetric sparse matrix, ascending, and their eigenvectors as columns.

    Args:
      A: a sparse matrix [n, n]; its symmetric part is used. Its indices must be known.
      k: their number, less than n.
      which: "LM", "SM": largest or smallest magnitude; "LA", "SA": largest or smallest; "BE": from both ends.
      sigma: find the eigenvalues next to this number, by factors of A - sigma (then "LM" is of 1 / (w - sigma)).
      tol, maxiter: of the iteration (0: rounding errors; None: ten for each row).

    Returns: (w, v). The largest component of a vector is positive. NaN if the iteration does not converge.

    The derivative of each pair is a solve with the matrix bordered by its vector; it is NaN or very large for
    eigenvalues that are equal.

    Raises: ShapeError, InputTypeError, OptionError, DtypeError for complex matrices, ConcretizationTypeError for traced
    indices. It runs on the host. Source: Lehoucq, Sorensen and Yang 1998, by SciPy.

    >>> from rlx import sparse
    >>> w, v = sparse.eigsh(sparse.diags([1.0, 2.0, 3.0, 4.0]), 2, which="LA")
    >>> w.round(6)
    Array([3., 4.], dtype=float64)
    """
    if not isinstance(A, SparseMatrix):
        raise InputTypeError(f"eigsh got {type(A).__name__} for a sparse matrix.", "Use sparse.from_dense(A).")
    matrix = A.tocsr()
    known_pattern("eigsh", matrix, "its derivative borders it")
    if matrix.shape[0] != matrix.shape[1] or not 0 < k < matrix.shape[0]:
        raise ShapeError(f"eigsh got a matrix of shape {matrix.shape} and k={k}.", "It is square, and 0 < k < n.")
    if which not in _WHICH:
        raise OptionError(f"eigsh got which={which!r}.", f"There are {', '.join(map(repr, _WHICH))}.")
    (data,) = promote_inexact("eigsh", matrix.data)
    symmetric = (matrix.with_data(data) + matrix.with_data(data).T) * 0.5
    options = (("count", k), ("which", which), ("sigma", sigma), ("tol", float(tol)), ("maxiter", maxiter))
    return _pairs(options)(symmetric)


def _pairs(options: Sequence[tuple[str, Any]]) -> Any:
    """The eigenvalues and eigenvectors of a symmetric matrix, with their derivative."""

    @custom_jvp
    def pairs(matrix: CSR) -> tuple[Array, Array]:
        values, vectors = csr_eigsh(matrix.data, matrix.indices, matrix.indptr, **dict(options))
        return values, vectors

    @pairs.defjvp
    def _pairs_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        matrix, change = primals[0], tangents[0]
        values, vectors = pairs(matrix)
        moved = change @ vectors
        parts = [_pair_change(matrix, values[n], vectors[:, n], moved[:, n]) for n in range(vectors.shape[1])]
        return (values, vectors), (jnp.stack([p[0] for p in parts]), jnp.stack([p[1] for p in parts], axis=1))

    return pairs


def _pair_change(matrix: CSR, value: Array, vector: Array, moved: Array) -> tuple[Array, Array]:
    """The change of an eigenvalue and of its vector, for the change of the matrix times the vector.

    (A - w) dv - v dw = -dA v with v.T dv = 0, as one sparse system.
    """
    order = matrix.shape[0]
    shifted = matrix - eye(order, dtype=matrix.dtype) * value
    column = CSR(vector, np.zeros(order, np.int32), np.arange(order + 1, dtype=np.int32), (order, 1))
    row = CSR(vector, np.arange(order, dtype=np.int32), np.array([0, order], np.int32), (1, order))
    corner = CSR(jnp.zeros(1, matrix.dtype), [0], [0, 1], (1, 1))
    bordered = vstack([hstack([shifted, -column]), hstack([row, corner])])
    found = spsolve(bordered, jnp.concatenate([-moved, jnp.zeros(1, moved.dtype)]))
    return found[-1], found[:-1]


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: float | None = None) -> tuple[Array, Array, Array]:
    """The k largest eigenvalues of a symmetric positive definite matrix or operator, by a preconditioned block method.

    Args:
      A: a sparse or dense matrix [n, n], or a function of arrays [n, k]. X: where to start, [n, k] with 5 k < n.
      m: the maximum number of iterations.
      tol: of residuals, relative to the eigenvalues (None: the dtype's rounding error).

    Returns: (eigenvalues descending [k], eigenvectors as columns [n, k], iterations), as jax.experimental.sparse does.

    Raises: ShapeError if X is too wide. Source: Knyazev 2001; Duersch, Shao, Yang and Gu 2018.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> w, v, _ = sparse.lobpcg_standard(sparse.diags(np.arange(1.0, 21.0)), np.eye(20)[:, :2] + 0.1)
    >>> w.round(4)
    Array([20., 19.], dtype=float64)
    """
    start = as_array(X)
    if start.ndim != 2 or 5 * start.shape[1] >= start.shape[0]:
        raise ShapeError(
            f"lobpcg_standard got X of shape {start.shape}.", "It has n rows and k columns, with 5 k < n; use eigsh."
        )
    multiply = A if callable(A) else lambda x: A @ x
    enough = np.finfo(start.dtype).eps if tol is None else tol
    k = start.shape[1]
    basis = jnp.linalg.qr(start)[0]

    def pairs_in(space: Array) -> tuple[Array, Array]:
        orthogonal = jnp.linalg.qr(space)[0]
        small = orthogonal.T @ multiply(orthogonal)
        values, weights = jnp.linalg.eigh((small + small.T) / 2)
        return values[::-1][:k], orthogonal @ weights[:, ::-1][:, :k]

    def residual_of(values: Array, vectors: Array) -> Array:
        return multiply(vectors) - vectors * values

    def go_on(state: Any) -> Any:
        values, _, _, residual, count = state
        size = jnp.linalg.norm(residual, axis=0)
        return (count < m) & jnp.any(size > enough * 10 * start.shape[0] * jnp.abs(values))

    def step(state: Any) -> Any:
        values, vectors, before, residual, count = state
        next_values, found = pairs_in(jnp.concatenate([vectors, residual, before], axis=1))
        along = found - vectors @ (vectors.T @ found)
        return next_values, found, along, residual_of(next_values, found), count + 1

    values, vectors = pairs_in(basis)
    first = (values, vectors, jnp.zeros_like(vectors), residual_of(values, vectors), jnp.zeros((), np.int32))
    values, vectors, _, _, count = lax.while_loop(go_on, step, first)
    return values, vectors, count
