"""The binomial distribution: how many of n trials of probability p succeed; shifted by loc.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import betaln, xlog1py, xlogy

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The logarithm of the probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.binom.logpmf(2, 5, 0.5).item(), 4)
    -1.1632
    """
    k, n, p, loc = promote_inexact("binom.logpmf", k, n, p, loc)
    is_inside = (k >= loc) & (k < loc + n + 1)
    successes = jnp.where(is_inside, k - loc, 0)
    failures = n - successes
    ways = -jnp.log1p(n) - betaln(failures + 1, successes + 1)
    inside = ways + xlogy(successes, p) + xlog1py(failures, -p)
    missing = jnp.isnan(k) | jnp.isnan(n) | jnp.isnan(p)
    return jnp.where(is_inside | missing, inside, -jnp.inf)


def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.binom.pmf(2, 5, 0.5).item(), 4)
    0.3125
    """
    return jnp.exp(logpmf(k, n, p, loc))
