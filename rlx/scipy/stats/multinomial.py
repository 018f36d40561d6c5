"""The multinomial distribution: how often each outcome occurs in n trials, of probabilities p.

The outcomes are the last axis of x and p; n broadcasts with the other axes.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import DtypeError
from rlx.ir.types import is_integer
from rlx.numpy.promotion import promote_inexact, promote_numeric
from rlx.scipy.special import gammaln, xlogy

__all__ = ["logpmf", "pmf"]


def logpmf(x: Any, n: Any, p: Any) -> Array:
    """The logarithm of the probability of the counts x, of their shape without the last axis.

    Raises: DtypeError where x or n is not of an integer dtype.

    >>> import numpy as np, rlx
    >>> round(rlx.scipy.stats.multinomial.logpmf(np.array([1, 1]), 2, np.array([0.5, 0.5])).item(), 4)
    -0.6931
    """
    (p,) = promote_inexact("multinomial.logpmf", p)
    x, n = promote_numeric("multinomial.logpmf", x, n)
    if not is_integer(x.dtype):
        raise DtypeError(f"multinomial.logpmf got counts of dtype {x.dtype}.", "Pass integers for x and n.")
    is_complete = jnp.sum(x, axis=-1) == n
    counts, trials = (lax.convert_element_type(v, p.dtype) for v in (x, n))
    inside = gammaln(trials + 1) + jnp.sum(xlogy(counts, p) - gammaln(counts + 1), axis=-1)
    return jnp.where(is_complete, inside, -jnp.inf)


def pmf(x: Any, n: Any, p: Any) -> Array:
    """The probability of the counts x, of their shape without the last axis.

    >>> import numpy as np, rlx
    >>> round(rlx.scipy.stats.multinomial.pmf(np.array([1, 1]), 2, np.array([0.5, 0.5])).item(), 4)
    0.5
    """
    return jnp.exp(logpmf(x, n, p))
