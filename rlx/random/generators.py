"""Generators: functions from the words of a key to new keys and random bits.

The first four hash counters with Threefry or Philox (Salmon et al., Parallel random numbers: as easy as 1, 2, 3,
SC 2011); "rbg" draws with lax.rng_bit_generator and makes keys with Threefry, "unsafe_rbg" makes keys of drawn bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx.array import Array, is_plain, wrap
from rlx.config import config
from rlx.ops.random_bits import philox2x32, philox4x32, threefry2x32, threefry4x32
from rlx.random.counters import original_bits, original_split
from rlx.trace.builder import state

__all__ = ["GENERATORS", "Generator", "generator_named"]

UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)
ZERO = np.zeros((), UINT32)
_WORDS = {width: np.dtype(f"u{width // 8}") for width in (8, 16, 32, 64)}
Words = Sequence[Any]


class Generator(NamedTuple):
    """The functions of a generator. Keys and results are arrays with words along the last axis.

    seed(high, low): the key of a seed of 64 bits. split(key, shape): keys, fold_in(key, number): a key,
    bits(key, shape, width): unsigned integers of that many bits.
    """

    seed: Callable[[Any, Any], Array]
    split: Callable[[Array, tuple[int, ...]], Array]
    fold_in: Callable[[Array, Any], Array]
    bits: Callable[[Array, tuple[int, ...], int], Array]


# ------------------------------------------------------------- counters
def _counts(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The positions of an array's elements as 64-bit counters: high and low words."""
    size = math.prod(shape)
    if size <= 2**32:
        low = lax.reshape(lax.iota(UINT32, size), shape)
        return ZERO, low
    # an axis at a time, in 64 bits
    position: Any = lax.full(shape, 0, UINT64)
    stride = 1
    for axis in reversed(range(len(shape))):
        along = lax.broadcasted_iota(UINT64, shape, axis)
        position = lax.add(position, lax.mul(along, lax.full((), stride, UINT64)))
        stride *= shape[axis]
    return _halves(position)


def _halves(wide: Any) -> tuple[Any, Any]:
    """The high and the low words of 64-bit integers."""
    high = lax.shift_right_logical(wide, lax.full((), 32, UINT64))
    return lax.convert_element_type(high, UINT32), lax.convert_element_type(wide, UINT32)


def _words_of(key: Array) -> list[Array]:
    return list(lax.unstack(key))


def _joined(high: Any, low: Any) -> Array:
    """64-bit integers from their words."""
    wide = lax.shift_left(lax.convert_element_type(high, UINT64), lax.full((), 32, UINT64))
    return lax.bitwise_or(wide, lax.convert_element_type(low, UINT64))


# ------------------------------------------------------------- hashes of counters
class _Hash:
    """A hash of counters as a generator. The counters for keys end where the counters for bits begin."""

    def __init__(self, hashed: Any) -> None:
        self.hashed = hashed
        self.zeros = [ZERO] * (hashed.counter_words - 2)

    def at(self, key: Array, counter: Words) -> tuple[Any, ...]:
        """The words of the hash for a key and a counter."""
        return self.hashed(*_words_of(key), *counter)

    def over(self, key: Array, shape: tuple[int, ...], leading: bool) -> tuple[Any, ...]:
        """The words of the hash for each position of an array, at the front or the end of the counter."""
        if state.builder is None and is_plain(key):  # without a step for each of the parts
            counts = np.arange(math.prod(shape), dtype=UINT64).reshape(shape)
            high, low = (counts >> np.uint64(32)).astype(UINT32), counts.astype(UINT32)
            words = key.numpy()
            given = [words[i, ...] for i in range(self.hashed.key_words)]
            return tuple(map(wrap, self.hashed.reference(*given, *self._placed(high, low, leading))))
        return self.at(key, self._placed(*_counts(shape), leading))

    def _placed(self, high: Any, low: Any, leading: bool) -> list[Any]:
        return [high, low, *self.zeros] if leading else [*self.zeros, high, low]

    def split(self, key: Array, shape: tuple[int, ...]) -> Array:
        """The hashes of the positions."""
        words = self.over(key, shape, leading=False)
        return lax.stack(words[: self.hashed.key_words], axis=len(shape))

    def fold_in(self, key: Array, number: Any) -> Array:
        """The hash of the number."""
        words = self.at(key, [*self.zeros, ZERO, number])
        return lax.stack(words[: self.hashed.key_words])

    def bits(self, key: Array, shape: tuple[int, ...], width: int) -> Array:
        """The hashes of the positions, their words mixed."""
        words = self.over(key, shape, leading=True)
        if width == 64:
            mixed = self.hashed is threefry4x32
            halves = [reduce(lax.bitwise_xor, words[i::2] if mixed else words[i : i + 1]) for i in (0, 1)]
            return _joined(*halves)
        return lax.convert_element_type(reduce(lax.bitwise_xor, words), _WORDS[width])


