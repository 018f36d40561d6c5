"""Random bits from a counter, and random numbers of the host; rlx.random is what programs want."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import TensorType, dtype_kind, is_complex, is_inexact
from rlx.lax.operands import as_array, as_dtype, canonical_shape, operands
from rlx.lax.shape import bitcast_convert_type, concatenate, convert_element_type, iota, reshape, slice_in_dim
from rlx.ops.arithmetic import add
from rlx.ops.callback import HostFunction, io_callback
from rlx.ops.comparison import less
from rlx.ops.random_bits import threefry2x32

__all__ = ["RandomAlgorithm", "rng_bit_generator", "rng_uniform"]


class RandomAlgorithm(enum.IntEnum):
    """How random bits are made.

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
    """Random bits, and the key for the next ones.

    Args:
      key: uint32[4] or uint64[2]: a key, then a counter.
      shape, dtype: of the bits; unsigned integers.
      algorithm: threefry2x32 (Salmon et al. 2011) is the only one, and the default.

    Returns: (new key, bits).

    >>> import numpy as np
    >>> from rlx import lax
    >>> key, bits = lax.rng_bit_generator(np.arange(4, dtype=np.uint32), (3,))
    >>> key.shape, bits.shape
    ((4,), (3,))
    """
    given, sizes, wanted = as_array(key), canonical_shape(shape), as_dtype(dtype)
    if (given.shape, given.dtype.name) not in (((4,), "uint32"), ((2,), "uint64")):
        raise ShapeError(
            f"lax.rng_bit_generator got a key {given.type!r}.", "A key is uint32[4] or uint64[2]; see rlx.random."
        )
    if dtype_kind(wanted) != "u":
        raise DtypeError(f"lax.rng_bit_generator got dtype={wanted.name}.", "Bits are unsigned integers.")
    if RandomAlgorithm(algorithm) is RandomAlgorithm.RNG_PHILOX:
        raise UnsupportedError("lax.rng_bit_generator has no Philox.", "Use RandomAlgorithm.RNG_THREE_FRY.")
    words = given if given.dtype.itemsize == 4 else reshape(bitcast_convert_type(given, np.uint32), (4,))
    count = int(np.prod(sizes, dtype=np.int64))
    pairs = -(-count * max(wanted.itemsize, 4) // 8)
    first, second, low, high = (slice_in_dim(words, i, i + 1) for i in range(4))
    steps = iota(np.uint32, pairs)
    lows = add(low, steps)
    highs = add(high, convert_element_type(less(lows, steps), np.uint32))
    drawn = [reshape(b, (pairs, 1)) for b in threefry2x32(first, second, lows, highs)]
    bits = reshape(concatenate(drawn, 1), (2 * pairs,))
    after = add(low, np.asarray(pairs, np.uint32))
    carried = add(high, convert_element_type(less(after, low), np.uint32))
    following = concatenate([first, second, after, carried], 0)
    if given.dtype.itemsize == 8:
        following = bitcast_convert_type(reshape(following, (2, 2)), np.uint64)
    if wanted.itemsize == 8:
        values = bitcast_convert_type(reshape(bits, (pairs, 2)), wanted)
    else:
        values = convert_element_type(slice_in_dim(bits, 0, count), wanted)
    return following, reshape(values, sizes)


def rng_uniform(a: Any, b: Any, shape: Any) -> Array:
    """Numbers between a and b from the host's own generator: other ones at every call.

    rlx.random.uniform makes the same numbers from the same key, on every device.

    Args:
      a, b: scalars of one dtype, the bounds (b excluded).
      shape: of the result.

    >>> from rlx import lax
    >>> 0.0 <= lax.rng_uniform(0.0, 1.0, ()).item() < 1.0
    True
    """
    low, high = map(as_array, operands("rng_uniform", a, b))
    sizes, dtype = canonical_shape(shape), low.dtype
    if low.shape != () or high.shape != () or is_complex(dtype) or dtype.kind == "b":
        raise ShapeError(f"lax.rng_uniform got bounds {low.type!r} and {high.type!r}.", "Bounds are real scalars.")
    draw = HostFunction(_draw(sizes, dtype), [TensorType(sizes, dtype)], "rng_uniform")
    return io_callback(low, high, function=draw, ordered=False)[0]


def _draw(sizes: tuple[int, ...], dtype: np.dtype) -> Callable[..., Any]:
    def draw(low: np.ndarray, high: np.ndarray) -> list[np.ndarray]:
        generator = np.random.default_rng()
        if is_inexact(dtype):
            return [np.asarray(generator.uniform(float(low), float(high), sizes)).astype(dtype)]
        return [np.asarray(generator.integers(int(low), int(high), sizes, dtype=dtype))]

    return draw
