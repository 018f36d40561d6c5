"""Student's t distribution of df degrees of freedom, around loc.

All arguments broadcast.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.scipy.special import betaln
from rlx.scipy.stats.common import standardised

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The logarithm of the density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.t.logpdf(1.0, 3.0).item(), 4)
    -1.5763
    """
    z, scale, df = standardised("t.logpdf", x, loc, scale, df)
    normaliser = betaln(df / 2, 0.5) + 0.5 * jnp.log(df) + jnp.log(scale)
    return -normaliser - (df + 1) / 2 * jnp.log1p(jnp.square(z) / df)


def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at x.

    >>> import rlx
    >>> round(rlx.scipy.stats.t.pdf(1.0, 3.0).item(), 4)
    0.2067
    """
    return jnp.exp(logpdf(x, df, loc, scale))
