"""The chi-squared distribution of df degrees of freedom, with the given scale, from loc on.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.stats import gamma

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.chi2.logpdf(1.0, 2.0).item(), 4)
    -1.1931
    """
    x, df, loc, scale = promote_inexact("chi2.logpdf", x, df, loc, scale)
    return gamma.logpdf(x, df / 2, loc, 2 * scale)


def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.chi2.pdf(1.0, 2.0).item(), 4)
    0.3033
    """
    x, df, loc, scale = promote_inexact("chi2.pdf", x, df, loc, scale)
    return gamma.pdf(x, df / 2, loc, 2 * scale)


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.chi2.cdf(1.0, 2.0).item(), 4)
    0.3935
    """
    x, df, loc, scale = promote_inexact("chi2.cdf", x, df, loc, scale)
    return gamma.cdf(x, df / 2, loc, 2 * scale)


def logcdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.chi2.logcdf(1.0, 2.0).item(), 4)
    -0.9328
    """
    x, df, loc, scale = promote_inexact("chi2.logcdf", x, df, loc, scale)
    return gamma.logcdf(x, df / 2, loc, 2 * scale)


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.chi2.sf(1.0, 2.0).item(), 4)
    0.6065
    """
    x, df, loc, scale = promote_inexact("chi2.sf", x, df, loc, scale)
    return gamma.sf(x, df / 2, loc, 2 * scale)


def logsf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.chi2.logsf(1.0, 2.0).item(), 4)
    -0.5
    """
    x, df, loc, scale = promote_inexact("chi2.logsf", x, df, loc, scale)
    return gamma.logsf(x, df / 2, loc, 2 * scale)
