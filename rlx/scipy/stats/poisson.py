"""The Poisson distribution of mean mu, shifted by loc.

All arguments broadcast.
"""

from __future__ import annotations

import math
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import entr, gammaincc, gammaln, xlogy
from rlx.scipy.stats.common import only_where

__all__ = ["cdf", "entropy", "logpmf", "pmf"]


def logpmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The logarithm of the probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.poisson.logpmf(2, 3.0).item(), 4)
    -1.4959
    """
    k, mu, loc = promote_inexact("poisson.logpmf", k, mu, loc)
    is_outside = (k < loc) | (jnp.round(k) != k)
    count = jnp.where(is_outside, 0, k - loc)
    inside = xlogy(count, mu) - gammaln(count + 1) - mu
    return jnp.where(is_outside & ~jnp.isnan(k), -jnp.inf, jnp.where(jnp.isnan(k), k, inside))


def pmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.poisson.pmf(2, 3.0).item(), 4)
    0.224
    """
    return jnp.exp(logpmf(k, mu, loc))


def cdf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of at most k.

    >>> import rlx
    >>> round(rlx.scipy.stats.poisson.cdf(2, 3.0).item(), 4)
    0.4232
    """
    k, mu, loc = promote_inexact("poisson.cdf", k, mu, loc)
    count = k - loc
    return jnp.where(count < 0, 0, gammaincc(jnp.floor(1 + jnp.maximum(count, 0)), mu))


def entropy(mu: Any, loc: Any = 0) -> Array:
    """The entropy in natural units, of the shape of mu and loc.

    From mu = 100 on by its asymptotic series (Evans and Boersma, 1988), below by the sum over counts.

    >>> import rlx
    >>> round(rlx.scipy.stats.poisson.entropy(3.0).item(), 4)
    1.9315
    """
    mu, loc = promote_inexact("poisson.entropy", mu, loc)
    is_large, is_small = mu >= 100, mu < 10
    large = jnp.where(is_large, mu, 100)
    series = 1 / (12 * large) + 1 / (24 * large**2) + 19 / (360 * large**3)
    asymptotic = 0.5 * jnp.log(2 * math.pi * math.e * large) - series
    few = _entropy_sum(jnp.where(is_small, mu, 1), 60)
    many = _entropy_sum(jnp.where(is_large | is_small, 50, mu), 250)
    result = jnp.where(is_large, asymptotic, jnp.where(is_small, few, many))
    shape = jnp.broadcast_shapes(mu.shape, loc.shape)
    return jnp.broadcast_to(only_where(mu >= 0, result), shape)


def _entropy_sum(mu: Array, terms: int) -> Array:
    """The sum over the first counts, which are all that matter."""
    counts = jnp.arange(terms, dtype=mu.dtype)
    return jnp.sum(entr(pmf(counts, jnp.expand_dims(mu, -1))), axis=-1)
