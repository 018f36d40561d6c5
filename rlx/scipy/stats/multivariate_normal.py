"""The normal distribution of vectors, of a mean and a covariance.

The components are the last axis of x and mean; cov has two such axes, or is a number: then the
components are independent, of that variance. Other axes broadcast.
"""

from __future__ import annotations

import math
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.numpy.promotion import promote_inexact
from rlx.scipy.linalg import solve_triangular

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Array:
    """The logarithm of the density at x, of the shape of x without its last axis (for vectors).

    Args: x, mean: (..., n), or both numbers; cov: (..., n, n), positive definite, or a number;
    allow_singular: only None. Raises: ShapeError where cov does not fit; UnsupportedError for
    allow_singular.

    >>> import numpy as np, rlx
    >>> round(rlx.scipy.stats.multivariate_normal.logpdf(np.zeros(2), np.zeros(2), np.eye(2)).item(), 4)
    -1.8379
    """
    if allow_singular is not None:
        raise UnsupportedError(
            "multivariate_normal.logpdf(allow_singular=...) is not there.", "Give a positive definite covariance."
        )
    x, mean, cov = promote_inexact("multivariate_normal.logpdf", x, mean, cov)
    if not mean.ndim:
        return -0.5 * jnp.square(x - mean) / cov - 0.5 * (math.log(2 * math.pi) + jnp.log(cov))
    size = mean.shape[-1]
    deviation = x - mean
    if not cov.ndim:
        distance = jnp.sum(jnp.square(deviation), axis=-1) / cov
        return -0.5 * distance - 0.5 * size * (math.log(2 * math.pi) + jnp.log(cov))
    if cov.ndim < 2 or cov.shape[-2:] != (size, size):
        raise ShapeError(
            f"multivariate_normal got a covariance of shape {cov.shape} for a mean of shape {mean.shape}.",
            "Its last two axes have as many elements as the last one of mean.",
        )
    factor = jnp.linalg.cholesky(cov)
    lead = jnp.broadcast_shapes(deviation.shape[:-1], factor.shape[:-2])
    columns = jnp.broadcast_to(deviation, (*lead, deviation.shape[-1]))[..., None]
    whitened = solve_triangular(jnp.broadcast_to(factor, (*lead, size, size)), columns, lower=True)[..., 0]
    log_root = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-1, axis2=-2)), axis=-1)
    return -0.5 * jnp.sum(jnp.square(whitened), axis=-1) - 0.5 * size * math.log(2 * math.pi) - log_root


def pdf(x: Any, mean: Any, cov: Any) -> Array:
    """The density at x, of the shape of x without its last axis (for vectors); arguments as logpdf's.

    >>> import numpy as np, rlx
    >>> round(rlx.scipy.stats.multivariate_normal.pdf(np.zeros(2), np.zeros(2), np.eye(2)).item(), 4)
    0.1592
    """
    return jnp.exp(logpdf(x, mean, cov))
