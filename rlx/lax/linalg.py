"""rlx.lax.linalg: factorisations and solves without promotion of dtypes, batched over leading axes."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.lax.operands import as_array, operands
from rlx.numpy.halves import in_single
from rlx.numpy.linalg.common import hermitian, read_triangle
from rlx.numpy.linalg.factorisations import svd as _svd
from rlx.offered_names import offer_names
from rlx.ops import factorisations, solves, spectral
from rlx.ops.arithmetic import add, multiply
from rlx.ops.matrices import adjoint, lower_triangle, product, turned
from rlx.ops.shape import expand_dims, pad_zeros
from rlx.ops.stop_gradient import stop_gradient

__all__ = [
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "cholesky",
    "cholesky_update",
    "eig",
    "eigh",
    "hessenberg",
    "householder_product",
    "lu",
    "lu_pivots_to_permutation",
    "ormqr",
    "qdwh",
    "qr",
    "schur",
    "svd",
    "symmetric_product",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
]

offer_names(globals())


class EigImplementation(enum.Enum):
    """Libraries for eigenvalues of general matrices; here all of them mean LAPACK.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.linalg.eig(jnp.eye(2), implementation=lax.linalg.EigImplementation.LAPACK)[0].real.tolist()
    [1.0, 1.0]
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """Algorithms for eigenvalues of Hermitian matrices; here all of them mean LAPACK's.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.linalg.eigh(jnp.eye(2), implementation=lax.linalg.EighImplementation.QR)[1].tolist()
    [1.0, 1.0]
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """Algorithms for an SVD; here all of them mean LAPACK's.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.linalg.svd(jnp.eye(2), compute_uv=False, algorithm=lax.linalg.SvdAlgorithm.QR).tolist()
    [1.0, 1.0]
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


# ------------------------------------------------------------- factorisations
@in_single
def cholesky(x: Any, *, symmetrize_input: bool = True) -> Array:
    """The lower factor of positive definite matrices, NaN where a matrix is not.

    Args: x: (..., n, n); symmetrize_input: use (x + x^H) / 2, else only the lower triangle is read.
    Returns: (..., n, n).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.cholesky(4 * jnp.eye(1))
    Array([[2.]], dtype=float32)
    """
    array = as_array(x)
    return factorisations.cholesky(hermitian(array) if symmetrize_input else read_triangle(array, True))


@in_single
def cholesky_update(r_matrix: Any, w_vector: Any) -> Array:
    """The upper factor of r^T r + w w^T.

    Args: r_matrix: (..., n, n), an upper factor; w_vector: (..., n). Returns: (..., n, n).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.cholesky_update(3 * jnp.eye(1), jnp.array([4.0]))
    Array([[5.]], dtype=float32)
    """
    r, w = operands("linalg.cholesky_update", r_matrix, w_vector)
    column = expand_dims(w, (w.ndim,))
    updated = add(product(adjoint(r), r), product(column, adjoint(column)))
    return adjoint(factorisations.cholesky(hermitian(updated)))


@in_single
def lu(x: Any) -> tuple[Array, Array, Array]:
    """LU factors with partial pivoting.

    Args: x: (..., m, n). Returns: (packed factors, pivots, permutation): x[permutation] = L U.

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.lu(jnp.array([[0.0, 1.0], [2.0, 0.0]]))[2]
    Array([1, 0], dtype=int32)
    """
    return factorisations.lu(as_array(x))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Array:
    """The permutation that a sequence of row interchanges makes.

    Args: pivots: (..., k) int32; permutation_size: number of rows. Returns: (..., permutation_size).

    >>> import numpy as np
    >>> from rlx import lax
    >>> lax.linalg.lu_pivots_to_permutation(np.array([2, 2], np.int32), 3)
    Array([2, 0, 1], dtype=int32)
    """
    return factorisations.pivots_to_permutation(as_array(pivots), rows=permutation_size)


@in_single
def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> Any:
    """Orthonormal columns and an upper triangle.

    Args: x: (..., m, n); pivoting: also order the columns; full_matrices: a square q.
    Returns: (q, r), or (q, r, permutation). Derivatives need full_matrices=False for tall matrices.

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> [v.shape for v in lax.linalg.qr(jnp.ones((3, 2)))]
    [(3, 3), (3, 2)]
    """
    factorise = factorisations.pivoted_qr if pivoting else factorisations.qr
    return factorise(as_array(x), full_matrices=full_matrices)