def _threefry2_seed(high: Any, low: Any) -> Array:
    return lax.stack([high, low])


def _threefry4_seed(high: Any, low: Any) -> Array:
    return lax.stack(threefry4x32(high, low, *[ZERO] * 6))


def _philox2_seed(high: Any, low: Any) -> Array:
    return lax.stack(philox2x32(ZERO, high, low)[:1])


def _philox4_seed(high: Any, low: Any) -> Array:
    return lax.stack(philox4x32(ZERO, ZERO, high, low, ZERO, ZERO)[:2])


def _hashing(hashed: Any, seed: Callable[[Any, Any], Array]) -> Generator:
    rules = _Hash(hashed)
    return Generator(seed, rules.split, rules.fold_in, rules.bits)


# ------------------------------------------------------------- lax.rng_bit_generator
_threefry = _Hash(threefry2x32)
_REPEATS = 10  # one draw in this number is a key


def _rbg_seed(high: Any, low: Any) -> Array:
    return lax.stack([high, low, high, low])


def _pair(key: Array) -> list[Array]:
    return [lax.slice_in_dim(key, 0, 2), lax.slice_in_dim(key, 2, 4)]


def _threefry_split(key: Array, shape: tuple[int, ...]) -> Array:
    return _threefry.split(key, shape) if config.threefry_partitionable else original_split(key, shape)


def _threefry_bits(key: Array, shape: tuple[int, ...], width: int) -> Array:
    bits = _threefry.bits if config.threefry_partitionable else original_bits
    return bits(key, shape, width)


def _rbg_split(key: Array, shape: tuple[int, ...]) -> Array:
    return lax.concatenate([_threefry_split(half, shape) for half in _pair(key)], len(shape))


def _rbg_fold_in(key: Array, number: Any) -> Array:
    return lax.concatenate([_threefry.fold_in(half, number) for half in _pair(key)], 0)


def _rbg_bits(key: Array, shape: tuple[int, ...], width: int) -> Array:
    return lax.rng_bit_generator(key, shape, _WORDS[width])[1]


def _unsafe_split(key: Array, shape: tuple[int, ...]) -> Array:
    drawn = lax.rng_bit_generator(key, (_REPEATS * math.prod(shape), 4))[1]
    return lax.reshape(lax.slice_in_dim(drawn, 0, None, _REPEATS), (*shape, 4))


def _unsafe_fold_in(key: Array, number: Any) -> Array:
    drawn = lax.rng_bit_generator(_rbg_seed(ZERO, number), (_REPEATS, 4))[1]
    return lax.bitwise_xor(key, lax.index_in_dim(drawn, _REPEATS - 1, keepdims=False))


GENERATORS = {
    "threefry2x32": Generator(_threefry2_seed, _threefry_split, _threefry.fold_in, _threefry_bits),
    "threefry4x32": _hashing(threefry4x32, _threefry4_seed),
    "philox2x32": _hashing(philox2x32, _philox2_seed),
    "philox4x32": _hashing(philox4x32, _philox4_seed),
    "rbg": Generator(_rbg_seed, _rbg_split, _rbg_fold_in, _rbg_bits),
    "unsafe_rbg": Generator(_rbg_seed, _unsafe_split, _unsafe_fold_in, _rbg_bits),
}


def generator_named(name: str) -> Generator:
    """The rules of a generator."""
    return GENERATORS[name]
