"""jax.experimental.sparse.linalg: a direct solver, and the largest eigenvalues."""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.sparse.compressed import CSR
from rlx.sparse.direct import spsolve as solve_matrix
from rlx.sparse.eigenvalues import lobpcg_standard
from rlx.trace.flat import as_array

__all__ = ["lobpcg_standard", "spsolve"]


def spsolve(data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1) -> Array:
    """The solution of A x = b for a square sparse matrix by rows; it is differentiable in data and b.

    Args: data, indices, indptr: the matrix's arrays. b: dense [order]. tol and reorder are cuSOLVER's: reorder=0
    eliminates in the given order.

    Raises: the errors of `rlx.sparse.spsolve`, which has the source.

    >>> import numpy as np
    >>> from rlx.experimental.sparse import linalg
    >>> linalg.spsolve(np.array([2.0, 4.0]), np.array([0, 1]), np.array([0, 1, 2]), np.ones(2)).tolist()
    [0.5, 0.25]
    """
    right = as_array(b)
    matrix = CSR(data, indices, indptr, (right.shape[0], right.shape[0]))
    return solve_matrix(matrix, right, ordering=None if reorder else "natural")
