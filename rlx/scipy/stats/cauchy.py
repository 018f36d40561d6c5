"""The Cauchy distribution with median loc and quartiles loc - scale and loc + scale.

All arguments broadcast.
"""

from __future__ import annotations

import math
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.stats.common import log_probability, only_where, quantile, standardised

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.cauchy.logpdf(1.0).item(), 4)
    -1.8379
    """
    z, scale = standardised("cauchy.logpdf", x, loc, scale)
    return -jnp.log(math.pi * scale) - jnp.log1p(jnp.square(z))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.cauchy.pdf(1.0).item(), 4)
    0.1592
    """
    return jnp.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.cauchy.cdf(1.0).item(), 4)
    0.75
    """
    z, scale = standardised("cauchy.cdf", x, loc, scale)
    return only_where(scale > 0, _below(z))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.cauchy.logcdf(1.0).item(), 4)
    -0.2877
    """
    z, scale = standardised("cauchy.logcdf", x, loc, scale)
    return only_where(scale > 0, log_probability(_below(z), _below(-z)))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.cauchy.sf(1.0).item(), 4)
    0.25
    """
    z, scale = standardised("cauchy.sf", x, loc, scale)
    return only_where(scale > 0, _below(-z))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.cauchy.logsf(1.0).item(), 4)
    -1.3863
    """
    z, scale = standardised("cauchy.logsf", x, loc, scale)
    return only_where(scale > 0, log_probability(_below(-z), _below(z)))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability 1 - q; NaN unless q is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.cauchy.ppf(0.75).item(), 4)
    1.0
    """
    q, loc, scale = promote_inexact("cauchy.ppf", q, loc, scale)
    return quantile(q, loc + scale * _quantile(q))


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability q; NaN unless q is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.cauchy.isf(0.75).item(), 4)
    -1.0
    """
    q, loc, scale = promote_inexact("cauchy.isf", q, loc, scale)
    return quantile(q, loc - scale * _quantile(q))


def _below(z: Array) -> Array:
    """The probability below z, exact in both tails."""
    return jnp.arctan2(1, -z) / math.pi


def _quantile(q: Array) -> Array:
    """The value below which the probability is q, exact in both tails."""
    is_low, is_high = q < 0.25, q > 0.75
    tail = jnp.tan(math.pi * jnp.where(is_low, q, jnp.where(is_high, 1 - q, 0.25)))
    middle = jnp.tan(math.pi * (jnp.where(is_low | is_high, 0.5, q) - 0.5))
    return jnp.where(is_low, -1 / tail, jnp.where(is_high, 1 / tail, middle))
