"""Polynomials from samples and from their roots, and their roots: polyfit, poly, roots."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.numpy.elementwise import divide, multiply
from rlx.numpy.halves import in_single
from rlx.numpy.joining import concatenate
from rlx.numpy.linalg import eigvals, inv, lstsq
from rlx.numpy.manipulation import expand_dims, reshape, transpose
from rlx.numpy.matrices import eye, vander
from rlx.numpy.polynomials import coefficients
from rlx.numpy.products import matmul, outer
from rlx.numpy.promotion import complex_dtype, convert_to, fill, inexact, known_numpy, operand, promote_inexact
from rlx.numpy.reductions import sum as sum_
from rlx.numpy.signals import convolve
from rlx.ops import arithmetic, transcendental
from rlx.ops import shape as shapes
from rlx.trace.flat import as_array

__all__ = ["poly", "polyfit", "roots"]

_STRIP = "Pass strip_zeros=False; leading zeros then give NaN."


@in_single
def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The polynomial of a degree that fits samples best, by least squares.

    Args: x: positions (n,); y: values there, (n,) or (n, k) for k fits; deg: the degree; rcond: singular
    values up to rcond times the largest count as 0 (None: n times the machine epsilon); full: return
    diagnostics; w: weights (n,) of the residuals (not squared); cov: True for the covariance matrix
    scaled by the residuals, "unscaled" without that.
    Returns: coefficients (deg + 1,) or (deg + 1, k), the highest power first; with full also
    (squared residuals, rank, singular values, rcond); with cov also the covariance.
    Raises: ShapeError for incompatible shapes; ValueError for a negative degree, or if too few
    samples are left for a covariance.

    >>> import rlx.numpy as jnp
    >>> jnp.polyfit(jnp.arange(3.0), jnp.array([1.0, 3.0, 5.0]), 1).round(3)
    Array([2., 1.], dtype=float32)
    """
    order = operator.index(deg) + 1
    if order < 1:
        raise ValueError(f"polyfit got deg={deg}: the degree must be 0 or more.")
    places, values = promote_inexact("polyfit", x, y)
    if places.ndim != 1 or places.size == 0 or values.ndim not in (1, 2) or places.shape[0] != values.shape[0]:
        raise ShapeError(
            f"polyfit got x of shape {places.shape} and y of shape {values.shape}.", "x must be (n,), y (n,) or (n, k)."
        )
    rcond = len(places) * float(np.finfo(places.dtype).eps) if rcond is None else rcond
    powers = vander(places, order)
    if w is not None:
        powers, values = _weighted(powers, values, w)
    scale = transcendental.sqrt(sum_(multiply(powers, powers), axis=0))
    powers = divide(powers, scale)
    fitted, residuals, rank, singular = lstsq(powers, values, rcond)
    fitted = transpose(divide(transpose(fitted), scale))
    if full:
        return fitted, residuals, rank, singular, rcond
    if cov is False or cov is None:
        return fitted
    return fitted, _covariance(powers, scale, residuals, values, order, cov)


def _weighted(powers: Any, values: Any, w: Any) -> tuple[Any, Any]:
    weights = convert_to(operand(w, "polyfit"), powers.dtype)
    if weights.shape != (powers.shape[0],):
        raise ShapeError(f"polyfit got weights of shape {weights.shape}.", "Give one for each sample.")
    column = expand_dims(weights, 1)
    return multiply(powers, column), multiply(values, weights if values.ndim == 1 else column)


def _covariance(powers: Any, scale: Any, residuals: Any, values: Any, order: int, cov: Any) -> Any:
    base = divide(inv(matmul(transpose(powers), powers)), outer(scale, scale))
    if cov == "unscaled":
        return base if values.ndim == 1 else expand_dims(base, 2)
    freedom = values.shape[0] - order
    if freedom <= 0:
        raise ValueError(f"polyfit got {values.shape[0]} samples: a scaled covariance needs more than {order}.")
    factor = divide(residuals, freedom)
    return multiply(base, reshape(factor, ())) if values.ndim == 1 else multiply(expand_dims(base, 2), factor)


@in_single
def roots(p: Any, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial: eigenvalues of its companion matrix.

    Args: p: coefficients (n,), the highest power first; strip_zeros: leave out leading and trailing
    zeros before (trailing ones are roots at 0), which needs known values.
    Returns: a complex array of n - 1 roots, less one for each leading zero.
    Raises: ConcretizationTypeError for traced coefficients with strip_zeros.

    >>> import rlx.numpy as jnp
    >>> jnp.sort(jnp.roots(jnp.array([1.0, -3.0, 2.0])).real).round(4).tolist()
    [1.0, 2.0]
    """
    x = inexact(coefficients(p, "roots"))
    zeros = 0
    if strip_zeros:
        (places,) = np.nonzero(known_numpy(x, "roots", _STRIP))
        if not places.size:
            return fill((0,), 0, complex_dtype(x.dtype))
        zeros = x.shape[0] - 1 - int(places[-1])
        x = shapes.slice_along(x, int(places[0]), int(places[-1]) + 1, 0)
    size = x.shape[0] - 1
    at_zero = fill((zeros,), 0, complex_dtype(x.dtype))
    if size < 1:
        return at_zero
    lead, rest = shapes.slice_along(x, 0, 1, 0), shapes.slice_along(x, 1, size + 1, 0)
    first = reshape(arithmetic.negative(divide(rest, lead)), (1, size))
    below = shapes.slice_along(eye(size, dtype=x.dtype), 0, size - 1, 0)
    return concatenate([eigvals(concatenate([first, below])), at_zero])


def poly(seq_of_zeros: Any) -> Array:
    """The coefficients of the polynomial with given roots, or of a matrix's characteristic polynomial.

    Args: seq_of_zeros: 1-d array of roots, or a square matrix. Returns: a 1-d array, the first element 1.
    Raises: ShapeError for any other shape.

    >>> import rlx.numpy as jnp
    >>> jnp.poly(jnp.array([1.0, -1.0]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    given = as_array(operand(seq_of_zeros, "poly"))
    square = given.ndim == 2 and given.shape[0] == given.shape[1] != 0
    roots = eigvals(inexact(given)) if square else inexact(coefficients(seq_of_zeros, "poly"))
    result = fill((1,), 1, roots.dtype)
    for i in range(roots.shape[0]):
        factor = concatenate([fill((1,), 1, roots.dtype), arithmetic.negative(shapes.slice_along(roots, i, i + 1, 0))])
        result = convolve(result, factor)
    return result
