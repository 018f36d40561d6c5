"""The bits of arrays read as numbers of another width."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import wrap
from rlx.errors import DtypeError
from rlx.ir.types import bits_of
from rlx.ops import comparison, conversion
from rlx.ops.reduction import reduce_sum
from rlx.ops.shape import reshape

__all__ = ["cast_bits"]


def cast_bits(x: Any, dtype: np.dtype) -> Any:
    """The bits of real numbers as `dtype`: with a new last axis if narrower, without the last one if wider."""
    have, want = bits_of(x.dtype), bits_of(dtype)
    if x.dtype == dtype:
        return x
    if have == want:
        return conversion.bitcast(x, dtype=dtype)
    if max(have, want) % min(have, want):
        raise DtypeError(
            f"An array of {x.dtype.name} ({have} bits) cannot be viewed as {dtype.name} ({want} bits).",
            "One width must be a multiple of the other.",
        )
    return _split(x, dtype) if have > want else _joined(x, dtype)


def _word(dtype: np.dtype) -> np.dtype:
    """The unsigned integer of a dtype's width."""
    return np.dtype(f"uint{bits_of(dtype)}")


def _split(x: Any, dtype: np.dtype) -> Any:
    word, part, width = _word(x.dtype), _word(dtype), bits_of(dtype)
    count = bits_of(x.dtype) // width
    bits = x if x.dtype == word else conversion.bitcast(x, dtype=word)
    distances = wrap((np.arange(count) * width).astype(word))
    parts = comparison.shift_right_logical(reshape(bits, shape=(*x.shape, 1)), distances)
    words = conversion.convert(parts, dtype=part, weak=False)
    return words if dtype == part else conversion.bitcast(words, dtype=dtype)


def _joined(x: Any, dtype: np.dtype) -> Any:
    word, part, width = _word(dtype), _word(x.dtype), bits_of(x.dtype)
    bits = x if x.dtype == part else conversion.bitcast(x, dtype=part)
    wide = conversion.convert(bits, dtype=word, weak=False)
    distances = wrap((np.arange(bits_of(dtype) // width) * width).astype(word))
    # the parts do not overlap, so that their sum is their union
    joined = reduce_sum(comparison.shift_left(wide, distances), axes=(x.ndim - 1,))
    return joined if dtype == word else conversion.bitcast(joined, dtype=dtype)
