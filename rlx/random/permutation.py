"""Shuffling and choosing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.config import config
from rlx.errors import InputTypeError, ShapeError
from rlx.ir.types import is_float, is_integer
from rlx.lax.operands import canonical_axis
from rlx.numpy.promotion import canonical_shape
from rlx.random.continuous import gumbel
from rlx.random.functions import log
from rlx.random.keys import single_key, split_key
from rlx.random.placing import placeable
from rlx.random.uniform import randint, random_bits, uniform_between
from rlx.trace.flat import as_array
from rlx.trace.tracing import known_value

__all__ = ["choice", "permutation"]


def _shuffled(key: Array, x: Array, axis: int) -> Array:
    """Slices along an axis in random order: sorted by random bits, as often as collisions demand."""
    rounds = math.ceil(3 * math.log(max(1, x.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        key, own = lax.unstack(split_key(key))
        x = lax.sort_key_val(random_bits(own, x.shape, 32), x, axis)[1]
    return x


def _count(name: str, value: Any) -> int:
    known = known_value(value)
    if known is None or not is_integer(value.dtype):
        raise InputTypeError(
            f"random.{name} got the scalar {value.type!r}.",
            "Pass an array, or a Python integer n for the numbers below n.",
        )
    return int(known.numpy())


@placeable
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Array:
    """An array with its slices along an axis in random order; an integer n stands for arange(n).

    Args:
      independent: shuffle each row along the axis independently.

    >>> import rlx
    >>> sorted(rlx.random.permutation(rlx.random.key(0), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    value = as_array(x)
    typed = single_key("permutation", key)
    at = canonical_axis("random.permutation", axis, max(value.ndim, 1))
    if value.ndim == 0:
        return _shuffled(typed, lax.iota(config.default_int, _count("permutation", value)), 0)
    if independent or value.ndim == 1:
        return _shuffled(typed, value, at)
    order = _shuffled(typed, lax.iota(config.default_int, value.shape[at]), 0)
    return jnp.take(value, order, at)


def choice(
    key: Any,
    a: Any,
    shape: Sequence[int] = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Random slices of an array along an axis; an integer n stands for arange(n).

    Args:
      shape: how many, in which shape.
      replace: whether a slice may be chosen several times.
      p: the probability of each slice; equal ones by default.
      mode: as in gumbel.

    >>> import numpy as np, rlx
    >>> rlx.random.choice(rlx.random.key(0), np.array([7, 7]), (3,)).tolist()
    [7, 7, 7]
    """
    value = as_array(a)
    sizes = canonical_shape(shape, "random.choice")
    at = canonical_axis("random.choice", axis, value.ndim) if value.ndim else 0
    count = value.shape[at] if value.ndim else _count("choice", value)
    draws = prod(sizes)
    if draws == 0:
        rest = (*value.shape[:at], *sizes, *value.shape[at + 1 :]) if value.ndim else sizes
        return lax.full(rest, 0, value.dtype)
    if count <= 0 or (not replace and draws > count):
        raise ShapeError(
            f"random.choice cannot draw {draws} of {count} elements" + ("." if replace else " without replacement."),
            "Draw fewer, from a larger array.",
        )
    typed = single_key("choice", key)
    if p is None and not replace:
        result = permutation(typed, count if value.ndim == 0 else value, axis)
        result = lax.slice_in_dim(result, 0, draws, axis=at)
    else:
        positions = _positions(typed, count, sizes, replace, p, mode)
        result = positions if value.ndim == 0 else jnp.take(value, positions, at)
    if value.ndim == 0:
        return lax.reshape(result, sizes)
    return lax.reshape(result, (*value.shape[:at], *sizes, *value.shape[at + 1 :]))


def _positions(key: Array, count: int, shape: tuple[int, ...], replace: bool, p: Any, mode: str | None) -> Array:
    if p is None:
        return randint(key, shape, 0, count)
    chance = as_array(p)
    if not is_float(chance.dtype):
        chance = jnp.asarray(chance, float)
    if chance.shape != (count,):
        raise ShapeError(
            f"random.choice got p of shape {chance.shape} for {count} elements.",
            "p is a vector with one probability for each element.",
        )
    if replace:
        cumulative = lax.cumsum(chance)
        total = lax.index_in_dim(cumulative, -1, keepdims=False)
        drawn = total * (1 - uniform_between(key, shape, chance.dtype))
        return lax.convert_element_type(jnp.searchsorted(cumulative, drawn), config.default_int)
    noisy = gumbel(key, (count,), chance.dtype, mode) + log(chance)
    positions = lax.top_k(noisy, prod(shape))[1]
    return lax.convert_element_type(positions, config.default_int)
