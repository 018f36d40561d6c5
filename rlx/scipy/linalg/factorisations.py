"""Factorisations under SciPy's names and conventions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import UnsupportedError
from rlx.lax import linalg as lax_linalg
from rlx.numpy.halves import in_single
from rlx.numpy.linalg import svd as numpy_svd
from rlx.numpy.linalg.common import aligned, hermitian, matrices, read_triangle, square
from rlx.numpy.promotion import promote_inexact
from rlx.ops import factorisations, spectral
from rlx.ops.factorisations import split_factors
from rlx.ops.matrices import adjoint, product, real_dtype, take_rows
from rlx.ops.solves import triangular_solve

__all__ = [
    "cho_factor",
    "cholesky",
    "eigh",
    "eigh_tridiagonal",
    "hessenberg",
    "lu",
    "lu_factor",
    "polar",
    "qr",
    "qr_multiply",
    "rsf2csf",
    "schur",
    "svd",
]


@in_single
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The triangular factor of positive definite matrices: u^H u, or l l^H if lower.

    Args: a: (..., n, n); only the triangle of the result is read; lower. Returns: (..., n, n), NaN
    for a matrix that is not positive definite.

    >>> import rlx
    >>> rlx.scipy.linalg.cholesky(4 * rlx.numpy.eye(1))
    Array([[2.]], dtype=float32)
    """
    factor = factorisations.cholesky(read_triangle(square(a, "cholesky"), lower))
    return factor if lower else adjoint(factor)


@in_single
def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, bool]:
    """A factorisation for `cho_solve`.

    Args: as `cholesky`. Returns: (factor, lower).

    >>> import rlx
    >>> rlx.scipy.linalg.cho_factor(4 * rlx.numpy.eye(1))[1]
    False
    """
    return cholesky(a, lower), lower


@in_single
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """A factorisation for `lu_solve`.

    Args: a: (..., m, n). Returns: (packed factors, pivots).

    >>> import rlx
    >>> rlx.scipy.linalg.lu_factor(rlx.numpy.eye(2))[1]
    Array([0, 1], dtype=int32)
    """
    factors, pivots, _ = factorisations.lu(matrices(a, "lu_factor"))
    return factors, pivots


@in_single
def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """LU factors with partial pivoting: a = p l u.

    Args: a: (..., m, n); permute_l: multiply p and l. Returns: (p, l, u), or (p l, u).

    >>> import rlx
    >>> [v.shape for v in rlx.scipy.linalg.lu(rlx.numpy.ones((3, 2)))]
    [(3, 3), (3, 2), (2, 2)]
    """
    x = matrices(a, "lu")
    factors, _, permutation = factorisations.lu(x)
    lower, upper = split_factors(factors)
    inner = min(x.shape[-2:])
    lower, upper = lower[..., :, :inner], upper[..., :inner, :]
    back = jnp.argsort(permutation, axis=-1)
    if permute_l:
        return take_rows(lower, back), upper
    eye = jnp.eye(x.shape[-2], dtype=real_dtype(x.dtype))
    return take_rows(jnp.broadcast_to(eye, (*x.shape[:-1], x.shape[-2])), back), lower, upper


