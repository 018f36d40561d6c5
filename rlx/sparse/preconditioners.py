"""Preconditioners: functions that multiply by an approximation of a matrix's inverse."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import ConcretizationTypeError, InputTypeError, ShapeError, UnsupportedError
from rlx.numpy.promotion import promote_inexact
from rlx.ops.sparse_triangles import csr_incomplete_lu, csr_triangular_solve
from rlx.sparse.compressed import CSR, known_pattern
from rlx.sparse.matrix import SparseMatrix
from rlx.sparse.patterns import is_known

__all__ = ["amg", "block_jacobi", "ic0", "ilu0", "jacobi"]

Preconditioner = Callable[[Any], Array]
_MOST_SHIFTS = 20


def _square(name: str, A: Any) -> CSR:
    if not isinstance(A, SparseMatrix):
        raise InputTypeError(f"{name} got {type(A).__name__} for a sparse matrix.", "Use sparse.from_dense(A).")
    if A.shape[0] != A.shape[1]:
        raise ShapeError(f"{name} got a matrix of shape {A.shape}.", "It must be square.")
    return A.tocsr()


def _host_matrix(name: str, A: Any) -> Any:
    """The matrix as SciPy's, sorted, without duplicates."""
    matrix = _square(name, A).sum_duplicates()
    if not is_known(matrix.data):
        raise ConcretizationTypeError(
            f"{name} got a traced matrix: it is computed on the host, once.", "Use jacobi or block_jacobi there."
        )
    return matrix.toscipy()


def jacobi(A: Any) -> Preconditioner:
    """Division by the diagonal; zeros on it count as ones. The matrix may be traced.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.jacobi(sparse.diags([2.0, 4.0]))(np.ones(2)).tolist()
    [0.5, 0.25]
    """
    diagonal = _square("jacobi", A).diagonal()
    inverse = 1 / jnp.where(diagonal == 0, jnp.ones_like(diagonal), diagonal)
    return lambda x: inverse * x


