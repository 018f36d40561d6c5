"""The Laplace distribution around loc, of mean deviation scale.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.scipy.stats.common import only_where, standardised

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.laplace.logpdf(1.0).item(), 4)
    -1.6931
    """
    z, scale = standardised("laplace.logpdf", x, loc, scale)
    return -jnp.abs(z) - jnp.log(2 * scale)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.laplace.pdf(1.0).item(), 4)
    0.1839
    """
    return jnp.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.laplace.cdf(1.0).item(), 4)
    0.8161
    """
    z, scale = standardised("laplace.cdf", x, loc, scale)
    tail = 0.5 * jnp.exp(-jnp.abs(z))
    return only_where(scale > 0, jnp.where(z <= 0, tail, 1 - tail))
