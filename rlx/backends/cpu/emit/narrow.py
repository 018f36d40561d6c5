"""Narrow numbers: exact decoding to the computation dtype, and encoding that rounds to nearest even or wraps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from rlx.backends.cpu.emit.ir_text import Value
from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS, FloatFormat, IntegerFormat

__all__ = ["decode", "decode_by_bits", "encode", "encode_by_bits", "round_to_odd", "saturate"]


def decode(dtype: np.dtype, code: Value) -> Value:
    """The float32, or the integer of a byte, of a stored code."""
    if dtype in INTEGER_FORMATS:
        return _extended(INTEGER_FORMATS[dtype], code)
    if dtype.name == "float16":
        return code.as_float().convert("fpext", "float")
    return decode_by_bits(dtype, code)


def decode_by_bits(dtype: np.dtype, code: Value) -> Value:
    """The float32 of a stored float, by operations on integers."""
    return code.code.function(_conversion("decode", dtype.name), code)


def encode(dtype: np.dtype, number: Value) -> Value:
    """The code nearest to a float32, ties to even; the low bits of an integer."""
    if dtype in INTEGER_FORMATS:
        return number & ((1 << INTEGER_FORMATS[dtype].bits) - 1)
    if dtype.name == "float16":
        return number.convert("fptrunc", "half").bits()
    return encode_by_bits(dtype, number)


def encode_by_bits(dtype: np.dtype, number: Value) -> Value:
    """The code nearest to a float32, by operations on integers."""
    return number.code.function(_conversion("encode", dtype.name), number)


def round_to_odd(number: Value) -> Value:
    """A double as a float32 that rounds to float16 as the double itself does (Boldo and Melquiond, 2008).

    A double between two float32 numbers becomes the one whose last bit is set. Rounding it twice to
    nearest would round some ties the wrong way.
    """
    nearest = number.convert("fptrunc", "float")
    wide = nearest.convert("fpext", "double")
    bits = nearest.bits()
    beyond = abs(wide) > abs(number)
    return wide.compare("une", number).where(beyond.where(bits - 1, bits) | 1, bits).as_float()


def saturate(form: IntegerFormat, number: Value) -> Value:
    """An integer of a byte limited to the range of a narrower one."""
    if not form.signed:
        return number.code.intrinsic("umin", number, number.lift(form.largest))
    limited = number.code.intrinsic("smin", number, number.lift(form.largest))
    return number.code.intrinsic("smax", limited, number.lift(form.least))


def _extended(form: IntegerFormat, code: Value) -> Value:
    """The number that the low bits of a byte mean."""
    if not form.signed:
        return code & ((1 << form.bits) - 1)
    return (code << (8 - form.bits)).arithmetic_shift(8 - form.bits)


@cache
def _conversion(direction: str, name: str) -> Callable[[Value], Value]:
    form = FLOAT_FORMATS[np.dtype(name)]
    if name == "bfloat16":
        chosen = _decode_bfloat if direction == "decode" else _encode_bfloat
    elif not form.zero:
        chosen = _decode_scale if direction == "decode" else _encode_scale
    else:
        chosen = _decode_small if direction == "decode" else _encode_small

    def convert(value: Value) -> Value:
        return chosen(form, value)

    convert.__name__ = f"{direction}_{name}"
    return convert


def _decode_bfloat(form: FloatFormat, code: Value) -> Value:
    return (code.convert("zext", "i32") << 16).as_float()


def _encode_bfloat(form: FloatFormat, number: Value) -> Value:
    bits = number.bits()
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return number.is_nan().where(quiet, rounded).convert("trunc", "i16")


def _decode_scale(form: FloatFormat, code: Value) -> Value:
    """Powers of two with float32's own exponents: only the first and the last code differ."""
    wide = code.convert("zext", "i32")
    number = wide.equal(0).where(1 << 22, wide << 23).as_float()
    return wide.equal(form.nan).where(float("nan"), number)


def _encode_scale(form: FloatFormat, number: Value) -> Value:
    """To the nearest power of two, up from the middle, and always up from the least one, as ml_dtypes does."""
    bits = number.bits()
    code = bits.compare("ule", 1 << 22).where(0, (bits + (1 << 22)) >> 23)
    positive = (number > 0.0) & number.compare("olt", float("inf"))
    return positive.where(code, form.nan).convert("trunc", "i8")


def _decode_small(form: FloatFormat, code: Value) -> Value:
    wide = code.convert("zext", "i32")
    magnitude = wide & ((1 << form.magnitude_bits) - 1)
    shifted = magnitude << (23 - form.mantissa)
    # subnormal codes become normal float32 numbers by one exact multiplication
    number = shifted.as_float() * 2.0 ** (127 - form.bias)
    nan = code.code.constant("float", float("nan"))
    if form.special == "minus zero":
        number = wide.equal(form.nan).where(nan, number)
    elif form.special == "IEEE":
        infinite = magnitude.equal(form.overflow).where(float("inf"), number)
        number = (magnitude > form.overflow).where(nan, infinite)
    elif form.special == "NaN":
        number = magnitude.equal(form.nan).where(nan, number)
    sign = (wide & form.sign) << (31 - form.magnitude_bits)
    return (number.bits() | sign).as_float()


def _encode_small(form: FloatFormat, number: Value) -> Value:
    bits, stored = number.bits(), "i8" if form.bits <= 8 else "i16"
    sign = (bits >> (31 - form.magnitude_bits)) & form.sign
    magnitude = bits & 0x7FFFFFFF
    drop = 23 - form.mantissa
    rebias = (127 - form.bias) << 23
    odd = (magnitude >> drop) & 1
    normal = (magnitude - rebias + ((1 << (drop - 1)) - 1) + odd) >> drop
    # adding a power of two whose unit is the smallest subnormal rounds to it
    anchor = 2.0 ** (24 - form.mantissa - form.bias)
    subnormal = (magnitude.as_float() + anchor).bits() - number.code.constant("float", anchor).bits()
    least_normal = (128 - form.bias) << 23
    code = (magnitude < least_normal).where(subnormal, normal)
    code = ((magnitude > 0x7F800000 - 1) | (code > form.overflow)).where(form.overflow, code)
    if form.special == "minus zero":
        signed = code.equal(0).where(0, code | sign)
        return (code.equal(form.overflow) | number.is_nan()).where(form.nan, signed).convert("trunc", stored)
    if form.special == "none":
        return number.is_nan().where(form.nan, code | sign).convert("trunc", stored)
    return (number.is_nan().where(form.nan, code) | sign).convert("trunc", stored)
