"""Factorisations and spectra: cholesky, qr, svd, eigh, eig."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

from rlx.array import Array
from rlx.errors import UnsupportedError
from rlx.numpy.halves import in_single
from rlx.numpy.linalg.common import hermitian as hermitian_part
from rlx.numpy.linalg.common import matrices, read_triangle, square
from rlx.numpy.lookups import take_along_axis
from rlx.numpy.sorting import argsort
from rlx.ops import factorisations, spectral
from rlx.ops.arithmetic import absolute, multiply, sign
from rlx.ops.contract import cast
from rlx.ops.matrices import adjoint, turned
from rlx.ops.shape import expand_dims

__all__ = [
    "EigResult",
    "EighResult",
    "QRResult",
    "SVDResult",
    "cholesky",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "qr",
    "svd",
    "svdvals",
]


class QRResult(NamedTuple):
    """The factors of a matrix: orthonormal columns, upper triangle.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.qr(jnp.ones((3, 2))).R.shape
    (2, 2)
    """

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """Left singular vectors, descending singular values, adjoint right singular vectors.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.svd(jnp.diag(jnp.array([1.0, 2.0]))).S.tolist()
    [2.0, 1.0]
    """

    U: Array
    S: Array
    Vh: Array


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors (columns).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.eig(jnp.diag(jnp.array([3.0, 4.0]))).eigenvalues.real.tolist()
    [3.0, 4.0]
    """

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """Ascending eigenvalues and orthonormal eigenvectors (columns).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.eigh(jnp.diag(jnp.array([4.0, 3.0]))).eigenvalues.tolist()
    [3.0, 4.0]
    """

    eigenvalues: Array
    eigenvectors: Array


@in_single
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """The triangular factor of positive definite matrices: a = l l^H, or u^H u if upper.

    Args: a: (..., n, n) Hermitian matrices; upper: give u; symmetrize_input: use (a + a^H) / 2, else
    only the triangle that is returned is read, and derivatives are shared by both triangles.
    Returns: (..., n, n), NaN where a matrix is not positive definite. Raises: ShapeError, DtypeError.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    x = square(a, "cholesky")
    x = hermitian_part(x) if symmetrize_input else read_triangle(x, not upper)
    factor = factorisations.cholesky(x)
    return adjoint(factor) if upper else factor


@overload
def qr(a: Any, mode: Literal["reduced", "complete", "full"] = ...) -> QRResult: ...
@overload
def qr(a: Any, mode: Literal["r"]) -> Array: ...
@overload
def qr(a: Any, mode: str) -> Any: ...
@in_single
def qr(a: Any, mode: str = "reduced") -> Any:
    """Orthonormal columns and an upper triangle whose product is the matrix.

    Args: a: (..., m, n); mode: "reduced", "complete" (a square Q), "r" (only R), or "raw" (LAPACK's result for the
    matrix's transpose: (h, tau), with R in h's lower triangle, and reflectors and their factors; without a derivative).
    Returns: QRResult(Q, R), R, or (h, tau). Raises: UnsupportedError for another mode.

    >>> import rlx.numpy as jnp
    >>> q, r = jnp.linalg.qr(jnp.eye(3)[:, :2])
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    """
    if mode not in ("reduced", "complete", "full", "r", "raw"):
        raise UnsupportedError(f"qr has no mode {mode!r}.", 'Use "reduced", "complete", "r" or "raw".')
    if mode == "raw":
        packed, factors = factorisations.packed_qr(matrices(a, "qr"))
        return turned(packed), factors
    q, r = factorisations.qr(matrices(a, "qr"), full_matrices=mode in ("complete", "full"))
    return r if mode == "r" else QRResult(q, r)


@overload
def svd(
    a: Any,
    full_matrices: bool = ...,
    compute_uv: Literal[True] = ...,
    hermitian: bool = ...,
    subset_by_index: tuple[int, int] | None = ...,
) -> SVDResult: ...
@overload
def svd(
    a: Any,
    full_matrices: bool = ...,
    compute_uv: bool = ...,
    hermitian: bool = ...,
    subset_by_index: tuple[int, int] | None = ...,
) -> Any: ...
@in_single
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """Singular vectors and values: a = U diag(S) Vh.

    Args: a: (..., m, n); full_matrices: square U and Vh; compute_uv: False for the values alone;
    hermitian: a is Hermitian, use its eigenvalues; subset_by_index: must be None.
    Returns: SVDResult(U, S, Vh), or S. Derivatives need full_matrices=False unless m = n.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.svd(jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    if subset_by_index is not None:
        raise UnsupportedError("svd computes all singular values.", "Slice the result instead of subset_by_index.")
    if hermitian:
        return _hermitian_svd(square(a, "svd"), compute_uv)
    x = matrices(a, "svd")
    result = spectral.svd(x, full_matrices=full_matrices and compute_uv, compute_uv=compute_uv)
    return SVDResult(*result) if compute_uv else result[0]


def _hermitian_svd(x: Any, compute_uv: bool) -> Any:
    """Singular values are the magnitudes of the eigenvalues, largest first."""
    values, vectors = spectral.eigh(hermitian_part(x), lower=True)
    order = argsort(absolute(values), axis=-1, descending=True)
    values = take_along_axis(values, order, -1)
    if not compute_uv:
        return absolute(values)
    vectors = take_along_axis(vectors, expand_dims(order, (order.ndim - 1,)), -1)
    signs = cast(expand_dims(sign(values), (values.ndim - 1,)), vectors.dtype)
    return SVDResult(vectors, absolute(values), adjoint(multiply(vectors, signs)))


@in_single
def svdvals(x: Any, /) -> Array:
    """Descending singular values.

    Args: x: (..., m, n). Returns: (..., min(m, n)).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.svdvals(jnp.eye(2))
    Array([1., 1.], dtype=float32)
    """
    return svd(x, compute_uv=False)


@in_single
def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices.

    Args: a: (..., n, n); UPLO: "L" (the default) or "U", the triangle that is read if not
    symmetrize_input; symmetrize_input: use (a + a^H) / 2.
    Returns: EighResult(eigenvalues ascending, eigenvectors).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Array([1., 2.], dtype=float32)
    """
    if UPLO not in (None, "L", "U"):
        raise ValueError(f'UPLO must be "L" or "U", not {UPLO!r}.')
    x = square(a, "eigh")
    x = hermitian_part(x) if symmetrize_input else read_triangle(x, UPLO != "U")
    return EighResult(*spectral.eigh(x, lower=True))


@in_single
def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Ascending eigenvalues of Hermitian matrices.

    Args: as `eigh`. Returns: (..., n).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 0.0], [0.0, 1.0]]))
    Array([1., 2.], dtype=float32)
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues


@in_single
def eig(a: Any) -> EigResult:
    """Eigenvalues and eigenvectors of general matrices.

    Args: a: (..., n, n). Returns: EigResult(eigenvalues, eigenvectors), both complex.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.eig(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Array([2.+0.j, 1.+0.j], dtype=complex64)
    """
    return EigResult(*spectral.eig(square(a, "eig"), compute_left=False, compute_right=True))


@in_single
def eigvals(a: Any) -> Array:
    """Eigenvalues of general matrices.

    Args: a: (..., n, n). Returns: (..., n), complex.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.eigvals(jnp.array([[2.0, 0.0], [0.0, 1.0]]))
    Array([2.+0.j, 1.+0.j], dtype=complex64)
    """
    return spectral.eig(square(a, "eigvals"), compute_left=False, compute_right=False)[0]
