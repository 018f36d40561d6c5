"""The bits of number formats that NumPy lacks or has no arithmetic for."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

__all__ = ["FLOAT_FORMATS", "INTEGER_FORMATS", "FloatFormat", "IntegerFormat"]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """Floats of less than 32 bits; in memory, the code occupies the low bits of whole bytes.

    `special` selects the codes that are not finite numbers: "IEEE" (the top exponent: infinities and NaN), "NaN" (the
    last code of either sign), "minus zero" (NaN in the place of -0, which is missing), "none" (all are finite).
    Without `zero` there are neither zeros nor signs: the least code is a power of two like the others.
    """

    exponent: int
    mantissa: int
    bias: int
    special: str
    zero: bool = True

    @property
    def magnitude_bits(self) -> int:
        """Bits of a code without the sign."""
        return self.exponent + self.mantissa

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.magnitude_bits + self.zero

    @property
    def sign(self) -> int:
        """The bit of the sign, above the others; 0 if there is none."""
        return 1 << self.magnitude_bits if self.zero else 0

    @property
    def overflow(self) -> int:
        """The code of numbers that are too large: infinity, NaN, or the largest finite number."""
        if self.special == "IEEE":
            return ((1 << self.exponent) - 1) << self.mantissa
        return (1 << self.magnitude_bits) - (self.special != "minus zero")

    @property
    def nan(self) -> int:
        """The code that NaN becomes; -0 if there is no NaN."""
        if self.special in ("minus zero", "none"):
            return self.sign
        return self.overflow | (1 << (self.mantissa - 1) if self.special == "IEEE" else 0)


@dataclass(frozen=True, slots=True)
class IntegerFormat:
    """Integers of less than 8 bits, one in the low bits of each byte in memory."""

    bits: int
    signed: bool

    @property
    def least(self) -> int:
        """The smallest number."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def largest(self) -> int:
        """The largest number."""
        return (1 << (self.bits - self.signed)) - 1


# the number of bits, and for floats their parts, are in the names
INTEGER_FORMATS = {
    np.dtype(getattr(ml_dtypes, f"{prefix}{bits}")): IntegerFormat(bits, prefix == "int")
    for bits in (1, 2, 4)
    for prefix in ("uint", "int")
    if hasattr(ml_dtypes, f"{prefix}{bits}")
}

FLOAT_FORMATS = {
    np.dtype(getattr(ml_dtypes, name)): form
    for name, form in {
        "float4_e2m1fn": FloatFormat(2, 1, 1, "none"),
        "float6_e2m3fn": FloatFormat(2, 3, 1, "none"),
        "float6_e3m2fn": FloatFormat(3, 2, 3, "none"),
        "float8_e3m4": FloatFormat(3, 4, 3, "IEEE"),
        "float8_e4m3": FloatFormat(4, 3, 7, "IEEE"),
        "float8_e8m0fnu": FloatFormat(8, 0, 127, "NaN", zero=False),
        "float8_e4m3b11fnuz": FloatFormat(4, 3, 11, "minus zero"),
        "float8_e4m3fn": FloatFormat(4, 3, 7, "NaN"),
        "float8_e4m3fnuz": FloatFormat(4, 3, 8, "minus zero"),
        "float8_e5m2": FloatFormat(5, 2, 15, "IEEE"),
        "float8_e5m2fnuz": FloatFormat(5, 2, 16, "minus zero"),
        "bfloat16": FloatFormat(8, 7, 127, "IEEE"),
    }.items()
}
FLOAT_FORMATS[np.dtype(np.float16)] = FloatFormat(5, 10, 15, "IEEE")