def block_jacobi(A: Any, block: int) -> Preconditioner:
    """Products with the inverses of the diagonal blocks of `block` rows. Values may be traced, but not the indices.

    Raises ShapeError unless `block` divides the order.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> sparse.block_jacobi(sparse.diags([2.0, 4.0]), 2)(np.ones(2)).tolist()
    [0.5, 0.25]
    """
    matrix = _square("block_jacobi", A)
    pattern = known_pattern("block_jacobi", matrix, "its blocks are found by their places")
    if block < 1 or matrix.shape[0] % block:
        raise ShapeError(f"block_jacobi got blocks of {block} rows for {matrix.shape[0]}.", "They divide the matrix.")
    inside = np.nonzero(pattern.rows // block == pattern.indices // block)[0]
    rows, columns = pattern.rows[inside], pattern.indices[inside]
    blocks = jnp.zeros((matrix.shape[0] // block, block, block), matrix.dtype)
    blocks = blocks.at[rows // block, rows % block, columns % block].add(matrix.data[inside])
    inverses = jnp.linalg.inv(blocks)
    return lambda x: jnp.einsum("bij,bj->bi", inverses, x.reshape(x.shape[0] // block, block)).reshape(x.shape)


def _with_diagonal(name: str, A: Any) -> tuple[CSR, np.ndarray]:
    """The matrix in floating point with sorted places, constant in derivatives; and its diagonal's stored elements."""
    matrix = _square(name, A)
    known_pattern(name, matrix, "its factors are at the stored places")
    matrix = matrix.sum_duplicates()
    pattern = known_pattern(name, matrix, "its factors are at the stored places")
    diagonal = np.nonzero(pattern.rows == pattern.indices)[0]
    if len(diagonal) < matrix.shape[0]:
        missing = np.setdiff1d(np.arange(matrix.shape[0]), pattern.rows[diagonal])[0]
        raise ShapeError(
            f"{name} got a matrix without a diagonal element in row {missing}.",
            f"Add sparse.eye({matrix.shape[0]}) * 0.",
        )
    (data,) = promote_inexact(name, lax.stop_gradient(matrix.data))
    return matrix.with_data(data), diagonal


def _triangle(factors: CSR, lower: bool) -> Callable[..., Array]:
    """A function (b, transposed) that solves with a triangle of factors; the lower one's diagonal is ones."""

    def solve(b: Array, transposed: bool = False) -> Array:
        right = b.astype(factors.dtype)[:, None]
        options = {"lower": lower, "unit_diagonal": lower, "transposed": transposed}
        return csr_triangular_solve(factors.data, factors.indices, factors.indptr, right, **options)[:, 0]

    return solve


def ilu0(A: Any) -> Preconditioner:
    """Solves with an incomplete LU factorisation that has the places of the matrix.

    The elements may be traced, but not the indices. Derivatives take the preconditioner for a constant: a solution does
    not depend on it.

    Raises: ConcretizationTypeError, ShapeError, InputTypeError. Source: Meijerink and van der Vorst 1977.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> A = sparse.diags([-np.ones(3), 2 * np.ones(4), -np.ones(3)], [-1, 0, 1])
    >>> np.allclose(A @ sparse.ilu0(A)(np.ones(4)), 1)  # exact for a tridiagonal matrix
    True
    """
    matrix, _ = _with_diagonal("ilu0", A)
    factors = matrix.with_data(csr_incomplete_lu(matrix.data, matrix.indices, matrix.indptr))
    below, above = _triangle(factors, True), _triangle(factors, False)
    return lambda x: above(below(x))


def ic0(A: Any) -> Preconditioner:
    """Solves with an incomplete Cholesky factorisation L L.H at the places of the lower triangle. It is not traced.

    If a pivot is not positive, the diagonal is scaled up until all are, with a warning (Manteuffel 1980).

    Raises: ConcretizationTypeError, ShapeError, InputTypeError. Source: Meijerink and van der Vorst 1977.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> A = sparse.diags([-np.ones(3), 2 * np.ones(4), -np.ones(3)], [-1, 0, 1])
    >>> np.allclose(A @ sparse.ic0(A)(np.ones(4)), 1)  # exact for a tridiagonal matrix
    True
    """
    matrix, diagonal = _with_diagonal("ic0", A)
    if not is_known(matrix.data):
        raise ConcretizationTypeError(
            "ic0 got a traced matrix: its pivots decide whether the diagonal is scaled.",
            "Use ilu0, jacobi or block_jacobi there.",
        )
    shift = 0.0
    for _ in range(_MOST_SHIFTS):
        shifted = matrix.data.at[diagonal].multiply(1 + shift)
        factors = matrix.with_data(csr_incomplete_lu(shifted, matrix.indices, matrix.indptr))
        pivots = jnp.real(factors.data[diagonal])
        if bool((pivots > 0).all()):
            break
        shift = max(2 * shift, 1e-3)
    else:
        raise UnsupportedError("ic0 found no positive pivots.", "The matrix is not positive definite: use ilu0.")
    if shift:
        warnings.warn(f"ic0 added {shift:.3g} times the diagonal: a pivot was not positive.", stacklevel=2)
    solve, scale = _triangle(factors, True), 1 / pivots
    return lambda x: jnp.conj(solve(jnp.conj(scale * solve(x)), True))


def amg(A: Any, **options: Any) -> Preconditioner:
    """A cycle of smoothed aggregation, an algebraic multigrid method, for a symmetric positive definite matrix.

    The levels are pyamg's (`pip install pyamg`), made on the host. The cycle is compiled: products with sparse
    matrices, Jacobi's smoother before and after, and the inverse of the coarsest matrix.

    Args: A: a sparse matrix that is not traced; options: of pyamg.smoothed_aggregation_solver.

    Raises: UnsupportedError if pyamg is not installed, and the errors of `ic0`. Source: Vanek, Mandel and Brezina 1996.

    >>> import numpy as np
    >>> from rlx import sparse
    >>> A = sparse.diags([-np.ones(99), 2.1 * np.ones(100), -np.ones(99)], [-1, 0, 1])
    >>> x, info = sparse.cg(A, np.ones(100), M=sparse.amg(A))  # doctest: +SKIP
    """
    try:
        pyamg = importlib.import_module("pyamg")
    except ImportError as error:
        raise UnsupportedError("amg needs the package pyamg, which is not installed.", "pip install pyamg") from error
    levels = pyamg.smoothed_aggregation_solver(_host_matrix("amg", A), **options).levels
    matrices = [CSR.fromscipy(level.A) for level in levels]
    down = [CSR.fromscipy(level.R) for level in levels[:-1]]
    up = [CSR.fromscipy(level.P) for level in levels[:-1]]
    smoothers = [jacobi(matrix) for matrix in matrices]
    last = _coarsest(matrices[-1])

    def cycle(number: int, b: Any) -> Array:
        if number == len(matrices) - 1:
            return last(b)
        matrix, smooth = matrices[number], smoothers[number]
        x = _DAMPING * smooth(b)
        x = x + up[number] @ cycle(number + 1, down[number] @ (b - matrix @ x))
        return x + _DAMPING * smooth(b - matrix @ x)

    return lambda b: cycle(0, b)


_DAMPING = 2 / 3


def _coarsest(matrix: CSR) -> Preconditioner:
    """The solution with the coarsest matrix, as a dense inverse: it has few rows."""
    inverse = jnp.linalg.pinv(matrix.todense())
    return lambda b: inverse @ b
