"""The gamma distribution, and those that are ratios and functions of gamma numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.random.continuous import exponential, smallest_normal
from rlx.random.functions import log
from rlx.random.keys import single_key, split_key
from rlx.random.normal import normal_of
from rlx.random.placing import placeable
from rlx.random.uniform import (
    float_dtype,
    only_exact,
    parameter,
    rademacher,
    sample_shape,
    uniform_between,
)
from rlx.trace.flat import as_array
from rlx.transforms.custom import custom_jvp

__all__ = [
    "ball",
    "beta",
    "chisquare",
    "dirichlet",
    "f",
    "gamma",
    "generalized_normal",
    "loggamma",
    "t",
]


# ------------------------------------------------------------- one number, by rejection
def _accepted_cube(key: Array, d: Array, c: Array, dtype: np.dtype) -> Array:
    """V of Marsaglia and Tsang's method: d * V is a gamma number of parameter d + 1/3."""
    half, squeeze = lax.full((), 0.5, dtype), lax.full((), 0.0331, dtype)
    one, zero = lax.full((), 1, dtype), lax.full((), 0, dtype)

    def rejected(state: tuple[Any, ...]) -> Array:
        _, x, v, u = state
        outside = lax.ge(u, lax.sub(one, lax.mul(squeeze, lax.mul(x, x))))
        bound = lax.add(lax.mul(x, half), lax.mul(d, lax.add(lax.sub(one, v), log(v))))
        return lax.bitwise_and(outside, lax.ge(log(u), bound))

    def draw_positive(state: tuple[Any, ...]) -> tuple[Any, ...]:
        key, own = lax.unstack(split_key(state[0]))
        x = normal_of(own, (), dtype)
        return key, x, lax.add(one, lax.mul(x, c))

    def attempt(state: tuple[Any, ...]) -> tuple[Any, ...]:
        key, key_normal, key_uniform = lax.unstack(split_key(state[0], (3,)))
        _, x, v = lax.while_loop(lambda s: lax.le(s[2], zero), draw_positive, (key_normal, zero, lax.neg(one)))
        cube = lax.mul(lax.mul(v, v), v)
        return key, lax.mul(x, x), cube, uniform_between(key_uniform, (), dtype)

    start = (key, zero, one, lax.full((), 2, dtype))
    return lax.while_loop(rejected, attempt, start)[2]


def _gamma_number(key: Array, alpha: Array, log_space: bool) -> Array:
    """One gamma number; parameters below 1 are raised by 1 and the result scaled down."""
    dtype = alpha.dtype
    one, third = lax.full((), 1, dtype), lax.full((), 1.0 / 3.0, dtype)
    large = lax.ge(alpha, one)
    d = lax.sub(lax.select(large, alpha, lax.add(alpha, one)), third)
    c = lax.div(third, lax.sqrt(d))
    key, key_boost = lax.unstack(split_key(key))
    cube = _accepted_cube(key, d, c, dtype)
    inverse = lax.div(one, alpha)
    if not log_space:
        drawn = lax.sub(one, uniform_between(key_boost, (), dtype))
        boost = lax.select(large, one, lax.pow(drawn, inverse))
        return lax.mul(lax.mul(d, cube), boost)
    zero = lax.full((), 0, dtype)
    log_drawn = lax.neg(exponential(key_boost, (), dtype))
    unboosted = lax.bitwise_or(large, lax.eq(log_drawn, zero))
    boost = lax.select(unboosted, zero, lax.mul(log_drawn, inverse))
    return lax.add(lax.add(log(d), log(cube)), boost)


# ------------------------------------------------------------- arrays
def _sample(key: Any, alpha: Any, log_space: bool) -> Array:
    count = alpha.size
    keys = split_key(key, (count,))
    flat = lax.map(lambda pair: _gamma_number(*pair, log_space), (keys, lax.reshape(alpha, (count,))))
    return lax.reshape(flat, alpha.shape)


def _slope(alpha: Any, samples: Any, log_space: bool) -> Array:
    """The derivative of samples with respect to their parameter, at a fixed quantile."""
    if not log_space:
        return lax.random_gamma_grad(alpha, samples)
    values = lax.exp(samples)
    tiny = lax.full(values.shape, smallest_normal(values.dtype))
    values = lax.select(lax.eq(values, lax.full_like(values, 0)), tiny, values)
    return lax.div(lax.random_gamma_grad(alpha, values), values)


def _sampler(log_space: bool) -> custom_jvp:
    @custom_jvp
    def sample(key: Any, alpha: Any) -> Array:
        return _sample(key, alpha, log_space)

    @sample.defjvp
    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        key, alpha = primals
        samples = sample(key, alpha)
        return samples, lax.mul(tangents[1], _slope(alpha, samples, log_space))

    return sample


_gamma_samples, _log_gamma_samples = _sampler(False), _sampler(True)


@placeable
def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, method: str = "exact") -> Array:
    """The gamma distribution of parameter a and scale 1; differentiable in a.

    method: only "exact" is supported; another value raises UnsupportedError.

    >>> import rlx
    >>> bool((rlx.random.gamma(rlx.random.key(0), 2.0, (10,)) > 0).all())
    True
    """
    only_exact("gamma", method)
    found = float_dtype("gamma", dtype)
    sizes = sample_shape("gamma", shape, a)
    return _gamma_samples(single_key("gamma", key), parameter(a, found, sizes))


