"""Bit patterns of narrow numbers, computed from the float32 or the byte-wide integer that contains them."""

from __future__ import annotations

import numpy as np

from rlx.ir.formats import FLOAT_FORMATS
from rlx.ir.types import bits_of, compute_dtype
from rlx.lowering.scalar_calculus import Scalar, ScalarCalculus

__all__ = ["bits_to_narrow", "narrow_integer", "narrow_nextafter", "narrow_to_bits"]

_BITS, _SINGLE = np.dtype(np.uint32), np.dtype(np.float32)


# ------------------------------------------------------------- floats
def narrow_to_bits(s: ScalarCalculus, x: Scalar) -> Scalar:
    """The bits of a narrow float, in an unsigned integer of the same size.

    Scaling by a power of two puts the narrow exponent where float32 has its own, subnormals
    included, so that the narrow code is a shift away.
    """
    form = FLOAT_FORMATS[x.dtype]
    wide = s.real_scalar(x.node, _SINGLE)
    magnitude = s.abs(wide)
    scaled = magnitude * s.constant(2.0 ** (form.bias - 127), _SINGLE)
    code = s.shift_right_logical(s.bitcast(scaled, _BITS), s.constant(23 - form.mantissa, _BITS))
    if form.special == "IEEE":
        is_infinite = s.eq(magnitude, s.constant(np.inf, _SINGLE))
        code = s.select(is_infinite, s.constant(form.overflow, _BITS), code)
    if form.special != "none":
        code = s.select(s.is_nan(wide), s.constant(form.nan, _BITS), code)
    if form.zero:
        sign = s.shift_right_logical(s.bitcast(wide, _BITS), s.constant(31, _BITS))
        sign = s.shift_left(sign, s.constant(form.magnitude_bits, _BITS))
        if form.special == "minus zero":
            sign = s.select(s.eq(magnitude, s.constant(0, _SINGLE)), s.constant(0, _BITS), sign)
        code = s.or_(code, sign)
    return s.cast(code, np.dtype(f"u{x.dtype.itemsize}"))


def bits_to_narrow(s: ScalarCalculus, code: Scalar, dtype: np.dtype) -> Scalar:
    """The narrow float of an unsigned bit pattern, held in float32."""
    form = FLOAT_FORMATS[dtype]
    wide = s.cast(code, _BITS)
    magnitude = s.and_(wide, s.constant((1 << form.magnitude_bits) - 1, _BITS))
    value = s.bitcast(s.shift_left(magnitude, s.constant(23 - form.mantissa, _BITS)), _SINGLE)
    value = value * s.constant(2.0 ** (127 - form.bias), _SINGLE)
    not_a_number = s.constant(np.nan, _SINGLE)
    if form.special == "IEEE":
        value = s.select(s.eq(magnitude, form.overflow), s.constant(np.inf, _SINGLE), value)
        value = s.select(s.gt(magnitude, form.overflow), not_a_number, value)
    elif form.special == "NaN":
        value = s.select(s.eq(magnitude, form.overflow), not_a_number, value)
    if form.zero:
        negative = s.ne(s.shift_right_logical(wide, s.constant(form.magnitude_bits, _BITS)), 0)
        value = s.select(negative, -value, value)
    else:
        value = s.select(s.eq(magnitude, 0), s.constant(2.0**-form.bias, _SINGLE), value)
    if form.special == "minus zero":
        value = s.select(s.eq(wide, form.nan), not_a_number, value)
    return s.real_scalar(value.node, dtype)


def narrow_nextafter(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    """The neighbour of x towards y in x's own narrow format."""
    form = FLOAT_FORMATS[x.dtype]
    x, y = s.rounded(x), s.rounded(y)
    code = narrow_to_bits(s, x)
    one, least = s.constant_like(code, 1), s.constant_like(code, -1)
    if not form.zero:
        moved = s.select(s.gt(y, x), code + one, code + least)
        result = bits_to_narrow(s, moved, x.dtype)
    else:
        away = s.eq(s.gt(y, x), s.gt(x, 0))
        smallest = s.select(s.gt(y, 0), one, s.constant_like(code, form.sign | 1))
        moved = s.select(s.eq(x, 0), smallest, s.add(code, s.select(away, one, least)))
        result = bits_to_narrow(s, moved, x.dtype)
    result = s.select(s.eq(x, y), y, result)
    return s.select(s.or_(s.is_nan(x), s.is_nan(y)), s.constant(np.nan, x.dtype), result)


# ------------------------------------------------------------- integers
def _code(s: ScalarCalculus, x: Scalar) -> Scalar:
    """The bits of a narrow integer as the number that they are, in uint8."""
    return s.cast(s.cast(x, np.dtype(f"uint{bits_of(x.dtype)}")), np.dtype(np.uint8))


def _signed_number(s: ScalarCalculus, x: Scalar) -> Scalar:
    """The bits of a narrow integer read as a signed number, in int8."""
    return s.cast(s.cast(x, np.dtype(f"int{bits_of(x.dtype)}")), np.dtype(np.int8))


def _shift_left(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    return s.shift_left(_code(s, x), _code(s, y))


def _shift_right_logical(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    return s.shift_right_logical(_code(s, x), _code(s, y))


def _shift_right_arithmetic(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    return s.shift_right_arithmetic(_signed_number(s, x), s.cast(_code(s, y), np.dtype(np.int8)))


def _population_count(s: ScalarCalculus, x: Scalar) -> Scalar:
    return s.population_count(_code(s, x))


def _count_leading_zeros(s: ScalarCalculus, x: Scalar) -> Scalar:
    return s.count_leading_zeros(_code(s, x)) - (8 - bits_of(x.dtype))


# operations that depend on the width; the others operate on the byte and wrap
_SEEING_WIDTH = {
    "shift_left": _shift_left,
    "shift_right_logical": _shift_right_logical,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "population_count": _population_count,
    "count_leading_zeros": _count_leading_zeros,
}
_WITHIN_RANGE = frozenset(("min", "max", "and", "or", "xor", "rem", "sign"))


def narrow_integer(op: str, s: ScalarCalculus, *operands: Scalar) -> Scalar:
    """An operation on integers of less than 8 bits, its result wrapped to their width."""
    dtype = operands[0].dtype
    if op in _SEEING_WIDTH:
        return s.cast(_SEEING_WIDTH[op](s, *operands), dtype)
    byte = compute_dtype(dtype)
    result = s.same_dtype(op, *(s.real_scalar(x.node, byte) for x in operands))
    return s.real_scalar(result.node, dtype) if op in _WITHIN_RANGE else s.cast(result, dtype)
