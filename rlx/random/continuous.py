"""Continuous distributions made from uniform numbers by a formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import OptionError
from rlx.random.functions import log, log1p
from rlx.random.keys import single_key
from rlx.random.placing import placeable
from rlx.random.uniform import float_dtype, parameter, sample_shape, uniform_between

__all__ = [
    "cauchy",
    "exponential",
    "gumbel",
    "laplace",
    "logistic",
    "pareto",
    "rayleigh",
    "triangular",
    "weibull_min",
]


def smallest_normal(dtype: np.dtype) -> np.ndarray:
    """The smallest positive normal number of a dtype."""
    return np.asarray(ml_dtypes.finfo(dtype).smallest_normal, dtype)


def _uniform(name: str, key: Any, shape: Any, dtype: Any, minval: Any = 0.0) -> tuple[Array, np.dtype]:
    found = float_dtype(name, dtype)
    if minval == "tiny":
        minval = smallest_normal(found)
    elif minval == "epsilon":
        minval = np.asarray(ml_dtypes.finfo(found).eps, found)
    sizes = sample_shape(name, shape)
    return uniform_between(single_key(name, key), sizes, found, minval, 1.0), found


@placeable
def exponential(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """The exponential distribution of mean 1.

    >>> import rlx
    >>> bool((rlx.random.exponential(rlx.random.key(0), (10,)) >= 0).all())
    True
    """
    drawn, _ = _uniform("exponential", key, shape, dtype)
    return lax.neg(log1p(lax.neg(drawn)))


@placeable
def cauchy(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """The Cauchy distribution.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> bool(abs(jnp.median(rlx.random.cauchy(rlx.random.key(0), (10000,)))) < 0.1)
    True
    """
    drawn, found = _uniform("cauchy", key, shape, dtype, "epsilon")
    centred = lax.sub(drawn, lax.full((), 0.5, found))
    return lax.tan(lax.mul(lax.full((), math.pi, found), centred))


@placeable
def laplace(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """The Laplace distribution: exponential numbers with a random sign.

    >>> import rlx
    >>> round(rlx.random.laplace(rlx.random.key(0), (10000,)).var().item())
    2
    """
    found = float_dtype("laplace", dtype)
    lowest = np.asarray(-1.0 + float(ml_dtypes.finfo(found).epsneg), found)
    sizes = sample_shape("laplace", shape)
    drawn = uniform_between(single_key("laplace", key), sizes, found, lowest, 1.0)
    return lax.mul(lax.sign(drawn), log1p(lax.neg(lax.abs(drawn))))


@placeable
def logistic(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """The logistic distribution.

    >>> import rlx
    >>> round(rlx.random.logistic(rlx.random.key(0), (10000,)).std().item(), 1)
    1.8
    """
    drawn, _ = _uniform("logistic", key, shape, dtype, "tiny")
    return lax.sub(log(drawn), log1p(lax.neg(drawn)))


@placeable
def gumbel(key: Any, shape: Sequence[int] = (), dtype: Any = None, mode: str | None = None) -> Array:
    """The Gumbel distribution.

    Args:
      mode: "high" resolves the tail better, at twice the bits; "low" is the default.

    >>> import rlx
    >>> rlx.random.gumbel(rlx.random.key(0), (3,)).shape
    (3,)
    """
    if mode not in (None, "low", "high"):
        raise OptionError(f"random.gumbel has no mode {mode!r}.", "Use 'low' or 'high'.")
    if mode != "high":
        drawn, _ = _uniform("gumbel", key, shape, dtype, "tiny")
        return lax.neg(log(lax.neg(log(drawn))))
    found = float_dtype("gumbel", dtype)
    sizes = sample_shape("gumbel", shape)
    coarse, fine = lax.unstack(uniform_between(single_key("gumbel", key), (2, *sizes), found))
    step = 2.0 ** -int(ml_dtypes.finfo(found).nmant)
    finer = coarse + step * fine + smallest_normal(found)
    value = jnp.where(coarse >= 0.5, coarse, finer)
    return lax.neg(log(lax.neg(log1p(lax.neg(value)))))


@placeable
def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The Pareto distribution of shape parameter b.

    >>> import rlx
    >>> bool((rlx.random.pareto(rlx.random.key(0), 2.0, (100,)) >= 1).all())
    True
    """
    found = float_dtype("pareto", dtype)
    sizes = sample_shape("pareto", shape, b)
    return lax.exp(lax.div(exponential(key, sizes, found), parameter(b, found, sizes)))


@placeable
def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The Rayleigh distribution of the given scale.

    >>> import rlx
    >>> round((rlx.random.rayleigh(rlx.random.key(0), 2.0, (10000,)) ** 2).mean().item())
    8
    """
    found = float_dtype("rayleigh", dtype)
    sizes = sample_shape("rayleigh", shape, scale)
    drawn, _ = _uniform("rayleigh", key, sizes, found)
    lengths = lax.sqrt(lax.mul(log(drawn), lax.full((), -2, found)))
    return lax.mul(parameter(scale, found, sizes), lengths)


@placeable
def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The triangular distribution over left..right with its peak at mode.

    >>> import rlx
    >>> x = rlx.random.triangular(rlx.random.key(0), 0.0, 1.0, 2.0, (100,))
    >>> bool(((x >= 0) & (x <= 2)).all())
    True
    """
    found = float_dtype("triangular", dtype)
    sizes = sample_shape("triangular", shape, left, mode, right)
    low, peak, high = (parameter(v, found, sizes) for v in (left, mode, right))
    drawn, _ = _uniform("triangular", key, sizes, found)
    rising = low + lax.sqrt(drawn * (high - low) * (peak - low))
    falling = high - lax.sqrt((1 - drawn) * (high - low) * (high - peak))
    return lax.select(drawn < (peak - low) / (high - low), rising, falling)


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """The Weibull distribution of minima.

    >>> import rlx
    >>> round(rlx.random.weibull_min(rlx.random.key(0), 2.0, 1.0, (10000,)).mean().item())
    2
    """
    found = float_dtype("weibull_min", dtype)
    drawn, _ = _uniform("weibull_min", key, sample_shape("weibull_min", shape), found)
    base = lax.neg(log1p(lax.neg(drawn)))
    return jnp.power(base, 1.0 / concentration) * scale
