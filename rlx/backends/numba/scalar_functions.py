"""Scalar operations that Python's operators and NumPy's functions lack: Python for Numba to compile.

Generated sources contain the functions that they use, word for word. In a debugger they run unchanged; the faster
versions for Numba are in numba_versions.py.
"""

import math
from fractions import Fraction

import numpy as np

# ------------------------------------------------------------------ floats


def maximum(x, y):
    """The larger number; NaN if one of them is NaN."""
    return np.maximum(x, y)


def minimum(x, y):
    """The smaller number; NaN if one of them is NaN."""
    return np.minimum(x, y)


def plus(x, y):
    """x + y as a step of a sum in unspecified order, which can be vectorised."""
    return x + y


def fma(x, y, z):
    """x * y + z, rounded once."""
    if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
        return x * y + z
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    if exact == 0:
        return x * y + z  # the sign of zero
    if isinstance(x, np.float32):
        return np.float32(odd_double(exact))
    try:
        return np.float64(float(exact))
    except OverflowError:
        return np.float64(np.inf if exact > 0 else -np.inf)


def odd_double(exact):
    """The float64 next to a fraction with the same rounding to float32."""
    nearest = float(exact)
    if Fraction(nearest) == exact or int(np.float64(nearest).view(np.int64)) & 1:
        return nearest
    return float(np.nextafter(nearest, np.inf if Fraction(nearest) < exact else -np.inf))


def sign(x):
    """-1, 1, or x itself if it is zero or NaN."""
    return np.sign(x) if x != 0 else x


def exp(x):
    """e ** x."""
    return np.exp(x)


def exp2(x):
    """2 ** x."""
    return np.exp2(x)


def expm1(x):
    """e ** x - 1."""
    return np.expm1(x)


def log(x):
    """The natural logarithm."""
    return np.log(x)


def log1p(x):
    """log(1 + x)."""
    return np.log1p(x)


def sinh(x):
    """The hyperbolic sine."""
    return np.sinh(x)


def cosh(x):
    """The hyperbolic cosine."""
    return np.cosh(x)


def tanh(x):
    """The hyperbolic tangent."""
    return np.tanh(x)


def logistic(x):
    """1 / (1 + e ** -x)."""
    small = np.exp(-abs(x))
    return (x.dtype.type(1) if x >= 0 else small) / (1 + small)


def erf(x):
    """The error function."""
    return x.dtype.type(math.erf(x))


def erfc(x):
    """1 - erf(x)."""
    return x.dtype.type(math.erfc(x))


def erf_inv(x):
    """The inverse of the error function."""
    return erf_inv_float32(x) if isinstance(x, np.float32) else erf_inv_float64(x)  # noqa: F821  # ty: ignore[unresolved-reference]


# ------------------------------------------------------------------ integers


def quotient(x, y):
    """x / y truncated; all bits set if y is 0; the least number divided by -1 is itself."""
    if y == 0:
        return ~y
    if y == -1:
        return -x
    down = x // y
    return down + 1 if down < 0 and down * y != x else down


def unsigned_quotient(x, y):
    """x // y; all bits set if y is 0."""
    return x // y if y != 0 else ~y


def remainder(x, y):
    """The remainder of x / y, with the sign of x; 0 if y is 0."""
    if y == 0 or y == -1:
        return y - y
    rest = x % y
    return rest - y if rest != 0 and (x < 0) != (y < 0) else rest


def unsigned_remainder(x, y):
    """x % y; 0 if y is 0."""
    return x % y if y != 0 else y


def shift_left(x, count, bits):
    """x << count; 0 unless count is in 0 to bits - 1."""
    return x << count if 0 <= count < bits else x ^ x


def shift_right(x, count, bits):
    """x >> count, for an unsigned x; 0 if count is bits or more."""
    return x >> count if count < bits else x ^ x


def shift_right_arithmetic(x, count, bits):
    """x >> count, for a signed x; -1 or 0 unless count is in 0 to bits - 1."""
    return x >> count if 0 <= count < bits else x >> (bits - 1)


def population_count(x):
    """The number of set bits of an unsigned x."""
    return type(x)(x.bit_count())


def count_leading_zeros(x):
    """The number of leading zero bits of an unsigned x."""
    return type(x)(8 * x.itemsize - int(x).bit_length())


# ------------------------------------------------------------------ conversions


def saturated(x, least, largest):
    """Clamp a float to a range of integers; NaN is 0."""
    if x != x:
        return 0.0
    return min(max(np.float64(x), np.float64(least)), np.float64(largest))


def to_int64(x):
    """Truncate a float, clamped to the range of int64; NaN is 0."""
    if x >= 9223372036854775808.0:
        return np.int64(9223372036854775807)
    if x > -9223372036854775808.0:
        return np.int64(x)
    return np.int64(0) if x != x else np.int64(-9223372036854775808)


def to_uint64(x):
    """Truncate a float, clamped to the range of uint64; NaN is 0."""
    if x >= 18446744073709551616.0:
        return np.uint64(18446744073709551615)
    return np.uint64(x) if x > 0 else np.uint64(0)


def signed_bits(x, bits):
    """The low bits of x as a signed integer."""
    high = 1 << (bits - 1)
    return ((x & (2 * high - 1)) ^ high) - high


# ------------------------------------------------------------------ SciPy functions that the math module provides


def gamma(x):
    """The gamma function."""
    if x == 0:
        return math.copysign(math.inf, x)
    if x < 0 and (x == math.floor(x) or math.isinf(x)):
        return math.nan
    return math.inf if x > 171.7 else math.gamma(x)


def lgamma(x):
    """The logarithm of the absolute value of the gamma function."""
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)
