"""The exponential distribution of mean scale, from loc on.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.nn.activations import log1mexp
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.stats.common import only_where, quantile, standardised

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.expon.logpdf(1.0).item(), 4)
    -1.0
    """
    z, scale = standardised("expon.logpdf", x, loc, scale)
    return only_where(scale > 0, jnp.where(z < 0, -jnp.inf, -z - jnp.log(scale)))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.expon.pdf(1.0).item(), 4)
    0.3679
    """
    return jnp.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.expon.cdf(1.0).item(), 4)
    0.6321
    """
    z, scale = standardised("expon.cdf", x, loc, scale)
    return only_where(scale > 0, jnp.where(z < 0, 0, -jnp.expm1(-z)))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.expon.logcdf(1.0).item(), 4)
    -0.4587
    """
    z, scale = standardised("expon.logcdf", x, loc, scale)
    is_below = z <= 0
    return only_where(scale > 0, jnp.where(is_below, -jnp.inf, log1mexp(jnp.where(is_below, 1, z))))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.expon.sf(1.0).item(), 4)
    0.3679
    """
    return jnp.exp(logsf(x, loc, scale))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.expon.logsf(1.0).item(), 4)
    -1.0
    """
    z, scale = standardised("expon.logsf", x, loc, scale)
    return only_where(scale > 0, jnp.where(z < 0, 0, -z))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability 1 - q; NaN unless q is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.expon.ppf(0.5).item(), 4)
    0.6931
    """
    q, loc, scale = promote_inexact("expon.ppf", q, loc, scale)
    return quantile(q, loc - scale * jnp.log1p(-q))
