"""Discrete distributions: categorical, poisson, geometric, binomial."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ir.types import is_float
from rlx.lax.operands import canonical_axis
from rlx.numpy.promotion import canonical_shape
from rlx.random.continuous import gumbel
from rlx.random.functions import log, log1p
from rlx.random.keys import single_key, split_key
from rlx.random.placing import placeable
from rlx.random.uniform import (
    float_dtype,
    integer_dtype,
    only_exact,
    parameter,
    sample_shape,
    uniform_between,
)
from rlx.trace.flat import as_array

__all__ = ["binomial", "categorical", "geometric", "multinomial", "poisson"]

FLOAT32 = np.dtype(np.float32)


# ------------------------------------------------------------- categorical
@placeable
def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
) -> Array:
    """Positions along an axis with probabilities proportional to exp(logits).

    Args:
      logits: unnormalised logarithms of probabilities.
      axis: the axis of categories.
      shape: of the result; ends with the logits' other axes.
      replace: whether one position may be drawn several times along the leading axes of shape.
      mode: as in gumbel.

    >>> import numpy as np, rlx
    >>> rlx.random.categorical(rlx.random.key(0), np.array([-1e9, 0.0], np.float32)).item()
    1
    """
    values = as_array(logits)
    at = canonical_axis("random.categorical", axis, values.ndim)
    batch = values.shape[:at] + values.shape[at + 1 :]
    sizes = batch if shape is None else sample_shape("categorical", shape, np.empty(batch, bool))
    prefix = sizes[: len(sizes) - len(batch)]
    if not replace:
        return _without_replacement(key, values, at, prefix, sizes, mode)
    drawn = list(sizes[len(sizes) - len(batch) :])
    drawn.insert(at, values.shape[at])
    noise = gumbel(key, (*prefix, *drawn), values.dtype, mode)
    return jnp.argmax(noise + values, axis=at - values.ndim)


def _without_replacement(key: Any, values: Array, axis: int, prefix: Any, sizes: Any, mode: str | None) -> Array:
    count = prod(prefix)
    if count > values.shape[axis]:
        raise ShapeError(
            f"random.categorical cannot draw {count} of {values.shape[axis]} categories without replacement.",
            "Draw fewer, or pass replace=True.",
        )
    noisy = values + gumbel(key, values.shape, values.dtype, mode)
    positions = lax.top_k(jnp.moveaxis(noisy, axis, -1), count)[1]
    return lax.reshape(positions, sizes, (positions.ndim - 1, *range(positions.ndim - 1)))


# ------------------------------------------------------------- poisson
@placeable
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, method: str = "exact") -> Array:
    """The Poisson distribution of mean lam.

    method: only "exact" is supported; another value raises UnsupportedError.

    >>> import rlx
    >>> bool((rlx.random.poisson(rlx.random.key(0), 4.0, (10,)) >= 0).all())
    True
    """
    only_exact("poisson", method)
    found = integer_dtype("poisson", dtype)
    sizes = sample_shape("poisson", shape, lam)
    mean = parameter(lam, FLOAT32, sizes)
    typed = single_key("poisson", key)
    small = (mean != mean) | (mean < 10)
    by_product = _poisson_small(typed, jnp.where(small, mean, 0.0), sizes, found)
    by_rejection = _poisson_large(typed, jnp.where(small, 1e5, mean), sizes, found)
    return jnp.where(mean == 0, 0, jnp.where(small, by_product, by_rejection))


def _limit(dtype: np.dtype) -> int:
    return min(int(ml_dtypes.iinfo(dtype).max), 2**31 - 1)


def _poisson_small(key: Array, mean: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Knuth: count uniform numbers until their product falls below exp(-mean)."""
    limit = _limit(dtype)

    def unfinished(state: tuple[Any, ...]) -> Array:
        step, _, _, logarithm = state
        return (logarithm > -mean).any() & (step < limit)

    def multiply(state: tuple[Any, ...]) -> tuple[Any, ...]:
        step, count, key, logarithm = state
        key, own = lax.unstack(split_key(key))
        count = jnp.where(logarithm > -mean, count + 1, count)
        drawn = uniform_between(own, shape, FLOAT32)
        return step + 1, count, key, logarithm + log(drawn)

    start = (np.int32(0), lax.full(shape, 0, dtype), key, lax.full(shape, 0, FLOAT32))
    return lax.while_loop(unfinished, multiply, start)[1] - 1


