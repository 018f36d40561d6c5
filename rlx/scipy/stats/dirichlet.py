"""The Dirichlet distribution of shapes alpha, over points whose coordinates are positive and sum to 1.

x has the coordinates along its first axis, all of them or all but the last; alpha is 1-d.
"""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.special import gammaln, xlogy

__all__ = ["logpdf", "pdf"]

# how far from 1 the sum of the coordinates may be
TOLERANCE = 1e-6


def logpdf(x: Any, alpha: Any) -> Array:
    """The logarithm of the density at x, of the shape of x without its first axis; -inf off the simplex.

    >>> import numpy as np, rlx
    >>> round(rlx.scipy.stats.dirichlet.logpdf(np.array([0.25, 0.75]), np.array([2.0, 1.0])).item(), 4)
    -0.6931
    """
    x, alpha = promote_inexact("dirichlet.logpdf", x, alpha)
    if alpha.ndim != 1:
        raise ShapeError(f"dirichlet got alpha of shape {alpha.shape}.", "Pass a 1-d array.")
    size = alpha.shape[0]
    if x.ndim == 0 or x.shape[0] not in (size, size - 1):
        raise ShapeError(
            f"dirichlet got x of shape {x.shape} for alpha of shape {alpha.shape}.",
            "The first axis of x has as many elements as alpha, or one fewer.",
        )
    if x.shape[0] != size:
        x = jnp.concatenate([x, 1 - jnp.sum(x, axis=0, keepdims=True)], axis=0)
    normaliser = jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))
    powers = jnp.reshape(alpha, (size, *(1,) * (x.ndim - 1))) - 1
    inside = jnp.sum(xlogy(powers, x), axis=0) - normaliser
    is_simplex = jnp.all(x > 0, axis=0) & (jnp.abs(jnp.sum(x, axis=0) - 1) < TOLERANCE)
    return jnp.where(is_simplex, inside, -jnp.inf)


def pdf(x: Any, alpha: Any) -> Array:
    """The density at x, of the shape of x without its first axis; 0 off the simplex.

    >>> import numpy as np, rlx
    >>> rlx.scipy.stats.dirichlet.pdf(np.array([0.25, 0.75]), np.array([2.0, 1.0])).item()
    0.5
    """
    return jnp.exp(logpdf(x, alpha))
