"""The negative binomial distribution: failures before n successes of probability p; shifted by loc.

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
    >>> round(rlx.scipy.stats.nbinom.logpmf(2, 5, 0.5).item(), 4)
    -2.144
    """
    k, n, p, loc = promote_inexact("nbinom.logpmf", k, n, p, loc)
    is_below = k < loc
    failures = jnp.where(is_below, 0, k - loc)
    ways = -jnp.log(failures + n) - betaln(n, failures + 1)
    return jnp.where(is_below, -jnp.inf, ways + xlogy(n, p) + xlog1py(failures, -p))


def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.nbinom.pmf(2, 5, 0.5).item(), 4)
    0.1172
    """
    return jnp.exp(logpmf(k, n, p, loc))
