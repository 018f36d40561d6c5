"""Random bits from a counter, and random numbers of the host. Programs usually want rlx.random."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import TensorType, dtype_kind, is_complex, is_inexact
from rlx.lax.operands import as_array, as_dtype, new_shape, operands
from rlx.lax.shape import bitcast_convert_type, concatenate, convert_element_type, iota, reshape, slice_in_dim
from rlx.ops.arithmetic import add
from rlx.ops.callback import HostFunction, io_callback
from rlx.ops.comparison import less, shift_right_logical
from rlx.ops.random_bits import philox4x32, threefry2x32

__all__ = ["RandomAlgorithm", "rng_bit_generator", "rng_uniform"]


class RandomAlgorithm(enum.IntEnum):
    """Generators of random bits.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> key = jnp.zeros(4, jnp.uint32)
    >>> lax.rng_bit_generator(key, (3,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)[1].shape
    (3,)
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


def rng_bit_generator(
    key: Any,
    shape: Any,
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Array, Array]:
    """Random bits, and the key for the next ones: the results of XLA's generator of that name on a CPU.

    Args:
      key: uint32[4] or uint64[2]: a key, then a counter.
      shape, dtype: of the bits; unsigned integers.
      algorithm: Philox-4x32, which is the default, or Threefry-2x32 (Salmon et al. 2011).

    Returns: (new key, bits).

    >>> import numpy as np
    >>> from rlx import lax
    >>> key, bits = lax.rng_bit_generator(np.zeros(4, np.uint32), (3,))
    >>> [hex(word) for word in bits.tolist()], key.tolist()
    (['0x6627e8d5', '0xe169c58d', '0xbc57ac4c'], [0, 0, 1, 0])
    """
    given, sizes, wanted = as_array(key), new_shape("rng_bit_generator", shape), as_dtype(dtype)
    if (given.shape, given.dtype.name) not in (((4,), "uint32"), ((2,), "uint64")):
        raise ShapeError(
            f"lax.rng_bit_generator got a key {given.type!r}.", "A key must be uint32[4] or uint64[2]; see rlx.random."
        )
    if dtype_kind(wanted) != "u":
        raise DtypeError(f"lax.rng_bit_generator got dtype={wanted.name}.", "Bits must be unsigned integers.")
    words = given if given.dtype.itemsize == 4 else reshape(bitcast_convert_type(given, np.uint32), (4,))
    parts = [slice_in_dim(words, i, i + 1) for i in range(4)]
    draw = _threefry_words if RandomAlgorithm(algorithm) is RandomAlgorithm.RNG_THREE_FRY else _philox_words
    steps, bits = draw(parts, sizes, wanted.itemsize == 8)
    low, high = _advanced(parts[2], parts[3], np.asarray(steps, np.uint64))
    following = concatenate([parts[0], parts[1], low, high], 0)
    if given.dtype.itemsize == 8:
        following = bitcast_convert_type(reshape(following, (2, 2)), np.uint64)
    return following, bits if bits.dtype == wanted else convert_element_type(bits, wanted)


def _advanced(low: Any, high: Any, steps: Any) -> tuple[Array, Array]:
    """The words of a 64-bit counter, advanced by a number of steps."""
    count = as_array(steps)
    below = convert_element_type(count, np.uint32)
    lows = add(low, below)
    highs = add(high, convert_element_type(less(lows, below), np.uint32))
    if count.dtype.itemsize == 8:
        above = shift_right_logical(count, np.asarray(32, np.uint64))
        highs = add(highs, convert_element_type(above, np.uint32))
    return lows, highs


def _numbers(steps: int) -> Array:
    """0, 1, 2, ... in the narrowest dtype that holds them."""
    return iota(np.uint32 if steps <= 2**32 else np.uint64, steps)


def _philox_words(words: list[Array], shape: tuple[int, ...], wide: bool) -> tuple[int, Array]:
    """The number of counters used, and random words of 32 or 64 bits: four of each counter, in a row."""
    count = math.prod(shape)
    steps = -(-count * (2 if wide else 1) // 4)
    first, second, low, high = words
    lows, highs = _advanced(low, high, _numbers(steps))
    # the key is also the upper half of the counter, which is advanced when the lower half overflows
    carried = convert_element_type(_exhausted(high, highs), np.uint32)
    upper, above = _advanced(first, second, carried)
    drawn = philox4x32(first, second, lows, highs, upper, above)
    bits = reshape(concatenate([reshape(b, (steps, 1)) for b in drawn], 1), (4 * steps,))
    if wide:
        bits = bitcast_convert_type(reshape(bits, (2 * steps, 2)), np.uint64)
    return steps, reshape(slice_in_dim(bits, 0, count), shape)


def _exhausted(before: Array, after: Array) -> Array:
    """Where a counter has wrapped, by its high words before and after."""
    return less(after, before)


def _threefry_words(words: list[Array], shape: tuple[int, ...], wide: bool) -> tuple[int, Array]:
    """The number of counters used, and words: both of a counter for 64 bits, else one in each half of an axis."""
    if wide:
        steps, halves = math.prod(shape), shape
    else:
        axis = _halved_axis(shape)
        halves = (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :]) if shape else (1,)
        steps = math.prod(halves)
    first, second, low, high = words
    drawn = threefry2x32(first, second, *_advanced(low, high, _numbers(steps)))
    if wide:
        pairs = concatenate([reshape(b, (steps, 1)) for b in drawn], 1)
        return steps, reshape(bitcast_convert_type(pairs, np.uint64), shape)
    if not shape:
        return steps, reshape(drawn[0], ())
    after = axis + 1
    pairs = concatenate([reshape(b, (*halves[:after], 1, *halves[after:])) for b in drawn], after)
    whole = reshape(pairs, (*halves[:axis], 2 * halves[axis], *halves[after:]))
    return steps, slice_in_dim(whole, 0, shape[axis], axis=axis)


def _halved_axis(shape: tuple[int, ...]) -> int:
    """The first axis of even size; if all are odd, the first of the largest."""
    even = [i for i, n in enumerate(shape) if n % 2 == 0]
    return even[0] if even else max(range(len(shape)), key=lambda i: shape[i], default=0)


def rng_uniform(a: Any, b: Any, shape: Any) -> Array:
    """Numbers between a and b from the host's own generator, different at every call.

    rlx.random.uniform computes the same numbers from the same key, on every device.

    Args:
      a, b: scalars of one dtype, the bounds (b excluded).
      shape: of the result.

    >>> from rlx import lax
    >>> 0.0 <= lax.rng_uniform(0.0, 1.0, ()).item() < 1.0
    True
    """
    low, high = map(as_array, operands("rng_uniform", a, b))
    sizes, dtype = new_shape("rng_uniform", shape), low.dtype
    if low.shape != () or high.shape != () or is_complex(dtype) or dtype.kind == "b":
        raise ShapeError(f"lax.rng_uniform got bounds {low.type!r} and {high.type!r}.", "Bounds must be real scalars.")
    draw = HostFunction(_draw(sizes, dtype), [TensorType(sizes, dtype)], "rng_uniform")
    return io_callback(low, high, function=draw, ordered=False)[0]


def _draw(sizes: tuple[int, ...], dtype: np.dtype) -> Callable[..., Any]:
    def draw(low: np.ndarray, high: np.ndarray) -> list[np.ndarray]:
        generator = np.random.default_rng()
        if is_inexact(dtype):
            return [np.asarray(generator.uniform(float(low), float(high), sizes)).astype(dtype)]
        return [np.asarray(generator.integers(int(low), int(high), sizes, dtype=dtype))]

    return draw
