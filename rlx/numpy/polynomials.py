"""Polynomials as arrays of coefficients, the highest power first."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.numpy.editing import trim_zeros
from rlx.numpy.elementwise import add, multiply
from rlx.numpy.joining import concatenate
from rlx.numpy.manipulation import atleast_1d
from rlx.numpy.promotion import beside_arrays, convert_to, fill, inexact, promote, promote_inexact, scalar_array
from rlx.numpy.signals import convolve
from rlx.ops import arithmetic
from rlx.ops import shape as shapes
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["polyadd", "polyder", "polydiv", "polyint", "polymul", "polysub", "polyval"]


def coefficients(value: Any, name: str) -> Any:
    """A 1-d array of coefficients."""
    x = atleast_1d(as_array(np.asarray(value) if isinstance(value, (list, tuple)) else value))
    if x.ndim != 1:
        raise ShapeError(f"{name} got coefficients of shape {x.shape}.", "They must be 1-d.")
    return x


def _row(p: Any, i: int) -> Any:
    return shapes.squeeze(shapes.slice_along(p, i, i + 1, 0), (0,))


@replayed
def polyval(p: Any, x: Any, *, unroll: int = 16) -> Array:
    """The value of a polynomial, by Horner's rule.

    Args: p: coefficients along the first axis, the highest power first; x: array or number.
    Returns: an array that broadcasts coefficients and x.

    >>> import rlx.numpy as jnp
    >>> jnp.polyval(jnp.array([1, 2, 3]), 2).item()
    11
    """
    p = as_array(np.asarray(p) if isinstance(p, (list, tuple)) else p)
    p, x = promote("polyval", p, x)
    value = (
        multiply(x, scalar_array(0, x.dtype, True))
        if p.ndim <= 1
        else fill(np.broadcast_shapes(p.shape[1:], x.shape), 0, p.dtype)
    )
    for i in range(p.shape[0]):
        value = add(multiply(value, x), _row(p, i))
    return value


def _padded(x: Any, size: int) -> Any:
    return shapes.pad_zeros(x, ((size - x.shape[0], 0, 0),))


def polyadd(a1: Any, a2: Any) -> Array:
    """The sum of two polynomials.

    Args: a1, a2: coefficients. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([5]))
    Array([1, 7], dtype=int32)
    """
    x, y = promote("polyadd", *[coefficients(c, "polyadd") for c in beside_arrays(a1, a2)])
    size = max(x.shape[0], y.shape[0])
    return add(_padded(x, size), _padded(y, size))


def polysub(a1: Any, a2: Any) -> Array:
    """The difference of two polynomials.

    Args: a1, a2: coefficients. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.polysub(jnp.array([1, 2]), jnp.array([5]))
    Array([ 1, -3], dtype=int32)
    """
    x, y = promote("polysub", *[coefficients(c, "polysub") for c in beside_arrays(a1, a2)])
    size = max(x.shape[0], y.shape[0])
    return arithmetic.subtract(_padded(x, size), _padded(y, size))


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials.

    Args: a1, a2: coefficients; trim_leading_zeros: leave out leading zeros of known operands.
    Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.polymul(jnp.array([1, 1]), jnp.array([1, -1]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    x, y = promote_inexact("polymul", *[coefficients(c, "polymul") for c in beside_arrays(a1, a2)])
    if trim_leading_zeros:
        x, y = [_trimmed(v) for v in (x, y)]
    return convolve(x, y)


def _trimmed(x: Any) -> Any:
    trimmed = trim_zeros(x, "f")
    return trimmed if trimmed.size else fill((1,), 0, x.dtype)


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """The quotient and the remainder of two polynomials.

    Args: u, v: coefficients; trim_leading_zeros: leave out the remainder's leading zeros.
    Returns: (quotient, remainder).

    >>> import rlx.numpy as jnp
    >>> [x.tolist() for x in jnp.polydiv(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, 1.0]))]
    [[1.0, -1.0], [0.0, 0.0, 0.0]]
    """
    x, y = promote_inexact("polydiv", *[coefficients(c, "polydiv") for c in beside_arrays(u, v)])
    degree = y.shape[0]
    steps = max(x.shape[0] - degree + 1, 0)
    lead = _row(y, 0)
    quotients = []
    for i in range(steps):
        factor = arithmetic.divide(_row(x, i), lead)
        quotients.append(shapes.reshape(factor, shape=(1,)))
        x = x.at[i : i + degree].add(arithmetic.negative(multiply(factor, y)))
    quotient = concatenate(quotients) if quotients else fill((1,), 0, x.dtype)
    return quotient, _trimmed(x) if trim_leading_zeros else x


def polyder(p: Any, m: int = 1) -> Array:
    """The derivative of a polynomial.

    Args: p: coefficients; m: how often to differentiate. Returns: a 1-d array.
    Raises: ValueError for negative m.

    >>> import rlx.numpy as jnp
    >>> jnp.polyder(jnp.array([1, 2, 3]))
    Array([2., 2.], dtype=float32)
    """
    times = operator.index(m)
    if times < 0:
        raise ValueError("polyder: the order of the derivative cannot be negative.")
    x = inexact(coefficients(p, "polyder"))
    for _ in range(times):
        size = x.shape[0]
        factors = np.arange(size - 1, 0, -1).astype(x.dtype)
        x = multiply(shapes.slice_along(x, 0, max(size - 1, 0), 0), as_array(factors))
    return x


def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """The antiderivative of a polynomial.

    Args: p: coefficients; m: how often to integrate; k: constants of integration (None: 0).
    Returns: a 1-d array. Raises: ValueError for negative m.

    >>> import rlx.numpy as jnp
    >>> jnp.polyint(jnp.array([2, 2]))
    Array([1., 2., 0.], dtype=float32)
    """
    times = operator.index(m)
    if times < 0:
        raise ValueError("polyint: the order of the integral cannot be negative.")
    x = inexact(coefficients(p, "polyint"))
    constants = fill((times,), 0, x.dtype)
    if k is not None:
        constants = convert_to(coefficients(beside_arrays(x, k)[1], "polyint"), x.dtype)
    if constants.shape[0] not in (1, times):
        raise ShapeError(f"polyint got {constants.shape[0]} constants for m={times}.", "Give one each.")
    for i in range(times):
        divisors = np.arange(x.shape[0], 0, -1).astype(x.dtype)
        constant = shapes.slice_along(constants, i % constants.shape[0], i % constants.shape[0] + 1, 0)
        x = concatenate([arithmetic.divide(x, as_array(divisors)), constant])
    return x
