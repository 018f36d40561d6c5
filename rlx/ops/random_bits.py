"""Threefry: twenty rounds that turn a key and a counter into random bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError
from rlx.ir.types import TensorType
from rlx.ops.families import Elementwise, broadcast_shapes
from rlx.trace.primitive import Sample, Zero, primitive, type_of

__all__ = ["threefry2x32"]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
UINT32 = np.dtype(np.uint32)
MASK = 0xFFFFFFFF
FEW = 6  # blocks that Python's integers are faster for than a hundred NumPy calls


def _rounds(rotate: Callable[[Any, int], Any], k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
    """Threefry-2x32 on anything with +, ^ and a rotation of 32 bits."""
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
    """The elements of an array as it broadcasts with others."""
    if array.size == 1:
        return [array.item()] * together.size
    return np.broadcast_to(array, together.shape).ravel().tolist()


def _rotate_array(x: np.ndarray, distance: int) -> np.ndarray:
    return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))


@primitive
class threefry2x32(Elementwise):
    """Two words of random bits for the key (k0, k1) and the counter (x0, x1), all uint32."""

    multiple = True
    kinds = "u"

    def type(self, *types: TensorType, **params: Any) -> Any:
        if any(t.dtype != UINT32 for t in types):
            raise DtypeError(
                f"threefry2x32 got dtypes {', '.join(t.dtype.name for t in types)}.",
                "Keys and counters are uint32: use rlx.random, which makes them.",
            )
        result = TensorType(broadcast_shapes(self.name, types), UINT32)
        return result, result

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        together = np.broadcast(*arrays)
        shape = together.shape
        if 0 < together.size <= FEW:
            operands = zip(*(_values(a, together) for a in arrays), strict=True)
            # a rotation alone looks at bits above others: sums need no cutting in between
            words = np.array([[x & MASK for x in _rounds(_rotate_integer, *block)] for block in operands], UINT32)
            return words[:, 0].reshape(shape), words[:, 1].reshape(shape)
        # arrays of at least one axis: NumPy's scalars would warn when they wrap
        flat = [np.broadcast_to(a, shape or (1,)) for a in arrays]
        return tuple(x.reshape(shape) for x in _rounds(_rotate_array, *flat))

    def scalar(self, s: Any, k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
        def rotate(x: Any, distance: int) -> Any:
            return s.shift_left(x, distance) | s.shift_right_logical(x, 32 - distance)

        return _rounds(rotate, k0, k1, x0, x1)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """Bits have no derivative."""
        outs = self.bind(*primals, **params)
        return outs, tuple(Zero(type_of(o)) for o in outs)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        outs, dim = super().batch(size, inputs, dims, **params)
        return outs, (dim, dim)

    def samples(self) -> Iterator[Sample]:
        """Scalars, broadcasting, zero size."""
        generator = np.random.default_rng(1)

        def draw(*shape: int) -> np.ndarray:
            return np.asarray(generator.integers(0, 2**32, shape)).astype(UINT32)

        yield Sample((draw(), draw(), draw(), draw()), {})
        yield Sample((draw(), draw(), draw(2, 3), draw(3)), {})
        yield Sample((draw(2, 1), draw(2, 1), draw(3), draw(3)), {})
        yield Sample((draw(), draw(), draw(0), draw(0)), {})
