"""The Bernoulli distribution: 1 with probability p, else 0; shifted by loc.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import xlog1py, xlogy
from rlx.scipy.stats.common import only_where, quantile

__all__ = ["cdf", "logpmf", "pmf", "ppf"]


def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The logarithm of the probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.bernoulli.logpmf(1, 0.25).item(), 4)
    -1.3863
    """
    k, p, loc = promote_inexact("bernoulli.logpmf", k, p, loc)
    value = k - loc
    inside = xlogy(value, p) + xlog1py(1 - value, -p)
    return jnp.where((value < 0) | (value > 1), -jnp.inf, inside)


def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.bernoulli.pmf(1, 0.25).item(), 4)
    0.25
    """
    return jnp.exp(logpmf(k, p, loc))


def cdf(k: Any, p: Any) -> Array:
    """The probability of at most k.

    >>> import rlx
    >>> round(rlx.scipy.stats.bernoulli.cdf(1, 0.25).item(), 4)
    1.0
    """
    k, p = promote_inexact("bernoulli.cdf", k, p)
    below_one = jnp.where(k < 0, 0, 1 - p)
    return only_where((p >= 0) & (p <= 1) & ~jnp.isnan(k), jnp.where(k >= 1, 1, below_one))


def ppf(q: Any, p: Any) -> Array:
    """The value that is exceeded with probability 1 - q; NaN unless q is in 0..1.

    >>> import rlx
    >>> round(rlx.scipy.stats.bernoulli.ppf(0.9, 0.25).item(), 4)
    1.0
    """
    q, p = promote_inexact("bernoulli.ppf", q, p)
    return only_where((p >= 0) & (p <= 1), quantile(q, jnp.where(q <= 1 - p, 0, jnp.ones_like(q))))
