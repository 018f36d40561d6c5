"""Threefry and Philox: rounds that turn a key and a counter into random bits (Salmon et al. 2011)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError
from rlx.ir.types import TensorType
from rlx.ops.families import Elementwise, broadcast_shapes
from rlx.trace.primitive import Sample, Zero, primitive, type_of

__all__ = ["philox2x32", "philox4x32", "threefry2x32", "threefry4x32"]

UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)
Rotation = Callable[[Any, int], Any]
Product = Callable[[Any, int], tuple[Any, Any]]


# ------------------------------------------------------------- rounds, on anything with + and ^
PARITY = 0x1BD11BDA
MASK = 0xFFFFFFFF
FEW = 6  # blocks: up to this many, Python's integers are faster than a hundred NumPy calls
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
WIDE_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
PHILOX2_FACTOR = 0xD256D193
PHILOX4_FACTORS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)


def _threefry2_rounds(rotate: Rotation, k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
    keys = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = rotate(x1, distance) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + (group + 1)
    return x0, x1


def _rotate_integer(x: int, distance: int) -> int:
    x &= MASK
    return (x << distance | x >> (32 - distance)) & MASK


def _values(array: np.ndarray, together: np.broadcast) -> list[int]:
    """The elements of an array, broadcast with others."""
    if array.size == 1:
        return [array.item()] * together.size
    return np.broadcast_to(array, together.shape).ravel().tolist()


def _threefry4_rounds(rotate: Rotation, *words: Any) -> Any:
    key, x = words[:4], words[4:]
    keys = (*key, key[0] ^ key[1] ^ key[2] ^ key[3] ^ PARITY)
    x = [a + k for a, k in zip(x, key, strict=True)]
    for number in range(20):
        second, fourth = (1, 3) if number % 2 == 0 else (3, 1)
        for target, source, distance in zip((0, 2), (second, fourth), WIDE_ROTATIONS[number % 8], strict=True):
            x[target] = x[target] + x[source]
            x[source] = rotate(x[source], distance) ^ x[target]
        if number % 4 == 3:
            group = number // 4 + 1
            x = [a + keys[(group + i) % 5] for i, a in enumerate(x)]
            x[3] = x[3] + group
    return tuple(x)


def _philox2_rounds(product: Product, key: Any, x0: Any, x1: Any) -> Any:
    for number in range(10):
        if number:
            key = key + WEYL[0]
        high, low = product(x0, PHILOX2_FACTOR)
        x0, x1 = high ^ x1 ^ key, low
    return x0, x1


def _philox4_rounds(product: Product, k0: Any, k1: Any, x0: Any, x1: Any, x2: Any, x3: Any) -> Any:
    for number in range(10):
        if number:
            k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
        high0, low0 = product(x0, PHILOX4_FACTORS[0])
        high2, low2 = product(x2, PHILOX4_FACTORS[1])
        x0, x1, x2, x3 = high2 ^ x1 ^ k0, low2, high0 ^ x3 ^ k1, low0
    return x0, x1, x2, x3


def _rotate_array(x: np.ndarray, distance: int) -> np.ndarray:
    return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))


def _integer_product(x: int, factor: int) -> tuple[int, int]:
    """The high and the low word of a product."""
    wide = (x & MASK) * factor
    return wide >> 32, wide & MASK


def _array_product(x: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """The high and the low word of a product."""
    wide = x.astype(UINT64) * np.uint64(factor)
    return (wide >> np.uint64(32)).astype(UINT32), wide.astype(UINT32)


# ------------------------------------------------------------- primitives
class CounterBits(Elementwise):
    """Words of random bits for a key's words followed by a counter's words, all uint32."""

    multiple = True
    kinds = "u"
    key_words: int
    counter_words: int
    mix: Callable[..., Any]  # a function of (step, *words), on types with +, ^ and the step
    on_arrays: Callable[..., Any]  # the step in NumPy
    on_integers: Callable[..., Any]  # the step on Python's integers; bits of results above the lowest 32 are undefined

    def type(self, *types: TensorType, **params: Any) -> Any:
        if any(t.dtype != UINT32 for t in types) or len(types) != self.arity:
            raise DtypeError(
                f"{self.name} got dtypes {', '.join(t.dtype.name for t in types)}.",
                f"Its {self.arity} words are of uint32: use rlx.random, which creates them.",
            )
        return (TensorType(broadcast_shapes(self.name, types), UINT32),) * self.counter_words

    @property
    def arity(self) -> int:
        """Number of operands."""
        return self.key_words + self.counter_words

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        together = np.broadcast(*arrays)
        shape = together.shape
        if 0 < together.size <= FEW:
            operands = zip(*(_values(a, together) for a in arrays), strict=True)
            # only rotations and products depend on higher bits: sums need no masking in between
            words = np.array([[x & MASK for x in self.mix(self.on_integers, *block)] for block in operands], UINT32)
            return tuple(words[:, i].reshape(shape) for i in range(self.counter_words))
        # arrays of at least one axis: NumPy's scalars would warn when they wrap
        flat = [np.broadcast_to(a, shape or (1,)) for a in arrays]
        return tuple(x.reshape(shape) for x in self.mix(self.on_arrays, *flat))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """Bits have no derivative."""
        outs = self.bind(*primals, **params)
        return outs, tuple(Zero(type_of(o)) for o in outs)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        outs, dim = super().batch(size, inputs, dims, **params)
        return outs, (dim,) * len(outs)

    def samples(self) -> Iterator[Sample]:
        """Scalars, broadcasting, zero size."""
        generator = np.random.default_rng(1)

        def draw(count: int, *shape: int) -> list[np.ndarray]:
            return [np.asarray(generator.integers(0, 2**32, shape)).astype(UINT32) for _ in range(count)]

        keys, counters = self.key_words, self.counter_words
        yield Sample((*draw(keys + counters),), {})
        yield Sample((*draw(keys), *draw(1, 2, 3), *draw(counters - 1, 3)), {})
        yield Sample((*draw(keys, 2, 1), *draw(counters, 3)), {})
        yield Sample((*draw(keys), *draw(counters, 0)), {})


class Threefry(CounterBits):
    """Additions, rotations and exclusive ors."""

    on_arrays = staticmethod(_rotate_array)
    on_integers = staticmethod(_rotate_integer)

    def scalar(self, s: Any, *xs: Any) -> Any:
        def rotate(x: Any, distance: int) -> Any:
            return s.shift_left(x, distance) | s.shift_right_logical(x, 32 - distance)

        return self.mix(rotate, *xs)


class Philox(CounterBits):
    """Products of twice the width, and exclusive ors."""

    on_arrays = staticmethod(_array_product)
    on_integers = staticmethod(_integer_product)

    def scalar(self, s: Any, *xs: Any) -> Any:
        def product(x: Any, factor: int) -> Any:
            wide = s.cast(x, UINT64) * factor
            return s.cast(s.shift_right_logical(wide, 32), UINT32), s.cast(wide, UINT32)

        return self.mix(product, *xs)


@primitive
class threefry2x32(Threefry):
    """Two words of random bits for the key (k0, k1) and the counter (x0, x1)."""

    key_words = counter_words = 2
    mix = staticmethod(_threefry2_rounds)


@primitive
class threefry4x32(Threefry):
    """Four words of random bits for a key and a counter of four words."""

    key_words = counter_words = 4
    mix = staticmethod(_threefry4_rounds)


@primitive
class philox2x32(Philox):
    """Two words of random bits for a key of one word and the counter (x0, x1)."""

    key_words, counter_words = 1, 2
    mix = staticmethod(_philox2_rounds)


@primitive
class philox4x32(Philox):
    """Four words of random bits for the key (k0, k1) and a counter of four words."""

    key_words, counter_words = 2, 4
    mix = staticmethod(_philox4_rounds)
