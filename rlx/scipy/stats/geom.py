"""The geometric distribution: the number of the first success, of probability p; shifted by loc.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import xlog1py

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The logarithm of the probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.geom.logpmf(2, 0.25).item(), 4)
    -1.674
    """
    k, p, loc = promote_inexact("geom.logpmf", k, p, loc)
    number = k - loc
    return jnp.where(number <= 0, -jnp.inf, xlog1py(number - 1, -p) + jnp.log(p))


def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of k.

    >>> import rlx
    >>> round(rlx.scipy.stats.geom.pmf(2, 0.25).item(), 4)
    0.1875
    """
    return jnp.exp(logpmf(k, p, loc))
