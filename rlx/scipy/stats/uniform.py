"""The uniform distribution from loc to loc + scale.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.stats.common import only_where, quantile

__all__ = ["cdf", "logpdf", "pdf", "ppf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.uniform.logpdf(0.25, 0, 2).item(), 4)
    -0.6931
    """
    x, loc, scale = promote_inexact("uniform.logpdf", x, loc, scale)
    return jnp.where((x < loc) | (x > loc + scale), -jnp.inf, -jnp.log(scale))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.uniform.pdf(0.25, 0, 2).item(), 4)
    0.5
    """
    return jnp.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.uniform.cdf(0.25, 0, 2).item(), 4)
    0.125
    """
    x, loc, scale = promote_inexact("uniform.cdf", x, loc, scale)
    return only_where(scale > 0, jnp.where(x < loc, 0, jnp.where(x > loc + scale, 1, (x - loc) / scale)))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability 1 - q; NaN unless q is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.uniform.ppf(0.25, 0, 2).item(), 4)
    0.5
    """
    q, loc, scale = promote_inexact("uniform.ppf", q, loc, scale)
    return quantile(q, loc + scale * q)
