"""The gamma distribution of shape a, with the given scale, from loc on.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.scipy.special import gammainc, gammaincc, gammaln, xlogy
from rlx.scipy.stats.common import log_probability, only_where, standardised

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gamma.logpdf(1.0, 2.0).item(), 4)
    -1.0
    """
    z, scale, a = standardised("gamma.logpdf", x, loc, scale, a)
    is_inside = z >= 0
    safe = jnp.where(is_inside, z, 1)
    result = xlogy(a - 1, safe) - safe - gammaln(a) - jnp.log(scale)
    return only_where((a > 0) & (scale > 0), jnp.where(is_inside, result, jnp.where(z < 0, -jnp.inf, z)))


def pdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gamma.pdf(1.0, 2.0).item(), 4)
    0.3679
    """
    return jnp.exp(logpdf(x, a, loc, scale))


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gamma.cdf(1.0, 2.0).item(), 4)
    0.2642
    """
    z, scale, a = standardised("gamma.cdf", x, loc, scale, a)
    return only_where((a > 0) & (scale > 0), gammainc(a, jnp.maximum(z, 0)))


def logcdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gamma.logcdf(1.0, 2.0).item(), 4)
    -1.3309
    """
    z, scale, a = standardised("gamma.logcdf", x, loc, scale, a)
    z = jnp.maximum(z, 0)
    return only_where((a > 0) & (scale > 0), log_probability(gammainc(a, z), gammaincc(a, z)))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gamma.sf(1.0, 2.0).item(), 4)
    0.7358
    """
    z, scale, a = standardised("gamma.sf", x, loc, scale, a)
    return only_where((a > 0) & (scale > 0), gammaincc(a, jnp.maximum(z, 0)))


def logsf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gamma.logsf(1.0, 2.0).item(), 4)
    -0.3069
    """
    z, scale, a = standardised("gamma.logsf", x, loc, scale, a)
    z = jnp.maximum(z, 0)
    return only_where((a > 0) & (scale > 0), log_probability(gammaincc(a, z), gammainc(a, z)))