@in_single
def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """Orthonormal columns and an upper triangle.

    Args: a: (..., m, n); mode: "full", "economic" or "r"; pivoting: also order the columns.
    Returns: a tuple of q, r and (if pivoting) the order, without q in mode "r".

    >>> import rlx
    >>> [v.shape for v in rlx.scipy.linalg.qr(rlx.numpy.ones((3, 2)), mode="economic")]
    [(3, 2), (2, 2)]
    """
    if mode not in ("full", "economic", "r"):
        raise UnsupportedError(f"qr has no mode {mode!r}.", 'Use "full", "economic" or "r".')
    parts = lax_linalg.qr(matrices(a, "qr"), pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(parts[1:]) if mode == "r" else tuple(parts)


@in_single
def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> Any:
    """The product of c with the orthonormal factor of a, and the other factor.

    Args: a: (m, n); c: 1-d or 2-d; mode: "right" (c q) or "left" (q c); pivoting; conjugate: use conj(q).
    Returns: (product, r), or (product, r, order).

    >>> import rlx
    >>> rlx.scipy.linalg.qr_multiply(rlx.numpy.eye(2), rlx.numpy.eye(2))[0].shape
    (2, 2)
    """
    if mode not in ("left", "right"):
        raise ValueError(f'mode must be "left" or "right", not {mode!r}.')
    q, r, *order = qr(a, mode="economic", pivoting=pivoting)
    q = jnp.conj(q) if conjugate else q
    other = jnp.asarray(c)
    return (q @ other if mode == "left" else other @ q, r, *order)


@in_single
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """Singular vectors and values.

    Args: a: (..., m, n); full_matrices; compute_uv. Returns: (u, s, vh), or s.

    >>> import rlx
    >>> rlx.scipy.linalg.svd(rlx.numpy.eye(2), compute_uv=False)
    Array([1., 1.], dtype=float32)
    """
    result = numpy_svd(a, full_matrices, compute_uv)
    return tuple(result) if compute_uv else result


@in_single
def polar(
    a: Any, side: str = "right", *, method: str = "svd", eps: float | None = None, max_iterations: int | None = None
) -> tuple[Array, Array]:
    """A unitary factor u and a positive one p: a = u p, or p u for side "left".

    Args: a: (m, n); side: "right" or "left"; the others are accepted and not needed. Returns: (u, p).

    >>> import rlx
    >>> rlx.scipy.linalg.polar(2 * rlx.numpy.eye(1))[1]
    Array([[2.]], dtype=float32)
    """
    if side not in ("right", "left"):
        raise ValueError(f'side must be "right" or "left", not {side!r}.')
    u, s, vh = spectral.svd(matrices(a, "polar"), full_matrices=False, compute_uv=True)
    row = s[..., None, :].astype(u.dtype)
    positive = product(adjoint(vh) * row, vh) if side == "right" else product(u * row, adjoint(u))
    return product(u, vh), positive


# ------------------------------------------------------------- spectra
@in_single
def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Eigenvalues (and vectors) of Hermitian matrices, or of a x = w b x and its variants.

    Args: a: (..., n, n); b: positive definite, or None; lower: the triangle that is read; eigvals_only;
    type: 1 for a x = w b x, 2 for a b x = w x, 3 for b a x = w x. Returns: w, or (w, vectors).

    >>> import rlx
    >>> rlx.scipy.linalg.eigh(rlx.numpy.eye(2), eigvals_only=True)
    Array([1., 1.], dtype=float32)
    """
    if eigvals is not None:
        raise UnsupportedError("eigh computes the whole spectrum.", "Slice the result instead of eigvals.")
    if type not in (1, 2, 3):
        raise ValueError(f"type must be 1, 2 or 3, not {type!r}.")
    if b is None:
        values, vectors = spectral.eigh(read_triangle(square(a, "eigh"), lower), lower=True)
        return values if eigvals_only else (values, vectors)
    system, weight = aligned("eigh", square(a, "eigh"), square(b, "eigh"))
    system, factor = read_triangle(system, lower), factorisations.cholesky(read_triangle(weight, lower))
    adjoint_params = {"transpose_a": True, "conjugate_a": True}
    if type == 1:
        inner = triangular_solve(factor, system, left_side=True)
        inner = triangular_solve(factor, inner, left_side=False, **adjoint_params)
    else:
        inner = product(adjoint(factor), system, factor)
    values, vectors = spectral.eigh(hermitian(inner), lower=True)
    if eigvals_only:
        return values
    if type == 3:
        return values, product(factor, vectors)
    return values, triangular_solve(factor, vectors, left_side=True, **adjoint_params)


@in_single
def eigh_tridiagonal(
    d: Any,
    e: Any,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Any = None,
) -> Any:
    """Eigenvalues (and vectors) of tridiagonal Hermitian matrices.

    Args: d: (n,) real diagonal; e: (n - 1,) the one above; eigvals_only; select: "a" for all, "i" for
    those numbered first to last in select_range. Returns: w, or (w, vectors).

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.scipy.linalg.eigh_tridiagonal(jnp.ones(2), jnp.zeros(1), eigvals_only=True)
    Array([1., 1.], dtype=float32)
    """
    if select not in ("a", "i"):
        raise UnsupportedError(f"eigh_tridiagonal has no select={select!r}.", 'Use "a" or "i".')
    diagonal, above = promote_inexact("eigh_tridiagonal", d, e)
    matrix = jnp.diag(diagonal) + jnp.diag(jnp.conj(above), -1)
    values, vectors = spectral.eigh(matrices(matrix, "eigh_tridiagonal"), lower=True)
    if select == "i":
        first, last = select_range if select_range is not None else (0, values.shape[0] - 1)
        values, vectors = values[int(first) : int(last) + 1], vectors[:, int(first) : int(last) + 1]
    return values if eigvals_only else (values, vectors)


@in_single
def schur(a: Any, output: str = "real") -> tuple[Array, Array]:
    """The Schur form: a = z t z^H. It has no derivative.

    Args: a: (..., n, n); output: "complex": a triangular t also for real matrices. Returns: (t, z).

    >>> import rlx
    >>> rlx.scipy.linalg.schur(rlx.numpy.eye(1))[0]
    Array([[1.]], dtype=float32)
    """
    if output not in ("real", "complex", "r", "c"):
        raise ValueError(f'output must be "real" or "complex", not {output!r}.')
    x = square(a, "schur")
    if output in ("complex", "c") and x.dtype.kind == "f":
        x = x.astype(np.result_type(x.dtype, np.complex64))
    form, vectors = spectral.schur(x)
    return form, vectors


@in_single
def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Array, Array]:
    """The triangular Schur form from a real one with blocks on its diagonal.

    Args: T, Z: (..., n, n), a real Schur form. Returns: complex (T, Z).
    Each block is made triangular by a rotation, from the last one to the first, as in SciPy.

    >>> import rlx
    >>> rlx.scipy.linalg.rsf2csf(rlx.numpy.eye(1), rlx.numpy.eye(1))[0].dtype
    dtype('complex64')
    """
    form, vectors = aligned("rsf2csf", T, Z)
    dtype = np.result_type(form.dtype, np.complex64)
    shape = jnp.broadcast_shapes(square(form, "rsf2csf").shape, square(vectors, "rsf2csf").shape)
    form, vectors = (jnp.broadcast_to(x.astype(dtype), shape) for x in (form, vectors))
    last = shape[-1] - 1
    if last < 1:
        return form, vectors
    return lax.fori_loop(0, last, lambda step, both: _rotated(last - step, *both), (form, vectors))


def _rotated(m: Any, form: Any, vectors: Any) -> tuple[Any, Any]:
    """The form with a 0 at (m, m - 1), by a rotation of rows and columns m - 1 and m (Golub and Van Loan, 7.4)."""
    pair = partial(lax.dynamic_slice_in_dim, start_index=m - 1, slice_size=2)
    block = pair(pair(form, axis=-2), axis=-1)
    upper, low, lower = block[..., 0, 0], block[..., 1, 0], block[..., 1, 1]
    counts = jnp.abs(low) > float(np.finfo(np.float64).eps) * (jnp.abs(upper) + jnp.abs(lower))
    distance = jnp.linalg.eigvals(block)[..., 0] - lower
    length = jnp.where(counts, jnp.hypot(jnp.abs(distance), jnp.abs(low)), 1).astype(form.dtype)
    c, s = jnp.where(counts, distance / length, 1), jnp.where(counts, low / length, 0)
    turn = jnp.stack([jnp.stack([c.conj(), s], -1), jnp.stack([-s, c], -1)], -2)
    back = jnp.conj(turn).mT
    places = jnp.arange(form.shape[-1]).reshape((1,) * (form.ndim - 1) + (-1,))

    rows = pair(form, axis=-2)
    rows = jnp.where(places >= m - 1, turn @ rows, rows)
    form = lax.dynamic_update_slice_in_dim(form, rows, m - 1, form.ndim - 2)
    columns = pair(form, axis=-1)
    columns = jnp.where(places.mT <= m, columns @ back, columns)
    columns = jnp.where(jnp.equal(places.mT, m) & jnp.equal(places[..., :2], 0), 0, columns)
    form = lax.dynamic_update_slice_in_dim(form, columns, m - 1, form.ndim - 1)
    turned = pair(vectors, axis=-1) @ back
    return form, lax.dynamic_update_slice_in_dim(vectors, turned, m - 1, form.ndim - 1)


@in_single
def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The Hessenberg form: a = q h q^H. It has no derivative.

    Args: a: (..., n, n); calc_q: also return q. Returns: h, or (h, q).

    >>> import rlx
    >>> rlx.scipy.linalg.hessenberg(rlx.numpy.eye(3)).shape
    (3, 3)
    """
    x = square(a, "hessenberg")
    packed, factors = spectral.hessenberg(x)
    form = jnp.triu(packed, -1)
    if not calc_q:
        return form
    inner = factorisations.householder_product(packed[..., 1:, :-1], factors)
    widths = [(0, 0)] * (x.ndim - 2) + [(1, 0), (1, 0)]
    return form, jnp.pad(inner, widths).at[..., 0, 0].set(1)
