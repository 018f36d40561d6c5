"""The normal distribution truncated to a..b, in units of scale from loc.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.scipy.special import log_ndtr, ndtr
from rlx.scipy.stats import norm
from rlx.scipy.stats.common import log_difference, only_where, standardised

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.truncnorm.logpdf(0.5, -1.0, 2.0).item(), 4)
    -0.8438
    """
    z, scale, a, b = standardised("truncnorm.logpdf", x, loc, scale, a, b)
    inside = norm.logpdf(z) - jnp.log(scale) - _log_mass(a, b)
    return only_where((a < b) & (scale > 0), jnp.where((z < a) | (z > b), -jnp.inf, inside))


def pdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.truncnorm.pdf(0.5, -1.0, 2.0).item(), 4)
    0.4301
    """
    return jnp.exp(logpdf(x, a, b, loc, scale))


def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.truncnorm.logcdf(0.5, -1.0, 2.0).item(), 4)
    -0.4294
    """
    z, scale, a, b = standardised("truncnorm.logcdf", x, loc, scale, a, b)
    return only_where((a < b) & (scale > 0), _log_below(z, a, b))


def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.truncnorm.cdf(0.5, -1.0, 2.0).item(), 4)
    0.6509
    """
    return jnp.exp(logcdf(x, a, b, loc, scale))


def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.truncnorm.logsf(0.5, -1.0, 2.0).item(), 4)
    -1.0523
    """
    z, scale, a, b = standardised("truncnorm.logsf", x, loc, scale, a, b)
    return only_where((a < b) & (scale > 0), _log_below(-z, -b, -a))


def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.truncnorm.sf(0.5, -1.0, 2.0).item(), 4)
    0.3491
    """
    return jnp.exp(logsf(x, a, b, loc, scale))


def _log_mass(a: Array, b: Array) -> Array:
    """The logarithm of the normal distribution's probability of a..b, exact in the tails."""
    is_right, is_left = a > 0, b <= 0
    low, high = jnp.where(is_right, -b, a), jnp.where(is_right, -a, b)
    is_central = ~(is_left | is_right)
    central = jnp.log1p(-jnp.where(is_central, ndtr(low) + ndtr(-high), 0))
    is_tail = ~is_central & (low < high)
    tail = log_difference(log_ndtr(jnp.where(is_tail, high, 0)), log_ndtr(jnp.where(is_tail, low, -1)))
    return jnp.where(is_central, central, jnp.where(is_tail, tail, -jnp.inf))


def _log_below(z: Array, a: Array, b: Array) -> Array:
    """The logarithm of the probability below z."""
    is_inside = (z > a) & (z < b)
    safe = jnp.where(is_inside, z, jnp.where(jnp.isfinite(a), a, jnp.where(jnp.isfinite(b), b, 0)))
    total = _log_mass(a, b)
    below, above = _log_mass(a, safe) - total, _log_mass(safe, b) - total
    near_one = is_inside & (below > -0.1)
    inside = jnp.where(near_one, jnp.log1p(-jnp.exp(jnp.where(near_one, above, -1))), below)
    return jnp.where(is_inside, inside, jnp.where(z >= b, 0, jnp.where(z <= a, -jnp.inf, z)))
