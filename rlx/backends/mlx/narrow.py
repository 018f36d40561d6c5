"""The meanings of narrow numbers, which are codes in memory."""

from __future__ import annotations

from functools import cache

import numpy as np

from rlx.backends.mlx.library import ALIKE, MxArray, dtype_of_memory, mx
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.types import compute_dtype

__all__ = ["decode"]


def decode(dtype: np.dtype, codes: MxArray) -> MxArray:
    """The float32 numbers, or the integers of a byte, that codes represent."""
    if dtype.name in ALIKE:
        return mx.view(codes, ALIKE[dtype.name]).astype(mx.float32)
    return mx.take(_meanings(dtype), codes)


@cache
def _meanings(dtype: np.dtype) -> MxArray:
    """The value of each byte; bits above the code's are ignored."""
    form = FLOAT_FORMATS.get(dtype) or INTEGER_FORMATS[dtype]
    codes = (np.arange(256) & ((1 << form.bits) - 1)).astype(np.uint8)
    wide = compute_dtype(dtype)
    table = mx.array(codes.view(dtype).astype(wide), dtype_of_memory(wide))
    mx.eval(table)
    return table
