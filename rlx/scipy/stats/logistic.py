"""The logistic distribution around loc.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import expit, logit
from rlx.scipy.stats.common import only_where, standardised

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.logistic.logpdf(0.25).item(), 4)
    -1.4019
    """
    z, scale = standardised("logistic.logpdf", x, loc, scale)
    return -2 * jnp.logaddexp(z / 2, -z / 2) - jnp.log(scale)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.logistic.pdf(0.25).item(), 4)
    0.2461
    """
    return jnp.exp(logpdf(x, loc, scale))


def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability 1 - x; NaN unless x is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.logistic.ppf(0.25).item(), 4)
    -1.0986
    """
    x, loc, scale = promote_inexact("logistic.ppf", x, loc, scale)
    return only_where(scale > 0, loc + logit(x) * scale)


def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability x; NaN unless x is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.logistic.isf(0.25).item(), 4)
    1.0986
    """
    x, loc, scale = promote_inexact("logistic.isf", x, loc, scale)
    return only_where(scale > 0, loc - logit(x) * scale)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.logistic.cdf(0.25).item(), 4)
    0.5622
    """
    z, scale = standardised("logistic.cdf", x, loc, scale)
    return only_where(scale > 0, expit(z))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.logistic.sf(0.25).item(), 4)
    0.4378
    """
    z, scale = standardised("logistic.sf", x, loc, scale)
    return only_where(scale > 0, expit(-z))
