"""Associated Legendre functions of the first kind, of all orders and degrees up to one."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.trace.flat import as_array

__all__ = ["lpmn", "lpmn_values"]


def lpmn(m: int, n: int, z: Any) -> tuple[Array, Array]:
    """The associated Legendre functions of the first kind and their derivatives. Arguments as of lpmn_values.

    >>> import numpy as np, rlx
    >>> values, slopes = rlx.scipy.special.lpmn(1, 1, np.array([0.5], np.float32))
    >>> values[0, 1].tolist(), slopes[0, 1].tolist()
    ([0.5], [1.0])
    """
    values = lpmn_values(m, n, z, False)
    return values, _derivatives(values, as_array(z))


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool) -> Array:
    """The associated Legendre functions of the first kind, with the phase of Condon and Shortley.

    Args:
      m, n: the largest order and the largest degree, Python integers; they must be equal.
      z: a vector of floats from -1 to 1.
      is_normalized: multiply by the factors that make spherical harmonics orthonormal.

    Returns: an array of shape (m + 1, n + 1, len(z)), by order and degree; 0 where the order exceeds the degree.

    Raises: UnsupportedError for m != n, DtypeError and ShapeError for a z that is not a vector of floats.

    >>> import numpy as np, rlx
    >>> rlx.scipy.special.lpmn_values(1, 1, np.array([0.0], np.float32), False)[1, 1].tolist()
    [-1.0]
    """
    last, at = _checked(m, n, z)
    orders = jnp.arange(last + 1, dtype=at.dtype)[:, None]
    sine = jnp.sqrt(jnp.maximum(1 - at * at, 0))
    diagonal = jnp.full_like(at, math.sqrt(0.25 / math.pi) if is_normalized else 1.0)
    before = current = jnp.zeros((last + 1, *at.shape), at.dtype)
    degrees = []
    for degree in range(last + 1):
        before, current = current, _raised(degree, orders, at, current, before, bool(is_normalized))
        if degree:
            diagonal = -diagonal * sine * (math.sqrt(1 + 0.5 / degree) if is_normalized else 2 * degree - 1)
        current = jnp.where(orders == degree, diagonal, current)
        degrees.append(current)
    return jnp.stack(degrees, axis=1)


def _checked(m: int, n: int, z: Any) -> tuple[int, Array]:
    if operator.index(m) != operator.index(n):
        raise UnsupportedError(f"lpmn got orders up to {m} and degrees up to {n}.", "Pass equal numbers.")
    at = as_array(z)
    if at.dtype not in (np.float32, np.float64):
        raise DtypeError(f"lpmn got z of dtype {at.dtype}.", "Pass float32 or float64.")
    if at.ndim != 1:
        raise ShapeError(f"lpmn got z of shape {at.shape}.", "Pass a vector.")
    return operator.index(n), at


def _raised(degree: int, orders: Array, at: Array, current: Array, before: Array, normalized: bool) -> Array:
    """The functions of a degree for the orders below it, from those of the two degrees before."""
    below = orders < degree
    if not normalized:
        raised = ((2 * degree - 1) * at * current - (orders + degree - 1) * before) / jnp.where(
            below, degree - orders, 1
        )
        return jnp.where(below, raised, 0)
    squares = jnp.where(below, orders * orders, 0)
    scale = jnp.sqrt((4 * degree**2 - 1) / jnp.maximum(degree**2 - squares, 1))
    lower = jnp.maximum((degree - 1) ** 2 - squares, 0) / max(4 * (degree - 1) ** 2 - 1, 1)
    return jnp.where(below, scale * (at * current - jnp.sqrt(lower) * before), 0)


def _derivatives(values: Array, at: Array) -> Array:
    """(1 - z^2) P'(m, l) = (l + m) P(m, l - 1) - l z P(m, l), and its limits where z^2 is 1."""
    numbers = jnp.arange(values.shape[0], dtype=at.dtype)
    orders, degrees = numbers[:, None, None], numbers[None, :, None]
    lower = lax.pad(values, jnp.zeros((), at.dtype), [(0, 0, 0), (1, -1, 0), (0, 0, 0)])
    inside = 1 - at * at
    found = ((orders + degrees) * lower - degrees * at * values) / jnp.where(inside == 0, 1, inside)
    zeroth = degrees * (degrees + 1) / 2
    limits = [zeroth, jnp.full_like(zeroth, np.inf), -zeroth * (degrees - 1) * (degrees + 2) / 2]
    limit = jnp.select([orders == m for m in range(3)], limits, 0) * at ** (degrees + (orders != 1))
    return jnp.where(inside == 0, jnp.where(orders <= degrees, limit, 0), found)
