"""Threefry with JAX's former order of counters, which numbers pinned before JAX 0.5 need.

The switch threefry_partitionable=False asks for it. The counters 0, 1, 2, ... of an array are cut in two halves, which
are the two words of the hash's counters, and the two words of its results follow each other likewise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx import lax
from rlx.array import Array
from rlx.ops.random_bits import threefry2x32

__all__ = ["hashed_counts", "original_bits", "original_split"]

UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)
# more counters than a uint32 has are drawn in blocks, each of a key of its own
_BLOCK = 2**32 - 1


def hashed_counts(key: Array, counts: Array) -> Array:
    """The hashes of an array of counters, as jax.extend.random.threefry_2x32 gives them.

    >>> import numpy as np, rlx
    >>> hashed_counts(rlx.numpy.zeros(2, np.uint32), rlx.numpy.arange(2, dtype=np.uint32)).shape
    (2,)
    """
    flat = lax.reshape(counts, (counts.size,))
    odd = counts.size % 2
    padded = lax.pad(flat, np.zeros((), UINT32), [(0, odd, 0)])
    half = padded.size // 2
    halves = lax.slice_in_dim(padded, 0, half), lax.slice_in_dim(padded, half, None)
    words = lax.concatenate(threefry2x32(*lax.unstack(key), *halves), 0)
    return lax.reshape(lax.slice_in_dim(words, 0, counts.size), counts.shape)


def original_split(key: Array, shape: tuple[int, ...]) -> Array:
    """Keys made of a key: two counters for each."""
    size = math.prod(shape)
    return lax.reshape(hashed_counts(key, lax.iota(UINT32, 2 * size)), (*shape, 2))


def _drawn(key: Array, count: int) -> Array:
    """That many words of 32 bits."""
    blocks, rest = divmod(count, _BLOCK)
    if not blocks:
        return hashed_counts(key, lax.iota(UINT32, rest))
    *keys, last = lax.unstack(original_split(key, (blocks + 1,)))
    drawn = [hashed_counts(one, lax.iota(UINT32, _BLOCK)) for one in keys]
    return lax.concatenate([*drawn, hashed_counts(last, lax.iota(UINT32, rest))], 0)


def original_bits(key: Array, shape: tuple[int, ...], width: int) -> Array:
    """Unsigned integers of `width` bits: narrow ones share a word, wide ones take one of either half of the words."""
    size = math.prod(shape)
    words: Any = _drawn(key, -(-width * size // 32))
    dtype = np.dtype(f"u{width // 8}")
    if width == 64:
        high, low = (
            lax.convert_element_type(lax.slice_in_dim(words, i * size, (i + 1) * size), UINT64) for i in (0, 1)
        )
        words = lax.bitwise_or(lax.shift_left(high, lax.full((), 32, UINT64)), low)
    elif width < 32:
        shifts = np.arange(0, 32, width, dtype=UINT32)
        parts = lax.shift_right_logical(lax.expand_dims(words, (1,)), shifts[None, :])
        narrow = lax.convert_element_type(lax.bitwise_and(parts, np.asarray(2**width - 1, UINT32)), dtype)
        words = lax.slice_in_dim(lax.reshape(narrow, (narrow.size,)), 0, size)
    return lax.reshape(words, shape)