@in_single
def householder_product(a: Any, taus: Any) -> Array:
    """The first columns of the product of reflectors I - tau v v^H.

    Args: a: (..., m, n), vectors below the diagonal; taus: (..., k). Returns: (..., m, n).
    It has no derivative.

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.householder_product(jnp.zeros((2, 1)), jnp.zeros(1)).shape
    (2, 1)
    """
    return factorisations.householder_product(*operands("linalg.householder_product", a, taus))


@in_single
def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Array:
    """c times the unitary matrix of a QR factorisation, given by its reflectors.

    Args: a: (..., m, k) vectors; taus: (..., k); c: a matrix; left: multiply from the left;
    transpose: by the adjoint. Returns: an array like c.

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.ormqr(jnp.zeros((2, 1)), jnp.zeros(1), jnp.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    vectors, factors, matrix = operands("linalg.ormqr", a, taus, c)
    rows, columns = vectors.shape[-2:]
    config = ((0, 0, 0),) * (vectors.ndim - 1) + ((0, rows - columns, 0),)
    q = factorisations.householder_product(pad_zeros(vectors, config), factors)
    q = adjoint(q) if transpose else q
    return product(q, matrix) if left else product(matrix, q)


# ------------------------------------------------------------- spectra
@in_single
def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: Any = None,
) -> tuple[Array, Array]:
    """Eigenvectors and ascending eigenvalues of Hermitian matrices.

    Args: x: (..., n, n); lower: the triangle that is read if not symmetrize_input; symmetrize_input:
    use (x + x^H) / 2; subset_by_index: must be None. Returns: (vectors, values).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.eigh(jnp.eye(2))[1]
    Array([1., 1.], dtype=float32)
    """
    _refuse_subset("eigh", subset_by_index)
    array = as_array(x)
    array = hermitian(array) if symmetrize_input else read_triangle(array, lower)
    values, vectors = spectral.eigh(array, lower=True)
    return vectors, values


def _refuse_subset(name: str, subset: Any) -> None:
    if subset is not None:
        raise UnsupportedError(f"{name} computes the whole spectrum.", "Slice the result instead of subset_by_index.")


@in_single
def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: Any = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Eigenvalues and eigenvectors of general matrices.

    Args: x: (..., n, n); compute_left_eigenvectors, compute_right_eigenvectors. Returns: a list of
    values, left vectors, right vectors, as asked for.

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> len(lax.linalg.eig(jnp.eye(2)))
    3
    """
    return list(
        spectral.eig(as_array(x), compute_left=compute_left_eigenvectors, compute_right=compute_right_eigenvectors)
    )


@in_single
def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """Singular vectors and descending singular values.

    Args: x: (..., m, n); full_matrices; compute_uv. Returns: (u, s, vh), or s.

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.svd(jnp.eye(2), compute_uv=False)
    Array([1., 1.], dtype=float32)
    """
    _refuse_subset("svd", subset_by_index)
    result = _svd(as_array(x), full_matrices, compute_uv)
    return tuple(result) if compute_uv else result


