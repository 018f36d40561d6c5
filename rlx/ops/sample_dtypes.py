"""Samples of one operation in many dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx.ir.types import bfloat16, is_complex, is_float
from rlx.trace.primitive import Sample

__all__ = ["ANY", "NUMBERS", "ORDERED", "typed_samples"]

_narrow = tuple(map(np.dtype, ("float8_e4m3fn", "float4_e2m1fn", "int4", "uint2")))
_real = tuple(map(np.dtype, ("f4", "f2", "i1", "u2", "i4", "u8")))
ORDERED = (*_real, bfloat16, *_narrow)
NUMBERS = (*_real, bfloat16, np.dtype("c8"), np.dtype("c16"))
ANY = (*NUMBERS, *_narrow, np.dtype(bool))


def _in_dtype(x: Any, dtype: np.dtype) -> Any:
    """A float64 operand in another dtype; operands of other dtypes (indices) unchanged."""
    x = np.asarray(x)
    if x.dtype != np.float64:
        return x
    if is_float(dtype):
        return x.astype(dtype)
    if is_complex(dtype):
        return (x + 1j * np.roll(x.ravel(), 1).reshape(x.shape)).astype(dtype)
    return x > 0 if dtype.kind == "b" else np.abs(x * 7).astype(dtype)


def typed_samples(dtypes: tuple[np.dtype, ...], *cases: Any) -> Iterator[Sample]:
    """Samples from (args, params) pairs with float64 args, then the first one in other dtypes."""
    for args, params in cases:
        yield Sample(tuple(args), dict(params))
    args, params = cases[0]
    for dtype in dtypes:
        yield Sample(tuple(_in_dtype(x, dtype) for x in args), dict(params))