@placeable
def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, method: str = "exact") -> Array:
    """The logarithm of gamma numbers, which does not underflow for small parameters.

    method: only "exact" is supported; another value raises UnsupportedError.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> bool(jnp.isfinite(rlx.random.loggamma(rlx.random.key(0), 1e-4, (100,))).all())
    True
    """
    only_exact("loggamma", method)
    found = float_dtype("loggamma", dtype)
    sizes = sample_shape("loggamma", shape, a)
    return _log_gamma_samples(single_key("loggamma", key), parameter(a, found, sizes))


@placeable
def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *, method: str = "exact") -> Array:
    """The beta distribution of parameters a and b.

    method: only "exact" is supported; another value raises UnsupportedError.

    >>> import rlx
    >>> x = rlx.random.beta(rlx.random.key(0), 2.0, 3.0, (10,))
    >>> bool(((x > 0) & (x < 1)).all())
    True
    """
    only_exact("beta", method)
    found = float_dtype("beta", dtype)
    sizes = sample_shape("beta", shape, a, b)
    key_a, key_b = lax.unstack(split_key(single_key("beta", key)))
    first, second = (loggamma(k, v, sizes, found) for k, v in ((key_a, a), (key_b, b)))
    largest = lax.max(first, second)
    first, second = (lax.exp(lax.sub(x, largest)) for x in (first, second))
    return lax.div(first, lax.add(first, second))


@placeable
def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The Dirichlet distribution of parameters alpha: vectors that sum to 1 along the last axis.

    >>> import numpy as np, rlx
    >>> rlx.random.dirichlet(rlx.random.key(0), np.ones(3, np.float32), (5,)).shape
    (5, 3)
    """
    found = float_dtype("dirichlet", dtype)
    value = as_array(alpha)
    if value.ndim < 1:
        raise ShapeError("random.dirichlet got a scalar alpha.", "Alpha has one number for each component.")
    *lead, components = value.shape
    if shape is None:
        sizes = tuple(lead)
    else:
        sizes = sample_shape("dirichlet", shape, np.empty(lead, bool))
    logs = loggamma(key, value, (*sizes, components), found)
    shares = jnp.exp(logs - lax.stop_gradient(logs.max(-1, keepdims=True)))
    return shares / shares.sum(-1, keepdims=True)


@placeable
def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, method: str = "exact") -> Array:
    """The chi-square distribution of df degrees of freedom.

    method: only "exact" is supported; another value raises UnsupportedError.

    >>> import rlx
    >>> round(rlx.random.chisquare(rlx.random.key(0), 3.0, (10000,)).mean().item(), 1)
    3.0
    """
    only_exact("chisquare", method)
    found = float_dtype("chisquare", dtype)
    sizes = sample_shape("chisquare", shape, df)
    two = lax.full((), 2, found)
    half = lax.div(lax.convert_element_type(df, found), two)
    return lax.mul(lax.exp(loggamma(key, half, sizes, found)), two)


@placeable
def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The F distribution of dfnum and dfden degrees of freedom.

    >>> import rlx
    >>> bool((rlx.random.f(rlx.random.key(0), 3.0, 5.0, (100,)) > 0).all())
    True
    """
    found = float_dtype("f", dtype)
    sizes = sample_shape("f", shape, dfnum, dfden)
    key_below, key_above = lax.unstack(split_key(single_key("f", key)))
    above, below = (
        lax.div(chisquare(k, df, sizes, found), parameter(df, found, sizes))
        for k, df in ((key_above, dfnum), (key_below, dfden))
    )
    return lax.div(above, below)


@placeable
def t(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Student's t distribution of df degrees of freedom.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.random.t(rlx.random.key(0), jnp.array([1.0, 5.0])).shape
    (2,)
    """
    found = float_dtype("t", dtype)
    sizes = sample_shape("t", shape, df)
    key_normal, key_gamma = lax.unstack(split_key(single_key("t", key)))
    half = lax.div(parameter(df, found, sizes), lax.full((), 2, found))
    spread = lax.sqrt(lax.div(half, gamma(key_gamma, half, sizes, found)))
    return lax.mul(normal_of(key_normal, sizes, found), spread)


@placeable
def generalized_normal(key: Any, p: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """The distribution with density proportional to exp(-abs(x)**p).

    >>> import rlx
    >>> round(rlx.random.generalized_normal(rlx.random.key(0), 2.0, (10000,)).var().item(), 1)
    0.5
    """
    found = float_dtype("generalized_normal", dtype)
    sizes = sample_shape("generalized_normal", shape)
    key_size, key_sign = lax.unstack(split_key(single_key("generalized_normal", key)))
    sizes_drawn = gamma(key_size, 1 / p, sizes, found)
    signs = rademacher(key_sign, sizes, found)
    return signs * sizes_drawn ** (1 / p)


@placeable
def ball(key: Any, d: int, p: float = 2, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """Points spread evenly in the unit ball of d dimensions under the p-norm.

    Args: d: dimensions; p: the norm; shape: of the points. Returns: floats (*shape, d).

    >>> import rlx
    >>> points = rlx.random.ball(rlx.random.key(0), 3, shape=(100,))
    >>> points.shape, bool((points**2).sum(axis=1).max() <= 1)
    ((100, 3), True)
    """
    found = float_dtype("ball", dtype)
    sizes = sample_shape("ball", shape)
    key_direction, key_radius = lax.unstack(split_key(single_key("ball", key)))
    points = generalized_normal(key_direction, p, (*sizes, d), found)
    extra = exponential(key_radius, sizes, found)
    norm = (lax.reduce_sum(jnp.abs(points) ** p, (len(sizes),)) + extra) ** (1 / p)
    return points / lax.expand_dims(norm, (len(sizes),))
