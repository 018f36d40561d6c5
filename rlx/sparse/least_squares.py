"""Least squares with sparse matrices of any shape and rank."""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import InputTypeError, ShapeError
from rlx.numpy.promotion import promote_inexact
from rlx.ops.sparse_least_squares import csr_lstsq
from rlx.sparse.krylov import SolverInfo
from rlx.sparse.matrix import SparseMatrix
from rlx.trace.flat import as_array

__all__ = ["lsmr", "lsqr"]


def lsqr(A: Any, b: Any, *, tol: float = 1e-6, maxiter: int | None = None) -> tuple[Array, SolverInfo]:
    """The x of the smallest norm among those with the least norm of b - A x, for a sparse matrix of any rank.

    Args:
      A: a sparse matrix [m, n]. b: dense [m] or [m, k].
      tol: relative errors of A and b that the iteration may ignore.
      maxiter: the maximum number of iterations (None: twice the number of columns).

    Returns: (x, SolverInfo), with an element for each column of b. `converged` is whether the number of iterations is
    below the maximum. Derivatives are exact where the rank of A is constant; they take further solves, whose errors are
    those of `tol` times the condition number. A batch of matrices is solved as one block diagonal system, to a common
    tolerance.

    Raises: ShapeError, InputTypeError. It runs on the host. Source: Paige and Saunders 1982, by SciPy.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> A = sparse.CSR.from_dense(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    >>> sparse.lsqr(A, np.array([1.0, 2.0, 5.0]))[0].round(6)
    Array([1., 1.], dtype=float64)
    """
    return _least_squares("lsqr", A, b, tol, maxiter)


def lsmr(A: Any, b: Any, *, tol: float = 1e-6, maxiter: int | None = None) -> tuple[Array, SolverInfo]:
    """The same as `lsqr`, by another iteration, whose residual of the normal equations decreases in every step.

    Source: Fong and Saunders 2011, by SciPy.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.lsmr(sparse.diags([2.0, 4.0]), np.ones(2))[0].round(6)
    Array([0.5 , 0.25], dtype=float64)
    """
    return _least_squares("lsmr", A, b, tol, maxiter)


def _least_squares(name: str, A: Any, b: Any, tol: float, maxiter: int | None) -> tuple[Array, SolverInfo]:
    if not isinstance(A, SparseMatrix):
        raise InputTypeError(f"{name} got {type(A).__name__} for a sparse matrix.", "Use sparse.from_dense(A).")
    matrix = A.tocsr()
    data, right = promote_inexact(name, matrix.data, as_array(b))
    if right.ndim not in (1, 2) or right.shape[0] != matrix.shape[0]:
        raise ShapeError(
            f"{name} got b of shape {right.shape} for a matrix of shape {matrix.shape}.",
            f"b has {matrix.shape[0]} rows, and one or two axes.",
        )
    limit = 2 * matrix.shape[1] if maxiter is None else maxiter
    columns = right if right.ndim == 2 else right[:, None]
    x, counts = csr_lstsq(
        data, matrix.indices, matrix.indptr, columns, columns=matrix.shape[1], transposed=False, method=name,
        tol=float(tol), maxiter=limit,
    )  # fmt: skip
    residual = jnp.linalg.norm(columns - matrix.with_data(data) @ x, axis=0)
    info = SolverInfo(counts, residual, counts < limit)
    return (x, info) if right.ndim == 2 else (x[:, 0], SolverInfo(*(part[0] for part in info)))
