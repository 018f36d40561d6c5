"""The Cauchy distribution wrapped around the circle 0..2 pi, of concentration c in 0..1.

The arguments broadcast.
"""

from __future__ import annotations

import math
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.stats.common import only_where

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, c: Any) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.wrapcauchy.logpdf(1.0, 0.5).item(), 4)
    -1.7826
    """
    x, c = promote_inexact("wrapcauchy.logpdf", x, c)
    # 1 + c**2 - 2 c cos(x)
    distance = jnp.square(1 - c) + 4 * c * jnp.square(jnp.sin(x / 2))
    result = jnp.log1p(-jnp.square(c)) - math.log(2 * math.pi) - jnp.log(distance)
    is_outside = (x < 0) | (x > 2 * math.pi)
    return only_where((c > 0) & (c < 1), jnp.where(is_outside, -jnp.inf, result))


def pdf(x: Any, c: Any) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.wrapcauchy.pdf(1.0, 0.5).item(), 4)
    0.1682
    """
    return jnp.exp(logpdf(x, c))