def _poisson_large(key: Array, mean: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Hormann's transformed rejection."""
    limit = _limit(dtype)
    log_mean = log(mean)
    b = 0.931 + 2.53 * lax.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def unfinished(state: tuple[Any, ...]) -> Array:
        step, _, accepted, _ = state
        return (~accepted).any() & (step < limit)

    def attempt(state: tuple[Any, ...]) -> tuple[Any, ...]:
        step, found, accepted, key = state
        key, key_u, key_v = lax.unstack(split_key(key, (3,)))
        u = uniform_between(key_u, shape, FLOAT32) - 0.5
        v = uniform_between(key_v, shape, FLOAT32)
        shifted = 0.5 - lax.abs(u)
        k = lax.floor((2 * a / shifted + b) * u + mean + 0.43)
        s = log(v * inverse_alpha / (a / (shifted * shifted) + b))
        t = -mean + k * log_mean - lax.lgamma(k + 1)
        inside = (shifted >= 0.07) & (v <= v_r)
        outside = (k < 0) | ((shifted < 0.013) & (v > shifted))
        accept = inside | (~outside & (s <= t))
        return step + 1, jnp.where(accept, k, found), accepted | accept, key

    start = (np.int32(0), lax.full(shape, -1, FLOAT32), lax.full(shape, False), key)
    return lax.convert_element_type(lax.while_loop(unfinished, attempt, start)[1], dtype)


# ------------------------------------------------------------- geometric, binomial
@placeable
def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of trials with success probability p up to the first success.

    >>> import rlx
    >>> round(rlx.random.geometric(rlx.random.key(0), 0.25, (10000,)).mean().item())
    4
    """
    found = integer_dtype("geometric", dtype)
    chance = as_array(p)
    if not is_float(chance.dtype):
        chance = jnp.asarray(chance, float)
    sizes = sample_shape("geometric", shape, chance)
    drawn = uniform_between(single_key("geometric", key), sizes, chance.dtype)
    drawn = jnp.where(drawn == 0, 1, drawn)
    logarithm = parameter(log1p(-chance), chance.dtype, sizes)
    trials = lax.floor(lax.div(log(drawn), logarithm)) + 1
    return lax.convert_element_type(trials, found)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of successes in n trials with success probability p, as floats; NaN for invalid parameters.

    >>> import rlx
    >>> rlx.random.binomial(rlx.random.key(0), 10.0, 1.0).item()
    10.0
    """
    found = float_dtype("binomial", dtype)
    chance = as_array(p)
    if not is_float(chance.dtype):
        chance = jnp.asarray(chance, float)
    working = chance.dtype
    sizes = sample_shape("binomial", shape, n, chance)
    count, chance = (parameter(v, working, sizes) for v in (n, chance))
    typed = single_key("binomial", key)
    below_half = chance < 0.5
    q = jnp.where(below_half, chance, 1.0 - chance)
    bad_count = (count != count) | (count < 0.0)
    infinite = jnp.isinf(count)
    bad_chance, negative = q != q, q < 0.0
    q = jnp.where(bad_chance | negative, 0.01, q)
    few = bad_count | (count * q <= 10.0)
    count = lax.floor(count)
    small = _binomial_small(typed, jnp.where(few, count, 0.0), q, sizes)
    large = _binomial_large(typed, jnp.where(few, 1e4, count), jnp.where(few, 0.5, q), sizes)
    samples = lax.convert_element_type(jnp.where(few, small, large), found)
    invalid = negative | bad_chance | bad_count
    samples = jnp.where(invalid, np.nan, samples)
    samples = jnp.where(infinite & ~invalid, np.inf, samples)
    kept = below_half | bad_count | bad_chance | infinite
    return jnp.where(kept, samples, lax.convert_element_type(count, found) - samples)


def _binomial_small(key: Array, count: Array, chance: Array, shape: tuple[int, ...]) -> Array:
    """Inversion: count geometric numbers until their sum passes the number of trials."""
    dtype = chance.dtype
    logarithm = log1p(-chance)

    def unfinished(state: tuple[Any, ...]) -> Array:
        return (state[1] <= count).any()

    def add(state: tuple[Any, ...]) -> tuple[Any, ...]:
        successes, total, key = state
        own, key = lax.unstack(split_key(key))
        successes = jnp.where(total <= count, successes + 1, successes)
        drawn = uniform_between(own, shape, dtype)
        return successes, total + lax.ceil(log(drawn) / logarithm), key

    start = (lax.full(shape, 0, dtype), lax.full(shape, 0, dtype), key)
    return lax.while_loop(unfinished, add, start)[0] - 1


_STIRLING_TAIL = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.010411265261972,
    0.00925546218271273,
    0.00833056343336287,
)


