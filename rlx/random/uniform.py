"""Bits, and the distributions that spread them evenly: uniform, randint, bernoulli, rademacher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rlx import lax
from rlx.array import Array, is_array
from rlx.config import config
from rlx.errors import DtypeError, InputTypeError, OptionError, ShapeError, UnsupportedError
from rlx.ir.types import dtype_kind, is_float, is_integer
from rlx.lax.operands import as_dtype
from rlx.numpy.promotion import canonical_shape
from rlx.ops.arithmetic import fma
from rlx.ops.random_keys import random_unwrap
from rlx.random.compiled import compiled_when_large
from rlx.random.keys import generator_of, single_key, split_key
from rlx.random.placing import placeable
from rlx.trace.flat import as_array

__all__ = ["bernoulli", "bits", "rademacher", "randint", "uniform"]

_UNSIGNED = {width: np.dtype(f"u{width // 8}") for width in (8, 16, 32, 64)}


# ------------------------------------------------------------- arguments
def float_dtype(name: str, dtype: Any) -> np.dtype:
    """A sampler's dtype argument; DtypeError unless it is floating."""
    found = config.default_float if dtype is None else as_dtype(dtype)
    if not is_float(found):
        raise DtypeError(f"random.{name} got dtype {found.name}.", "Pass a floating dtype.")
    return found


def integer_dtype(name: str, dtype: Any) -> np.dtype:
    """A sampler's dtype argument; DtypeError unless it is an integer one."""
    found = config.default_int if dtype is None else as_dtype(dtype)
    if not is_integer(found):
        raise DtypeError(f"random.{name} got dtype {found.name}.", "Pass an integer dtype.")
    return found


