"""Bessel functions and spherical harmonics."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import UnsupportedError
from rlx.numpy.promotion import broadcast_operands, known_numpy
from rlx.ops import special
from rlx.scipy.special.common import real_operands
from rlx.trace.flat import as_array

__all__ = ["bessel_jn", "i0", "i0e", "i1", "i1e", "sph_harm_y"]


# ------------------------------------------------------------- Bessel functions
def i0(x: Any) -> Array:
    """The modified Bessel function of order 0.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.i0(1.0).item(), 4)
    1.2661
    """
    return special.bessel_i0(*real_operands("i0", x))


def i0e(x: Any) -> Array:
    """exp(-|x|) i0(x), without overflow.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.i0e(1.0).item(), 4)
    0.4658
    """
    return special.bessel_i0e(*real_operands("i0e", x))


def i1(x: Any) -> Array:
    """The modified Bessel function of order 1.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.i1(1.0).item(), 4)
    0.5652
    """
    return special.bessel_i1(*real_operands("i1", x))


def i1e(x: Any) -> Array:
    """exp(-|x|) i1(x), without overflow.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.i1e(1.0).item(), 4)
    0.2079
    """
    return special.bessel_i1e(*real_operands("i1e", x))


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Array:
    """The Bessel functions of the first kind of orders 0 to v.

    Args: z: real; v: the last order, a Python integer; n_iter: accepted and not needed. Returns: an array
    of shape (v + 1, *z.shape).

    >>> import rlx
    >>> [round(x, 4) for x in rlx.scipy.special.bessel_jn(1.0, v=1).tolist()]
    [0.7652, 0.4401]
    """
    operator.index(n_iter)
    (value,) = real_operands("bessel_jn", z)
    orders = np.arange(operator.index(v) + 1, dtype=value.dtype)
    return special.bessel_j(orders.reshape(-1, *(1,) * value.ndim), value)


# ------------------------------------------------------------- spherical harmonics
def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None) -> Array:
    """Spherical harmonics, normalised and with the phase of Condon and Shortley, as in quantum mechanics.

    Args:
      n: degrees, integers that are not negative.
      m: orders, integers of at most n in magnitude; elsewhere the result is 0.
      theta: the polar angle, real.
      phi: the azimuth, real; all four broadcast, numbers count as arrays of one element.
      diff_n: only None.
      n_max: the largest degree, a Python integer; needed where n is traced.

    Returns: a complex array of their common shape.

    >>> import numpy as np, rlx
    >>> y = rlx.scipy.special.sph_harm_y(np.array([1]), np.array([0]), 0.0, 0.0)
    >>> round(y.real.item(), 4)
    0.4886
    """
    if diff_n is not None:
        raise UnsupportedError("sph_harm_y(diff_n=...) is not there.", "Differentiate it in theta and phi.")
    if n_max is None:
        known = known_numpy(as_array(n), "sph_harm_y", "Pass n_max, the largest degree.")
        n_max = int(known.max(initial=0))
    polar, azimuth = (jnp.atleast_1d(a) for a in real_operands("sph_harm_y", theta, phi))
    degree, order = (lax.convert_element_type(as_array(a), polar.dtype) for a in (n, m))
    degree, order, polar, azimuth = broadcast_operands([degree, order, polar, azimuth], "sph_harm_y")
    size = jnp.abs(order)
    legendre = _normalised_legendre(degree, size, polar, operator.index(n_max))
    parity = 1 - 2 * jnp.mod(size, 2)
    legendre = jnp.where(order < 0, parity * legendre, legendre)
    return lax.complex(legendre * jnp.cos(order * azimuth), legendre * jnp.sin(order * azimuth))


def _normalised_legendre(degree: Array, order: Array, theta: Array, last: int) -> Array:
    """The harmonic at phi = 0, by recurrence over the degrees from the order on (Press et al., 6.7)."""
    cosine, sine = jnp.cos(theta), jnp.abs(jnp.sin(theta))
    start = jnp.full_like(theta, math.sqrt(0.25 / math.pi))

    def raise_degree(number: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        diagonal, before, current = state
        level = lax.convert_element_type(number, theta.dtype)
        is_diagonal, is_above = level <= order, (level > order) & (level <= degree)
        diagonal = jnp.where(is_diagonal, -diagonal * sine * jnp.sqrt(1 + 0.5 / level), diagonal)
        # below the order, the factors of order 0 are computed but not used
        squares = jnp.where(is_above, jnp.square(order), 0)
        across = jnp.square(level) - squares
        lower = jnp.maximum(jnp.square(level - 1) - squares, 0) / jnp.maximum(4 * jnp.square(level - 1) - 1, 1)
        raised = jnp.sqrt((4 * jnp.square(level) - 1) / across) * (cosine * current - jnp.sqrt(lower) * before)
        after = jnp.where(is_above, raised, jnp.where(is_diagonal, diagonal, current))
        return diagonal, jnp.where(is_above, current, before), after

    state = (start, jnp.zeros_like(theta), start)
    _, _, found = lax.fori_loop(1, last + 1, raise_degree, state)
    return jnp.where((order <= degree) & (degree >= 0), found, 0)