def _stirling_tail(k: Array) -> Array:
    """The error of Stirling's formula for log(k!)."""
    table = jnp.asarray(_STIRLING_TAIL, k.dtype)
    tabulated = k <= 9
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    position = lax.convert_element_type(lax.floor(jnp.clip(k, 0.0, 9.0)), np.int32)
    return jnp.where(tabulated, jnp.take(table, position), series)


def _binomial_large(key: Array, count: Array, chance: Array, shape: tuple[int, ...]) -> Array:
    """Hormann's transformed rejection with squeeze."""
    dtype = chance.dtype
    deviation = lax.sqrt(count * chance * (1 - chance))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * chance
    c = count * chance + 0.5
    v_r = 0.92 - 4.2 / b
    odds = chance / (1 - chance)
    alpha = (2.83 + 5.1 / b) * deviation
    peak = lax.floor((count + 1) * chance)

    def bound(k: Array) -> Array:
        rest = count - k
        ratio = log((peak + 1) / (odds * (count - peak + 1)))
        return (
            (peak + 0.5) * ratio
            + (count + 1) * log((count - peak + 1) / (rest + 1))
            + (k + 0.5) * log(odds * (rest + 1) / (k + 1))
            + _stirling_tail(peak)
            + _stirling_tail(count - peak)
            - _stirling_tail(k)
            - _stirling_tail(rest)
        )

    def unfinished(state: tuple[Any, ...]) -> Array:
        return (~state[1]).any()

    def attempt(state: tuple[Any, ...]) -> tuple[Any, ...]:
        found, accepted, key = state
        key, key_u, key_v = lax.unstack(split_key(key, (3,)))
        u = uniform_between(key_u, shape, dtype) - 0.5
        v = uniform_between(key_v, shape, dtype)
        shifted = 0.5 - lax.abs(u)
        inside = (shifted >= 0.07) & (v <= v_r)
        k = lax.floor((2 * a / shifted + b) * u + c)
        outside = (k < 0) | (k > count)
        v = log(v * alpha / (a / (shifted * shifted) + b))
        accept = inside | (~outside & (v <= bound(k)))
        return jnp.where(accept, k, found), accepted | accept, key

    start = (lax.full(shape, -1, dtype), lax.full(shape, False), key)
    return lax.while_loop(unfinished, attempt, start)[0]


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Sequence[int] | None = None, dtype: Any = None, unroll: int | bool = 1
) -> Array:
    """The number of occurrences of each outcome in n trials, with probabilities p along the last axis.

    unroll: as of lax.scan, for the loop over the outcomes.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> rlx.random.multinomial(rlx.random.key(0), 10, jnp.array([0.5, 0.25, 0.25])).sum().item()
    10.0
    """
    found = float_dtype("multinomial", dtype)
    chances, count = jnp.promote_types(as_array(p).dtype, np.float32), None
    sizes = as_array(p).shape if shape is None else canonical_shape(shape, "random.multinomial")
    chance = jnp.moveaxis(parameter(p, chances, sizes), -1, 0)
    count = parameter(n, chances, sizes[:-1])
    remaining = lax.cumsum(chance, 0, reverse=True)
    ratios = chance / jnp.where(remaining == 0, 1, remaining)
    keys = split_key(single_key("multinomial", key), (sizes[-1],))

    def draw(rest: Array, pair: tuple[Any, Any]) -> tuple[Array, Array]:
        ratio, own = pair
        drawn = binomial(own, rest, jnp.clip(ratio, 0, 1), dtype=rest.dtype)
        return rest - drawn, drawn

    counts = lax.scan(draw, count, (ratios, keys), unroll=unroll)[1]
    return lax.convert_element_type(jnp.moveaxis(counts, 0, -1), found)