def sample_shape(name: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """A sampler's shape argument, or for None its parameters' shape; the parameters must broadcast to it."""
    shapes = [p.shape if is_array(p) else np.shape(p) for p in parameters]
    joint = lax.broadcast_shapes(*shapes) if shapes else ()
    if shape is None:
        return joint
    wanted = canonical_shape(shape, f"random.{name}")
    if shapes and lax.broadcast_shapes(wanted, joint) != wanted:
        raise ShapeError(
            f"random.{name} got shape={wanted} and parameters of shapes {shapes}.",
            "Parameters broadcast to the shape of the samples.",
        )
    return wanted


def parameter(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    """A distribution's parameter in the samples' dtype and shape."""
    x = lax.convert_element_type(value, dtype)
    lead = len(shape) - x.ndim
    return x if x.shape == shape else _spread(x, shape, lead)


def _spread(x: Array, shape: tuple[int, ...], lead: int) -> Array:
    kept = [i for i, d in enumerate(x.shape) if d == shape[lead + i]]
    x = lax.reshape(x, [x.shape[i] for i in kept])
    return lax.broadcast_in_dim(x, shape, [lead + i for i in kept])


# ------------------------------------------------------------- bits
@placeable
def bits(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """Random bits as unsigned integers.

    >>> import rlx
    >>> rlx.random.bits(rlx.random.key(0), (2,)).dtype
    dtype('uint32')
    """
    found = np.dtype(f"u{config.default_int.itemsize}") if dtype is None else as_dtype(dtype)
    if dtype_kind(found) != "u":
        raise DtypeError(f"random.bits got dtype {found.name}.", "Pass an unsigned integer dtype.")
    return random_bits(single_key("bits", key), canonical_shape(shape, "random.bits"), 8 * found.itemsize)


@compiled_when_large
def random_bits(key: Array, shape: tuple[int, ...], width: int) -> Array:
    """Random bits, `width` bits per element."""
    return generator_of(key).bits(random_unwrap(key), shape, width)


# ------------------------------------------------------------- floats
@placeable
def uniform(
    key: Any,
    shape: Sequence[int] = (),
    dtype: Any = None,
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> Array:
    """Floats spread evenly over minval <= x < maxval.

    >>> import rlx
    >>> x = rlx.random.uniform(rlx.random.key(0), (100,))
    >>> bool((x >= 0).all() and (x < 1).all())
    True
    """
    found = float_dtype("uniform", dtype)
    sizes = sample_shape("uniform", shape)
    return uniform_between(single_key("uniform", key), sizes, found, minval, maxval)


def uniform_between(key: Array, shape: tuple[int, ...], dtype: np.dtype, minval: Any = 0.0, maxval: Any = 1.0) -> Array:
    """Floats over minval <= x < maxval, which broadcast to `shape`."""
    floats = unit_floats(key, shape, dtype)
    if _is_number(minval, 0) and _is_number(maxval, 1):
        return floats
    low, high = (lax.convert_element_type(v, dtype) for v in (minval, maxval))
    span = lax.sub(high, low)
    if dtype.itemsize >= 4:  # rounded once, as in JAX's compiled code
        return lax.max(low, fma(floats, span, low))
    return lax.max(low, lax.add(lax.mul(floats, span), low))


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and value == number


@compiled_when_large
def unit_floats(key: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Floats over 0 <= x < 1: random mantissas of numbers from 1 to 2, less 1."""
    width, mantissa = 8 * dtype.itemsize, int(ml_dtypes.finfo(dtype).nmant)
    drawn = 8 if mantissa < 8 else width
    word = _UNSIGNED[width]
    random = lax.convert_element_type(random_bits(key, shape, drawn), word)
    fraction = lax.shift_right_logical(random, lax.full((), drawn - mantissa, word))
    one = np.ones((), dtype).view(word)
    floats = lax.bitcast_convert_type(lax.bitwise_or(fraction, one), dtype)
    return lax.sub(floats, lax.full((), 1, dtype))


@placeable
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Array:
    """Bools that are true with probability p.

    Args:
      mode: "high" resolves small probabilities better, at twice the bits.

    >>> import rlx
    >>> rlx.random.bernoulli(rlx.random.key(0), 0.5, (3,)).dtype
    dtype('bool')
    """
    if mode not in ("low", "high"):
        raise OptionError(f"random.bernoulli has no mode {mode!r}.", "Use 'low' or 'high'.")
    probability = as_array(p)
    if not is_float(probability.dtype):
        raise DtypeError(f"random.bernoulli got a probability {probability.type!r}.", "Pass a floating one.")
    dtype = probability.dtype
    sizes = sample_shape("bernoulli", shape, probability)
    typed = single_key("bernoulli", key)
    probability = parameter(probability, dtype, sizes)
    if mode == "low":
        return lax.lt(uniform_between(typed, sizes, dtype), probability)
    both = uniform_between(typed, (2, *sizes), dtype)
    coarse, fine = lax.unstack(both)
    step = lax.full((), 2.0 ** -int(ml_dtypes.finfo(dtype).nmant), dtype)
    return lax.lt(lax.mul(fine, step), lax.sub(probability, coarse))


@placeable
def rademacher(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Array:
    """-1 or 1 with equal probability.

    >>> import rlx
    >>> sorted(set(rlx.random.rademacher(rlx.random.key(0), (50,)).tolist()))
    [-1, 1]
    """
    found = config.default_int if dtype is None else as_dtype(dtype)
    drawn = lax.convert_element_type(bernoulli(key, 0.5, canonical_shape(shape)), found)
    return lax.sub(lax.mul(drawn, lax.full((), 2, found)), lax.full((), 1, found))


# ------------------------------------------------------------- integers
@placeable
def randint(key: Any, shape: Sequence[int], minval: Any, maxval: Any, dtype: Any = None) -> Array:
    """Integers spread evenly over minval <= x < maxval.

    >>> import rlx
    >>> x = rlx.random.randint(rlx.random.key(0), (100,), 3, 7)
    >>> int(x.min()), int(x.max())
    (3, 6)
    """
    found = integer_dtype("randint", dtype)
    typed = single_key("randint", key)
    if isinstance(maxval, (tuple, list)):
        raise InputTypeError(
            f"random.randint got the shape {maxval!r} as its maxval.", "Write randint(key, shape, minval, maxval)."
        )
    low, high = (_bound(v) for v in (minval, maxval))
    sizes = sample_shape("randint", shape, low, high)
    working = found
    if found.itemsize < 4:
        working = np.dtype(np.int32)
        info = ml_dtypes.iinfo(found)
        low = _saturated(low, working, int(info.min), int(info.max))
        high = _saturated(high, working, int(info.min), int(info.max) + 1)
    samples = _integers(typed, sizes, low, high, working)
    return lax.convert_element_type(samples, found)


def _bound(value: Any) -> Array:
    bound = as_array(value)
    if is_integer(bound.dtype):
        return bound
    return lax.convert_element_type(bound, config.default_int)


def _saturated(value: Array, dtype: np.dtype, low: int, high: int) -> Array:
    """Integers brought between two numbers, and to another dtype without wrapping."""
    own = ml_dtypes.iinfo(value.dtype)
    clipped = lax.clamp(
        lax.full((), max(low, int(own.min)), value.dtype),
        value,
        lax.full((), min(high, int(own.max)), value.dtype),
    )
    return lax.convert_element_type(clipped, dtype)


def _integers(key: Array, shape: tuple[int, ...], minval: Array, maxval: Array, dtype: np.dtype) -> Array:
    info = ml_dtypes.iinfo(dtype)
    whole = int(info.max) <= int(ml_dtypes.iinfo(maxval.dtype).max)
    above = lax.gt(maxval, lax.full((), int(info.max), maxval.dtype)) if whole else None
    low = _saturated(minval, dtype, int(info.min), int(info.max))
    high = _saturated(maxval, dtype, int(info.min), int(info.max))
    width = 8 * dtype.itemsize
    word = _UNSIGNED[width]
    one = lax.full((), 1, word)
    first, second = lax.unstack(split_key(key))
    upper, lower = (random_bits(k, shape, width) for k in (first, second))
    span = lax.convert_element_type(_wrapped_difference(high, low, word), word)
    span = _where(lax.le(high, low), one, span)
    if above is not None:
        wider = lax.bitwise_and(above, lax.gt(high, low))
        span = _where(wider, lax.add(span, one), span)
    factor = lax.rem(lax.full((), 2 ** (width // 2), word), span)
    factor = lax.rem(lax.mul(factor, factor), span)
    offset = lax.rem(lax.add(lax.mul(lax.rem(upper, span), factor), lax.rem(lower, span)), span)
    start = lax.bitcast_convert_type(low, word)
    return lax.bitcast_convert_type(lax.add(start, offset), dtype)


def _wrapped_difference(high: Array, low: Array, word: np.dtype) -> Array:
    """high - low modulo the word's size."""
    return lax.sub(lax.bitcast_convert_type(high, word), lax.bitcast_convert_type(low, word))


def _where(condition: Array, on_true: Array, on_false: Array) -> Array:
    shape = lax.broadcast_shapes(condition.shape, on_true.shape, on_false.shape)
    cases = (parameter(x, x.dtype, shape) for x in (on_true, on_false))
    return lax.select(parameter(condition, condition.dtype, shape), *cases)


def only_exact(name: str, method: str) -> None:
    """Raises an error unless a sampler's `method` is "exact": JAX has another, "approximate", which rlx lacks."""
    if method not in ("exact", "approximate"):
        raise OptionError(f"random.{name} has no method {method!r}.", 'rlx draws exactly: method="exact".')
    if method != "exact":
        raise UnsupportedError(f"random.{name} has no method {method!r}.", 'rlx draws exactly: method="exact".')
