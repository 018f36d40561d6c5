"""The Pareto distribution of shape b: powers of x - loc, from scale on.

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


def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.pareto.logpdf(2.0, 3.0).item(), 4)
    -1.674
    """
    z, scale, b = standardised("pareto.logpdf", x, loc, scale, b)
    is_below = z < 1
    logarithm = jnp.log(jnp.where(is_below, 1, z))
    return only_where(
        (b > 0) & (scale > 0), jnp.where(is_below, -jnp.inf, jnp.log(b) - jnp.log(scale) - (b + 1) * logarithm)
    )


def pdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.pareto.pdf(2.0, 3.0).item(), 4)
    0.1875
    """
    return jnp.exp(logpdf(x, b, loc, scale))


def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.pareto.cdf(2.0, 3.0).item(), 4)
    0.875
    """
    z, scale, b = standardised("pareto.cdf", x, loc, scale, b)
    is_below = z < 1
    logarithm = jnp.log(jnp.where(is_below, 1, z))
    return only_where((b > 0) & (scale > 0), jnp.where(is_below, 0, -jnp.expm1(-b * logarithm)))


def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.pareto.logcdf(2.0, 3.0).item(), 4)
    -0.1335
    """
    z, scale, b = standardised("pareto.logcdf", x, loc, scale, b)
    is_below = z <= 1
    logarithm = jnp.log(jnp.where(is_below, 2, z))
    return only_where((b > 0) & (scale > 0), jnp.where(is_below, -jnp.inf, log1mexp(b * logarithm)))


def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.pareto.logsf(2.0, 3.0).item(), 4)
    -2.0794
    """
    z, scale, b = standardised("pareto.logsf", x, loc, scale, b)
    is_below = z < 1
    logarithm = jnp.log(jnp.where(is_below, 1, z))
    return only_where((b > 0) & (scale > 0), jnp.where(is_below, 0, -b * logarithm))


def sf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than x.

    >>> import rlx
    >>> round(rlx.scipy.stats.pareto.sf(2.0, 3.0).item(), 4)
    0.125
    """
    return jnp.exp(logsf(x, b, loc, scale))


def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability 1 - q; NaN unless q is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.pareto.ppf(0.5, 3.0).item(), 4)
    1.2599
    """
    q, b, loc, scale = promote_inexact("pareto.ppf", q, b, loc, scale)
    return only_where((b > 0) & (scale > 0), quantile(q, loc + scale * jnp.exp(-jnp.log1p(-q) / b)))
