"""16-bit and 8-bit floats: exact decoding to float32, encoding rounded to nearest even."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from rlx.backends.numba.ir_text import Value

__all__ = ["decode", "encode", "is_narrow"]


@dataclass(frozen=True, slots=True)
class Format:
    """A float format. `unsigned_zero`: no -0, whose code is the only NaN; else with `infinite`
    the top exponent is as in IEEE 754, without it only the all-ones code is NaN."""

    exponent: int
    mantissa: int
    bias: int
    infinite: bool = False
    unsigned_zero: bool = False

    @property
    def bits(self) -> int:
        """Bits of a code without the sign."""
        return self.exponent + self.mantissa

    @property
    def infinity(self) -> int:
        """The code after the largest finite one: infinity, or NaN where there is none."""
        if self.infinite:
            return ((1 << self.exponent) - 1) << self.mantissa
        return (1 << self.bits) - (0 if self.unsigned_zero else 1)

    @property
    def nan(self) -> int:
        """The code of NaN."""
        if self.unsigned_zero:
            return 1 << self.bits
        if self.infinite:
            return self.infinity | (1 << (self.mantissa - 1))
        return self.infinity


_FORMATS = {
    "bfloat16": Format(8, 7, 127, infinite=True),
    "float8_e4m3fn": Format(4, 3, 7),
    "float8_e4m3fnuz": Format(4, 3, 8, unsigned_zero=True),
    "float8_e4m3b11fnuz": Format(4, 3, 11, unsigned_zero=True),
    "float8_e5m2": Format(5, 2, 15, infinite=True),
    "float8_e5m2fnuz": Format(5, 2, 16, unsigned_zero=True),
}


def is_narrow(dtype: np.dtype) -> bool:
    """Whether values of this dtype are computed in float32."""
    return dtype.name == "float16" or dtype.name in _FORMATS


def decode(dtype: np.dtype, code: Value) -> Value:
    """The float32 of a stored code."""
    if dtype.name == "float16":
        return code.as_float().convert("fpext", "float")
    return code.code.function(_conversion("decode", dtype.name), code)


def encode(dtype: np.dtype, number: Value) -> Value:
    """The code nearest to a float32, ties to even."""
    if dtype.name == "float16":
        return number.convert("fptrunc", "half").bits()
    return number.code.function(_conversion("encode", dtype.name), number)


@cache
def _conversion(direction: str, name: str) -> Callable[[Value], Value]:
    form = _FORMATS[name]
    if name == "bfloat16":
        chosen = _decode_bfloat if direction == "decode" else _encode_bfloat
    else:
        chosen = _decode_small if direction == "decode" else _encode_small

    def convert(value: Value) -> Value:
        return chosen(form, value)

    convert.__name__ = f"{direction}_{name}"
    return convert


def _decode_bfloat(form: Format, code: Value) -> Value:
    return (code.convert("zext", "i32") << 16).as_float()


def _encode_bfloat(form: Format, number: Value) -> Value:
    bits = number.bits()
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return number.is_nan().where(quiet, rounded).convert("trunc", "i16")


def _decode_small(form: Format, code: Value) -> Value:
    wide = code.convert("zext", "i32")
    magnitude = wide & ((1 << form.bits) - 1)
    shifted = magnitude << (23 - form.mantissa)
    # subnormal codes become normal float32 numbers by one exact multiplication
    number = shifted.as_float() * 2.0 ** (127 - form.bias)
    nan = code.code.constant("float", float("nan"))
    if form.unsigned_zero:
        special = wide.equal(form.nan).where(nan, number)
    elif form.infinite:
        infinite = magnitude.equal(form.infinity).where(float("inf"), number)
        special = (magnitude > form.infinity).where(nan, infinite)
    else:
        special = magnitude.equal(form.nan).where(nan, number)
    sign = (wide & (1 << form.bits)) << (31 - form.bits)
    return (special.bits() | sign).as_float()


def _encode_small(form: Format, number: Value) -> Value:
    bits = number.bits()
    sign = (bits >> (31 - form.bits)) & (1 << form.bits)
    magnitude = bits & 0x7FFFFFFF
    drop = 23 - form.mantissa
    rebias = (127 - form.bias) << 23
    odd = (magnitude >> drop) & 1
    normal = (magnitude - rebias + ((1 << (drop - 1)) - 1) + odd) >> drop
    # adding a power of two whose unit is the smallest subnormal rounds to it
    anchor = 2.0 ** (24 - form.mantissa - form.bias)
    subnormal = (magnitude.as_float() + anchor).bits() - number.code.constant(
        "float", anchor
    ).convert("bitcast", "i32")
    least_normal = (128 - form.bias) << 23
    code = (magnitude < least_normal).where(subnormal, normal)
    code = ((magnitude > 0x7F800000 - 1) | (code > form.infinity)).where(form.infinity, code)
    if form.unsigned_zero:
        signed = code.equal(0).where(0, code | sign)
        return (
            (code.equal(form.infinity) | number.is_nan())
            .where(form.nan, signed)
            .convert("trunc", "i8")
        )
    return (number.is_nan().where(form.nan, code) | sign).convert("trunc", "i8")
