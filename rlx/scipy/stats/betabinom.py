"""The beta-binomial distribution: successes of n trials, of a probability drawn from beta(a, b).

Shifted by loc; k counts as the whole number below it. All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import betaln
from rlx.scipy.stats.common import only_where

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Array:
    """The logarithm of the probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.betabinom.logpmf(2, 5, 1.0, 2.0).item(), 4)
    -1.6582
    """
    k, n, a, b, loc = promote_inexact("betabinom.logpmf", k, n, a, b, loc)
    successes = jnp.floor(k) - loc
    is_inside = (successes >= 0) & (successes <= n)
    successes = jnp.where(is_inside, successes, 0)
    failures = n - successes
    ways = -jnp.log1p(n) - betaln(failures + 1, successes + 1)
    inside = ways + betaln(successes + a, failures + b) - betaln(a, b)
    return only_where((n >= 0) & (a > 0) & (b > 0), jnp.where(is_inside, inside, -jnp.inf))


def pmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Array:
    """The probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.betabinom.pmf(2, 5, 1.0, 2.0).item(), 4)
    0.1905
    """
    return jnp.exp(logpmf(k, n, a, b, loc))
