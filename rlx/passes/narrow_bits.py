"""Bit patterns of floats narrower than 32 bits, computed from the float32 that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from rlx.passes.scalar_builder import Scalar, ScalarBuilder

__all__ = ["bits_to_narrow", "narrow_nextafter", "narrow_to_bits"]


def _format(dtype: np.dtype) -> tuple[int, int, int, int, bool]:
    """(mantissa bits, exponent bias, code of NaN, code of infinity or -1, unsigned zero)."""
    width = 8 * dtype.itemsize
    codes = np.arange(1 << (width - 1), dtype=f"u{dtype.itemsize}").view(dtype).astype(np.float32)
    mantissa = int(ml_dtypes.finfo(dtype).nmant)
    bias = 1 - int(ml_dtypes.finfo(dtype).minexp)
    infinity = np.flatnonzero(np.isinf(codes))
    nan = int(np.array(np.nan, dtype).view(f"u{dtype.itemsize}")) & ((1 << width) - 1)
    fnuz = not np.isnan(codes).any()
    return mantissa, bias, nan, int(infinity[0]) if infinity.size else -1, fnuz


def narrow_to_bits(s: ScalarBuilder, x: Scalar) -> Scalar:
    """The bits of a narrow float as an unsigned integer of its width.

    Scaling by a power of two puts the narrow exponent where float32 has its own, subnormals
    included, so that the narrow code is a shift away.
    """
    mantissa, bias, nan, infinity, fnuz = _format(x.dtype)
    width = 8 * x.dtype.itemsize
    bits, single = np.dtype(np.uint32), np.dtype(np.float32)
    wide = s.real_scalar(x.node, single)
    magnitude = s.abs(wide)
    scaled = magnitude * s.constant(2.0 ** (bias - 127), single)
    code = s.shift_right_logical(s.bitcast(scaled, bits), s.constant(23 - mantissa, bits))
    if infinity >= 0:
        is_infinite = s.eq(magnitude, s.constant(np.inf, single))
        code = s.select(is_infinite, s.constant(infinity, bits), code)
    sign = s.shift_right_logical(s.bitcast(wide, bits), s.constant(31, bits))
    sign = s.shift_left(sign, s.constant(width - 1, bits))
    if fnuz:
        sign = s.select(s.eq(magnitude, s.constant(0, single)), s.constant(0, bits), sign)
    code = s.select(s.is_nan(wide), s.constant(nan, bits), s.or_(code, sign))
    return s.cast(code, np.dtype(f"u{x.dtype.itemsize}"))


def bits_to_narrow(s: ScalarBuilder, code: Scalar, dtype: np.dtype) -> Scalar:
    """The narrow float of an unsigned bit pattern, held in float32."""
    mantissa, bias, nan, infinity, fnuz = _format(dtype)
    width = 8 * dtype.itemsize
    bits, single = np.dtype(np.uint32), np.dtype(np.float32)
    wide = s.cast(code, bits)
    magnitude = s.and_(wide, s.constant((1 << (width - 1)) - 1, bits))
    value = s.bitcast(s.shift_left(magnitude, s.constant(23 - mantissa, bits)), single)
    value = value * s.constant(2.0 ** (127 - bias), single)
    not_a_number = s.constant(np.nan, single)
    if infinity >= 0:
        value = s.select(s.eq(magnitude, infinity), s.constant(np.inf, single), value)
        value = s.select(s.gt(magnitude, infinity), not_a_number, value)
    elif not fnuz:
        value = s.select(s.eq(magnitude, nan & ((1 << (width - 1)) - 1)), not_a_number, value)
    negative = s.ne(s.shift_right_logical(wide, s.constant(width - 1, bits)), 0)
    value = s.select(negative, -value, value)
    if fnuz:
        value = s.select(s.eq(wide, nan), not_a_number, value)
    return s.real_scalar(value.node, dtype)


def narrow_nextafter(s: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """The neighbour of x towards y in x's own narrow format."""
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    top = s.constant(1 << (8 * x.dtype.itemsize - 1), unsigned)
    x, y = s.rounded(x), s.rounded(y)
    code = s.bitcast(x, unsigned)
    away = s.eq(s.gt(y, x), s.gt(x, 0))
    step = s.select(away, s.constant(1, unsigned), s.constant(-1, unsigned))
    smallest = s.select(s.gt(y, 0), s.constant(1, unsigned), s.or_(top, 1))
    moved = s.select(s.eq(x, 0), smallest, s.add(code, step))
    result = s.bitcast(moved, x.dtype)
    result = s.select(s.eq(x, y), y, result)
    return s.select(s.or_(s.is_nan(x), s.is_nan(y)), s.constant(np.nan, x.dtype), result)