@in_single
def schur(
    x: Any,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> Any:
    """The Schur form of matrices; it has no derivative.

    Args: x: (..., n, n); compute_schur_vectors; sort_eig_vals, select_callable: must be unset.
    Returns: (t, z) with x = z t z^H, or (t,).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.schur(jnp.eye(2))[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if sort_eig_vals or select_callable is not None:
        raise UnsupportedError("schur does not order its eigenvalues.", "Leave sort_eig_vals and select_callable out.")
    result = spectral.schur(as_array(x))
    return tuple(result) if compute_schur_vectors else (result[0],)


@in_single
def hessenberg(a: Any) -> tuple[Array, Array]:
    """The Hessenberg form of matrices above the reflectors that make it; it has no derivative.

    Args: a: (..., n, n). Returns: (packed, taus).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> [v.shape for v in lax.linalg.hessenberg(jnp.eye(3))]
    [(3, 3), (2,)]
    """
    return spectral.hessenberg(as_array(a))


@in_single
def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """The tridiagonal form of Hermitian matrices; it has no derivative.

    Args: a: (..., n, n); lower: the triangle that is read. Returns: (packed, d, e, taus).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.tridiagonal(jnp.eye(2))[1]
    Array([1., 1.], dtype=float32)
    """
    return spectral.tridiagonal(as_array(a), lower=lower)


@in_single
def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: Any = None,
) -> tuple[Array, Array, int, bool]:
    """The polar decomposition, here through the SVD.

    Args: x: (m, n), m >= n; the others are accepted and not needed.
    Returns: (unitary factor, Hermitian factor, iterations (0), converged).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.qdwh(2 * jnp.eye(1))[1]
    Array([[2.]], dtype=float32)
    """
    if dynamic_shape is not None:
        raise UnsupportedError("qdwh has no dynamic shapes.", "Slice the matrix first.")
    array = as_array(x)
    u, s, vh = spectral.svd(array, full_matrices=False, compute_uv=True)
    weights = s.astype(array.dtype)
    stretched = multiply(adjoint(vh), expand_dims(weights, (weights.ndim - 1,)))
    return product(u, vh), product(stretched, vh), 0, True


# ------------------------------------------------------------- solves and products
@in_single
def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """x with op(a) x = b if left_side, else with x op(a) = b, for triangular matrices.

    Args: a: (..., n, n); b: (..., n, k) or (..., k, n), or (..., n) for one vector; lower: the triangle
    that is read; transpose_a, conjugate_a: the operation op; unit_diagonal: use ones as the diagonal.
    Returns: an array like b.

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.triangular_solve(2 * jnp.eye(1), jnp.ones((1, 1)), left_side=True)
    Array([[0.5]], dtype=float32)
    """
    matrix, right = operands("linalg.triangular_solve", a, b)
    vector = right.ndim == matrix.ndim - 1
    if vector:
        right = expand_dims(right, (right.ndim if left_side else right.ndim - 1,))
    out = solves.triangular_solve(
        matrix,
        right,
        left_side=left_side,
        lower=lower,
        transpose_a=transpose_a,
        conjugate_a=conjugate_a,
        unit_diagonal=unit_diagonal,
    )
    return out.reshape(out.shape[:-1] if left_side else (*out.shape[:-2], out.shape[-1])) if vector else out


@in_single
def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Array:
    """The solution of tridiagonal systems.

    Args: dl, d, du: (..., n) diagonals (the first of dl, the last of du are not read); b: (..., n, k);
    perturb_singular: add a rounding error to the diagonal of a singular system, which otherwise gives NaN.
    Returns: (..., n, k).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.tridiagonal_solve(jnp.zeros(2), 2 * jnp.ones(2), jnp.zeros(2), jnp.ones((2, 1))).tolist()
    [[0.5], [0.5]]
    """
    below, diagonal, above, sides = operands("linalg.tridiagonal_solve", dl, d, du, b)
    if perturb_singular:
        diagonal = _perturbed(below, diagonal, above)
    return solves.tridiagonal_solve(below, diagonal, above, sides)


def _perturbed(below: Any, diagonal: Any, above: Any) -> Any:
    """The diagonal, moved by a rounding error of its largest element if the system is singular."""
    given = [stop_gradient(x) for x in (below, diagonal, above)]
    probe = solves.tridiagonal_solve(*given, jnp.ones((*diagonal.shape, 1), diagonal.dtype))
    singular = ~jnp.isfinite(probe).all((-2, -1))[..., None]
    size = jnp.maximum(jnp.abs(given[1]).max(-1, keepdims=True), 1)
    change = (size * jnp.finfo(diagonal.dtype).eps).astype(diagonal.dtype)
    return add(diagonal, jnp.where(singular, change, jnp.zeros_like(change)))


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Array:
    """alpha a a^T + beta c.

    Args: a_matrix: (..., n, k); c_matrix: (..., n, n); alpha, beta; symmetrize_output: mirror the lower
    triangle. Returns: (..., n, n).

    >>> import rlx.numpy as jnp
    >>> from rlx import lax
    >>> lax.linalg.symmetric_product(jnp.ones((1, 2)), jnp.zeros((1, 1)))
    Array([[2.]], dtype=float32)
    """
    a, c = operands("linalg.symmetric_product", a_matrix, c_matrix)
    if a.shape[:-1] != c.shape[:-1]:
        raise ShapeError(f"symmetric_product got shapes {a.shape} and {c.shape}.", "c must have a a^T's shape.")
    out = add(multiply(product(a, turned(a)), alpha), multiply(c, beta))
    if symmetrize_output:
        out = add(lower_triangle(out), turned(lower_triangle(out, -1)))
    return out
