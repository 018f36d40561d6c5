"""The beta distribution of shapes a and b, from loc to loc + scale.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.ops.beta import betaincc
from rlx.scipy.special import betainc, betaln, xlog1py, xlogy
from rlx.scipy.stats.common import log_probability, only_where, standardised

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.beta.logpdf(0.5, 2.0, 3.0).item(), 4)
    0.4055
    """
    z, scale, a, b = standardised("beta.logpdf", x, loc, scale, a, b)
    is_outside = (z < 0) | (z > 1)
    safe = jnp.where(is_outside, 0.5, z)
    result = xlogy(a - 1, safe) + xlog1py(b - 1, -safe) - betaln(a, b) - jnp.log(scale)
    return only_where((a > 0) & (b > 0) & (scale > 0), jnp.where(is_outside, -jnp.inf, result))


def pdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.beta.pdf(0.5, 2.0, 3.0).item(), 4)
    1.5
    """
    return jnp.exp(logpdf(x, a, b, loc, scale))


def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.beta.cdf(0.5, 2.0, 3.0).item(), 4)
    0.6875
    """
    z, scale, a, b = standardised("beta.cdf", x, loc, scale, a, b)
    z = jnp.clip(z, 0, 1)
    return only_where((a > 0) & (b > 0) & (scale > 0), betainc(a, b, z))


def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.beta.logcdf(0.5, 2.0, 3.0).item(), 4)
    -0.3747
    """
    z, scale, a, b = standardised("beta.logcdf", x, loc, scale, a, b)
    z = jnp.clip(z, 0, 1)
    return only_where((a > 0) & (b > 0) & (scale > 0), log_probability(betainc(a, b, z), betaincc(a, b, z)))


def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.beta.sf(0.5, 2.0, 3.0).item(), 4)
    0.3125
    """
    z, scale, a, b = standardised("beta.sf", x, loc, scale, a, b)
    z = jnp.clip(z, 0, 1)
    return only_where((a > 0) & (b > 0) & (scale > 0), betaincc(a, b, z))


def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.beta.logsf(0.5, 2.0, 3.0).item(), 4)
    -1.1632
    """
    z, scale, a, b = standardised("beta.logsf", x, loc, scale, a, b)
    z = jnp.clip(z, 0, 1)
    return only_where((a > 0) & (b > 0) & (scale > 0), log_probability(betaincc(a, b, z), betainc(a, b, z)))
