"""Gumbel's distribution of largest values, with its mode at loc.

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
    >>> round(rlx.scipy.stats.gumbel_r.logpdf(1.0).item(), 4)
    -1.3679
    """
    z, scale = standardised("gumbel_r.logpdf", x, loc, scale)
    return only_where(scale > 0, -z - jnp.exp(-z) - jnp.log(scale))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gumbel_r.pdf(1.0).item(), 4)
    0.2546
    """
    return jnp.exp(logpdf(x, loc, scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gumbel_r.logcdf(1.0).item(), 4)
    -0.3679
    """
    z, scale = standardised("gumbel_r.logcdf", x, loc, scale)
    return only_where(scale > 0, -jnp.exp(-z))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gumbel_r.cdf(1.0).item(), 4)
    0.6922
    """
    return jnp.exp(logcdf(x, loc, scale))


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability 1 - p; NaN unless p is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.gumbel_r.ppf(0.5).item(), 4)
    0.3665
    """
    p, loc, scale = promote_inexact("gumbel_r.ppf", p, loc, scale)
    return only_where(scale > 0, quantile(p, loc - scale * jnp.log(-jnp.log(p))))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gumbel_r.sf(1.0).item(), 4)
    0.3078
    """
    z, scale = standardised("gumbel_r.sf", x, loc, scale)
    return only_where(scale > 0, -jnp.expm1(-jnp.exp(-z)))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gumbel_r.logsf(1.0).item(), 4)
    -1.1783
    """
    z, scale = standardised("gumbel_r.logsf", x, loc, scale)
    return only_where(scale > 0, log1mexp(jnp.exp(-z)))
