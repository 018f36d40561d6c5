"""Common parts of the distributions: standardised arguments, and logarithms of probabilities near 1."""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.nn.activations import log1mexp
from rlx.numpy.promotion import promote_inexact

__all__ = ["log_difference", "log_probability", "only_where", "quantile", "standardised"]


def standardised(name: str, x: Any, loc: Any, scale: Any, *parameters: Any) -> list[Array]:
    """(x - loc) / scale, the scale, and the other parameters, of one floating dtype."""
    x, loc, scale, *rest = promote_inexact(name, x, loc, scale, *parameters)
    return [(x - loc) / scale, scale, *rest]


def only_where(valid: Array, result: Any) -> Array:
    """The result where the parameters are valid, elsewhere NaN."""
    return jnp.where(valid, result, jnp.nan)


def log_probability(probability: Array, complement: Array) -> Array:
    """The logarithm of a probability, from its complement where that has more digits."""
    near_one, is_zero = probability > 0.5, probability <= 0
    # each case is computed only for its own arguments, so that derivatives stay finite
    far = jnp.where(is_zero, -jnp.inf, jnp.log(jnp.where(near_one | is_zero, 1, probability)))
    return jnp.where(near_one, jnp.log1p(-jnp.where(near_one, complement, 0)), far)


def log_difference(larger: Array, smaller: Array) -> Array:
    """log(exp(larger) - exp(smaller))."""
    is_equal = larger == smaller
    distance = jnp.where(is_equal, 1, larger - smaller)
    return jnp.where(is_equal, -jnp.inf, larger + log1mexp(distance))


def quantile(q: Array, result: Array) -> Array:
    """The result where q is a probability, elsewhere NaN."""
    return jnp.where((q >= 0) & (q <= 1), result, jnp.nan)
