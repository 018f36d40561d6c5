"""Functions of matrices: exponential, square root, and any that is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.lax.conditional import cond
from rlx.lax.loops import fori_loop
from rlx.numpy.halves import in_single
from rlx.numpy.linalg.common import aligned, square
from rlx.ops import spectral
from rlx.ops.matrices import adjoint, product
from rlx.ops.stop_gradient import stop_gradient
from rlx.scipy.linalg.factorisations import schur
from rlx.transforms.forward import jvp

__all__ = ["expm", "expm_frechet", "funm", "sqrtm"]

# coefficients of the diagonal Pade approximants of exp, and the norms up to which they are exact
# (Higham, 2005); for float32 the shorter one is enough
_SEVENTH = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
_THIRTEENTH = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)
_LIMITS = {8: 3.925724783138660, 14: 5.371920351148152}


@in_single
def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The exponential of matrices, by a Pade approximant and repeated squaring.

    Args: A: (..., n, n); upper_triangular: accepted and not needed; max_squarings: NaN for a matrix so
    large that it needs more. Returns: (..., n, n).

    >>> import rlx
    >>> rlx.scipy.linalg.expm(rlx.numpy.zeros((1, 1)))
    Array([[1.]], dtype=float32)
    """
    x = square(A, "expm")
    if 0 in x.shape:
        return x
    single = x.dtype in (np.dtype("f4"), np.dtype("c8"))
    coefficients = _SEVENTH if single else _THIRTEENTH
    norm = stop_gradient(jnp.max(jnp.sum(jnp.abs(x), axis=-2), axis=-1))
    needed = jnp.ceil(jnp.log2(norm / _LIMITS[len(coefficients)]))
    squarings = jnp.where(needed > 0, needed, 0)[..., None, None]
    capped = jnp.minimum(squarings, max_squarings)
    root = _pade(x * jnp.exp2(-capped), coefficients)
    most = jnp.max(capped)

    def step(count: Any, value: Any) -> Any:
        return cond(count < most, lambda v: jnp.where(count < capped, product(v, v), v), lambda v: v, value)

    result = fori_loop(0, max_squarings, step, root)
    return jnp.where(squarings > max_squarings, jnp.nan, result)


def _pade(x: Any, coefficients: tuple[float, ...]) -> Any:
    """(v - u)^-1 (v + u), u and v the odd and even parts of a polynomial."""
    eye = jnp.eye(x.shape[-1], dtype=x.dtype)
    powers = [eye, product(x, x)]
    for _ in range(2):
        powers.append(product(powers[-1], powers[1]))
    odd = _polynomial(powers, coefficients[1::2])
    even = _polynomial(powers, coefficients[0::2])
    u = product(x, odd)
    return spectral.solve(even - u, even + u)


def _polynomial(powers: list[Any], coefficients: tuple[float, ...]) -> Any:
    """A polynomial in x^2 of degree up to 6, from the powers up to the third."""

    def combined(numbers: tuple[float, ...], first: int) -> Any:
        total = powers[first] * numbers[0]
        for number, power in zip(numbers[1:], powers[first + 1 :], strict=False):
            total = total + power * number
        return total

    low = combined(coefficients[:4], 0)
    return low if len(coefficients) == 4 else low + product(powers[3], combined(coefficients[4:], 1))


@in_single
def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """The derivative of the exponential at A in the direction E.

    Args: A, E: (..., n, n); method: accepted and not needed; compute_expm: also return the exponential.
    Returns: (exponential, derivative), or the derivative.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.scipy.linalg.expm_frechet(jnp.zeros((1, 1)), jnp.eye(1))[1].tolist()
    [[1.0]]
    """
    at, direction = aligned("expm_frechet", square(A, "expm_frechet"), E)
    value, derivative = jvp(expm, (at,), (direction,))
    return (value, derivative) if compute_expm else derivative


@in_single
def sqrtm(A: Any, blocksize: int = 1) -> Array:
    """The principal square root of matrices.

    Args: A: (..., n, n); blocksize: accepted and not needed. Returns: (..., n, n), complex; NaN where there
    is none. The derivative solves a Sylvester equation.

    >>> import rlx
    >>> rlx.scipy.linalg.sqrtm(4 * rlx.numpy.eye(1)).tolist()
    [[(2+0j)]]
    """
    x = square(A, "sqrtm")
    return spectral.matrix_sqrt(x.astype(np.result_type(x.dtype, np.complex64)))


@in_single
def funm(A: Any, func: Callable[[Any], Any], disp: bool = True) -> Any:
    """A function of a matrix, by Parlett's recurrence on its Schur form. It has no derivative.

    Args: A: (n, n); func: an elementwise function of the eigenvalues; disp: False: also return an
    estimate of the error. Returns: (n, n) complex, or (result, error). Repeated eigenvalues lose accuracy.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.scipy.linalg.funm(jnp.eye(1), jnp.exp).shape
    (1, 1)
    """
    form, vectors = schur(A, "complex")
    n = form.shape[-1]
    diagonal = jnp.diagonal(form, axis1=-2, axis2=-1)
    values = func(diagonal).astype(form.dtype)
    gaps = diagonal[..., None, :] - diagonal[..., :, None]
    safe = jnp.where(gaps == 0, 1, gaps)
    offset = np.arange(n) - np.arange(n)[:, None]
    start = jnp.where(offset == 0, values[..., None, :], 0)

    def step(place: Any, known: Any) -> Any:
        commutator = product(form, known) - product(known, form)
        return jnp.where(offset == place, commutator / safe, known)

    result = product(vectors, fori_loop(1, n, step, start), adjoint(vectors))
    return result if disp else (result, _error_estimate(result, form, gaps, offset))


def _error_estimate(result: Any, form: Any, gaps: Any, offset: np.ndarray) -> Any:
    """SciPy's estimate, from the smallest gap between eigenvalues."""
    epsilon = float(np.finfo(form.dtype).eps)
    smallest = jnp.min(jnp.where(offset > 0, jnp.abs(gaps), 1.0), axis=(-2, -1))
    smallest = jnp.where(smallest == 0, epsilon, smallest)
    size = jnp.max(jnp.sum(jnp.abs(jnp.triu(form, 1)), axis=-2), axis=-1)
    error = jnp.minimum(1.0, jnp.maximum(epsilon, epsilon / smallest * size))
    return jnp.where(jnp.any(jnp.isinf(jnp.abs(result)), axis=(-2, -1)), jnp.inf, error)
