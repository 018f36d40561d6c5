"""The few largest elements of long rows: blocks first, then the elements of the blocks that may contain them.

The k largest elements are in the k blocks with the largest maxima: each of these has an element that is at
least the k-th maximum. Sorting the maxima and then k blocks is less work than sorting the row; with blocks
of about sqrt(n / k) elements, the work is minimal.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, dtype_kind, is_float

__all__ = ["few_largest", "are_few"]

_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_SHORT = 256


def are_few(dtype: np.dtype, k: int, size: int) -> bool:
    """Whether blocks are worthwhile for k of `size` elements."""
    return (is_float(dtype) or dtype_kind(dtype) in "iu") and size >= _SHORT and 0 < k and 8 * k <= size


def few_largest(builder: Any, x: Any, k: int, by_sorting: Any) -> tuple[Any, Any]:
    """The k largest along the last axis of a lowered value, and their int32 positions.

    by_sorting(builder, x, k) does the same by sorting the whole axis.
    """
    *outer, size = x.type.shape
    block = isqrt(size // k)
    count = -(-size // block)
    rows = _blocks(builder, x, count, block)
    _, chosen = by_sorting(builder, builder.reduce("max", rows, [len(outer) + 1]), k)
    # in the order of the row: equal elements keep their order
    (chosen,) = builder.sort((chosen,), len(outer), 1)

    def element(s: Any, *place: Any) -> list[Any]:
        *before, number, offset = place
        return [*before, s.cast(s.load(chosen, (*before, number)), _INT64), offset]

    candidates = builder.gather(rows, element, (*outer, k, block))
    values, places = by_sorting(builder, builder.reshape(candidates, (*outer, k * block)), k)

    def position(s: Any, place: Any) -> Any:
        before = [s.index(axis) for axis in range(len(outer))]
        wide = s.cast(place, _INT64)
        number = s.div(wide, s.constant(block, _INT64))
        offset = s.sub(wide, s.mul(number, s.constant(block, _INT64)))
        start = s.mul(s.cast(s.load(chosen, (*before, number)), _INT64), s.constant(block, _INT64))
        return s.cast(s.add(start, offset), _INT32)

    return values, builder.elementwise(position, (places,), TensorType((*outer, k), _INT32))


def _blocks(builder: Any, x: Any, count: int, block: int) -> Any:
    """(..., blocks, elements): the last block is padded with the minimum."""
    *outer, size = x.type.shape
    if count * block > size:
        dtype = x.type.dtype
        fill = builder.full(TensorType((), dtype), neutral("max", dtype))
        x = builder.pad(x, fill, (*((0, 0, 0),) * len(outer), (0, count * block - size, 0)))
    return builder.reshape(x, (*outer, count, block))
