"""The generalised normal distribution: exp(-|x| ** beta).

The arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import gammaincc, gammaln

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: Any, beta: Any) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gennorm.logpdf(1.0, 3.0).item(), 4)
    -1.58
    """
    x, beta = promote_inexact("gennorm.logpdf", x, beta)
    return jnp.log(0.5 * beta) - gammaln(1 / beta) - jnp.abs(x) ** beta


def pdf(x: Any, beta: Any) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gennorm.pdf(1.0, 3.0).item(), 4)
    0.206
    """
    return jnp.exp(logpdf(x, beta))


def cdf(x: Any, beta: Any) -> Array:
    """The probability of at most x.

    >>> import rlx
    >>> round(rlx.scipy.stats.gennorm.cdf(1.0, 3.0).item(), 4)
    0.9521
    """
    x, beta = promote_inexact("gennorm.cdf", x, beta)
    tail = 0.5 * gammaincc(1 / beta, jnp.abs(x) ** beta)
    return jnp.where(x > 0, 1 - tail, tail)
