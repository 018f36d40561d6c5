"""The normal distribution of mean loc and standard deviation scale.

All arguments broadcast.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.config import config
from rlx.numpy.promotion import convert_to, promote_inexact
from rlx.scipy.special import log_ndtr, ndtr, ndtri
from rlx.scipy.stats.common import only_where, standardised

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.norm.logpdf(1.0).item(), 4)
    -1.4189
    """
    z, scale = standardised("norm.logpdf", x, loc, scale)
    return -0.5 * jnp.square(z) - jnp.log(scale) - 0.5 * math.log(2 * math.pi)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.norm.pdf(1.0).item(), 4)
    0.242
    """
    return jnp.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.norm.cdf(1.0).item(), 4)
    0.8413
    """
    z, scale = standardised("norm.cdf", x, loc, scale)
    return only_where(scale > 0, ndtr(z))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.norm.logcdf(1.0).item(), 4)
    -0.1728
    """
    z, scale = standardised("norm.logcdf", x, loc, scale)
    return only_where(scale > 0, log_ndtr(z))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.norm.sf(1.0).item(), 4)
    0.1587
    """
    z, scale = standardised("norm.sf", x, loc, scale)
    return only_where(scale > 0, ndtr(-z))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.norm.logsf(1.0).item(), 4)
    -1.841
    """
    z, scale = standardised("norm.logsf", x, loc, scale)
    return only_where(scale > 0, log_ndtr(-z))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability 1 - q; NaN unless q is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.norm.ppf(0.975).item(), 4)
    1.96
    """
    q, loc, scale = _promoted("norm.ppf", q, loc, scale)
    return only_where(scale > 0, ndtri(q) * scale + loc)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability q; NaN unless q is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.norm.isf(0.975).item(), 4)
    -1.96
    """
    q, loc, scale = _promoted("norm.isf", q, loc, scale)
    return only_where(scale > 0, loc - ndtri(q) * scale)


def _promoted(name: str, *values: Any) -> list[Array]:
    """The operands in the dtype of the quantile functions: at least the default float, as in JAX."""
    arrays = promote_inexact(name, *values)
    dtype = np.promote_types(arrays[0].dtype, config.default_float)
    return [convert_to(x, dtype) for x in arrays]
