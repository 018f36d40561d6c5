"""The von Mises distribution of angles around 0, of concentration kappa.

The arguments broadcast.
"""

from __future__ import annotations

import math
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import i0e
from rlx.scipy.stats.common import only_where

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, kappa: Any) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.vonmises.logpdf(1.0, 2.0).item(), 4)
    -1.5813
    """
    x, kappa = promote_inexact("vonmises.logpdf", x, kappa)
    excess = -2 * jnp.square(jnp.sin(x / 2))  # cos(x) - 1, exact for small x
    return only_where(kappa >= 0, kappa * excess - jnp.log(2 * math.pi * i0e(kappa)))


def pdf(x: Any, kappa: Any) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.vonmises.pdf(1.0, 2.0).item(), 4)
    0.2057
    """
    return jnp.exp(logpdf(x, kappa))
