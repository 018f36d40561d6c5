"""Functions of floats that MLX lacks, or computes with less than the dtype's precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.backends.mlx.library import MxArray, is_on_gpu, mx
from rlx.code.tables import (
    ERF_CENTRAL,
    ERF_COMPLEMENT,
    ERF_FARTHEST,
    INVERSE_ERF_CENTRAL,
    INVERSE_ERF_FAR,
)

__all__ = [
    "cbrt",
    "copysign",
    "cos",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "fma",
    "fmod",
    "logistic",
    "nextafter",
    "sin",
]

_INFINITY, _NAN = float("inf"), float("nan")


def _is_double(x: MxArray) -> bool:
    return x.dtype == mx.float64


def _horner(x: MxArray, coefficients: Sequence[float]) -> MxArray:
    """The polynomial with the constant coefficient first."""
    result = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        result = result * x + coefficient
    return result


def _bits(x: MxArray) -> MxArray:
    """The bits of floats as signed integers."""
    return mx.view(x, mx.int64 if _is_double(x) else mx.int32)


def _float(bits: MxArray) -> MxArray:
    return mx.view(bits, mx.float64 if bits.dtype == mx.int64 else mx.float32)


def _is_exact(x: MxArray) -> bool:
    """Whether MLX's own functions of float32 have its precision: on a GPU; a processor's are computed in float64."""
    return not _is_double(x) and is_on_gpu()


# ------------------------------------------------------------------ exponentials
def exp(x: MxArray) -> MxArray:
    """e^x; of float64 by expm1, since MLX's exp has float32's precision there, and less in float32."""
    if _is_exact(x):
        return mx.exp(x)
    if not _is_double(x):
        return _exp_in_double(x).astype(mx.float32)
    # the root keeps both ends of the range, including subnormal results, within the range of expm1
    root = mx.expm1(mx.abs(x) * 0.5) + 1.0
    return mx.where(x < 0, 1.0 / root / root, root * root)


def _exp_in_double(x: MxArray) -> MxArray:
    """e^x of float32, computed in float64."""
    return mx.power(mx.array(math.e, mx.float64), x.astype(mx.float64))


def exp2(x: MxArray) -> MxArray:
    """2^x."""
    return mx.power(mx.array(2.0, x.dtype), x)


def logistic(x: MxArray) -> MxArray:
    """1 / (1 + e^-x)."""
    if _is_exact(x):
        return mx.sigmoid(x)
    if not _is_double(x):
        return (1.0 / (_exp_in_double(-x) + 1.0)).astype(mx.float32)
    small = exp(-mx.abs(x))
    return mx.where(x >= 0, mx.ones_like(small), small) / (small + 1.0)


def sin(x: MxArray) -> MxArray:
    """sin x; of float64 by the tangent of the half, since MLX's sin has float32's precision there."""
    if _is_exact(x):
        return mx.sin(x)
    if not _is_double(x):
        return mx.where(x == 0, x, mx.sin(x))  # mx.sin loses the sign of zero
    half = mx.tan(x * 0.5)
    return 2.0 * half / (half * half + 1.0)


def cos(x: MxArray) -> MxArray:
    """cos x; of float64 by tangents (see sin): near its zeros as sin x / tan x, which cancels nothing."""
    if not _is_double(x):
        return mx.cos(x)
    half = mx.tan(x * 0.5)
    square = half * half
    unit = 1.0 / (square + 1.0)
    near_zero = mx.logical_and(square > 0.25, square < 4.0)
    return mx.where(near_zero, 2.0 * half * unit / mx.tan(x), _complement_of_square(square, unit))


def _complement_of_square(square: MxArray, unit: MxArray) -> MxArray:
    """(1 - square) * unit, where unit is 1 / (1 + square); correct even if both overflow."""
    return mx.where(square > 1.0, unit * 2.0 - 1.0, (1.0 - square) * unit)


# ------------------------------------------------------------------ error functions
def _kind(x: MxArray) -> str:
    return "double" if _is_double(x) else "float"


def _central(x: MxArray) -> MxArray:
    """erf x where |x| <= 1."""
    return x * _horner(x * x, ERF_CENTRAL[_kind(x)]) + x


def _complement(a: MxArray) -> MxArray:
    """erfc(a) for a >= 0.45, of float64."""
    a = mx.minimum(a, ERF_FARTHEST["double"])
    square = a * a
    bell = exp(-square)
    # the exponent includes a's low half: a^2 is rounded, and exp turns its error into a relative error
    high = _float(mx.bitwise_and(_bits(a), mx.array(-(1 << 27), mx.int64)))
    lost = (high * high - square) + (a - high) * (a + high)
    bell = bell - bell * lost
    t = (a - 4.0) / (a + 4.0)
    return bell * (_horner(t, ERF_COMPLEMENT["double"]) / (a * 2.0 + 1.0))


def erf(x: MxArray) -> MxArray:
    """The error function: a polynomial near zero, where MLX's has few accurate digits."""
    a = mx.abs(x)
    if _is_exact(x):
        return mx.where(a > 1.0, mx.erf(x), _central(x))
    if not _is_double(x):
        return erf(x.astype(mx.float64)).astype(mx.float32)
    outer = copysign(1.0 - _complement(a), x)
    return mx.where(mx.isnan(x), x, mx.where(a > 1.0, outer, _central(x)))


def erfc(x: MxArray) -> MxArray:
    """1 - erf x, in float64 if the device has it: the product of three rounded factors loses a digit."""
    if _is_exact(x):
        return _erfc_single(x)
    if not _is_double(x):
        return erfc(x.astype(mx.float64)).astype(mx.float32)
    far = _complement(mx.abs(x))
    signed = mx.where(x < 0, 2.0 - far, far)
    return mx.where(mx.isnan(x), x, mx.where(mx.abs(x) < 0.5, 1.0 - _central(x), signed))


def _erfc_single(x: MxArray) -> MxArray:
    a = mx.minimum(mx.abs(x), ERF_FARTHEST["float"])
    high = mx.view(mx.bitwise_and(mx.view(a, mx.uint32), 0xFFFFF000), mx.float32)
    bell = mx.exp(-(high * high)) * mx.exp((high - a) * (high + a))
    far = bell * (_horner((a - 4.0) / (a + 4.0), ERF_COMPLEMENT["float"]) / (a * 2.0 + 1.0))
    signed = mx.where(x < 0, 2.0 - far, far)
    return mx.where(mx.isnan(x), x, mx.where(a < 0.5, 1.0 - _central(x), signed))


def erf_inv(x: MxArray) -> MxArray:
    """The inverse of erf; of float64 from 19 good bits by a step of Halley's method."""
    if not _is_double(x):
        return mx.erfinv(x)
    a = mx.abs(x)
    w = -mx.log((1.0 - a) * (1.0 + a))
    far = _horner(mx.sqrt(w) - 4.0, INVERSE_ERF_FAR)
    guess = a * mx.where(w < 5.0, _horner(w - 2.5, INVERSE_ERF_CENTRAL), far)
    excess = mx.where(guess > 0.5, (1.0 - a) - _complement(guess), _central(guess) - a)
    step = excess / (exp(-(guess * guess)) * (2.0 / math.sqrt(math.pi)))
    result = guess - step / (guess * step + 1.0)
    result = mx.where(a == 1.0, _constant(_INFINITY, x), result)
    return copysign(mx.where(a > 1.0, _constant(_NAN, x), result), x)


def _constant(value: float, x: MxArray) -> MxArray:
    return mx.array(value, x.dtype)


# ------------------------------------------------------------------ powers and remainders
def cbrt(x: MxArray) -> MxArray:
    """The cube root: the power of a third, and a step of Newton's method."""
    a = mx.abs(x)
    y = mx.power(a, _constant(1.0 / 3.0, x))
    better = y - (y - a / (y * y)) * (1.0 / 3.0)
    usual = mx.logical_and(a > 0, a < _INFINITY)
    return mx.where(usual, copysign(better, x), x)


def fmod(x: MxArray, y: MxArray) -> MxArray:
    """The remainder with the sign of x, from the magnitudes: MLX's remainder has the sign of y."""
    return copysign(mx.remainder(mx.abs(x), mx.abs(y)), x)


# ------------------------------------------------------------------ bits
def copysign(x: MxArray, y: MxArray) -> MxArray:
    """The magnitude of x with the sign of y, zeros and NaN included."""
    bits, signs = _bits(x), _bits(y)
    sign = mx.array(-(1 << 63) if _is_double(x) else -(1 << 31), bits.dtype)
    kept = mx.bitwise_and(bits, mx.bitwise_invert(sign))
    return _float(mx.bitwise_or(kept, mx.bitwise_and(signs, sign)))


def nextafter(x: MxArray, y: MxArray) -> MxArray:
    """The next float after x in the direction of y."""
    bits = _bits(x)
    away = (y > x) == (x > 0)
    moved = _float(mx.where(away, bits + 1, bits - 1))
    least = copysign(_float(mx.ones_like(bits)), mx.broadcast_to(y, moved.shape))
    result = mx.where(x == 0, least, moved)
    result = mx.where(x == y, y, result)
    return mx.where(mx.logical_or(mx.isnan(x), mx.isnan(y)), x + y, result)


# ------------------------------------------------------------------ fused multiplication and addition
def fma(x: MxArray, y: MxArray, z: MxArray) -> MxArray:
    """x y + z rounded once."""
    if _is_double(x):
        return _fma(x, y, z, 134217729.0)
    if is_on_gpu():
        return _fma(x, y, z, 4097.0)
    product, added = x.astype(mx.float64) * y.astype(mx.float64), z.astype(mx.float64)
    return _rounded_to_odd_sum(product, added).astype(mx.float32)


def _two_sum(a: MxArray, b: MxArray) -> tuple[MxArray, MxArray]:
    """The rounded sum and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: MxArray, b: MxArray, splitter: float) -> tuple[MxArray, MxArray]:
    """The rounded product and its error."""

    def split(v: MxArray) -> tuple[MxArray, MxArray]:
        scaled = v * splitter
        high = scaled - (scaled - v)
        return high, v - high

    product = a * b
    (a1, a2), (b1, b2) = split(a), split(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def _rounded_to_odd_sum(a: MxArray, b: MxArray) -> MxArray:
    """a + b; if it is not exact, the neighbour of the exact sum whose last bit is set."""
    total, error = _two_sum(a, b)
    bits = _bits(total)
    towards_zero = (error > 0) != (total > 0)
    odd = mx.bitwise_or(mx.where(towards_zero, bits - 1, bits), 1)
    inexact = mx.logical_and(error != 0, mx.isfinite(error))
    return mx.where(inexact, _float(odd), total)


def _fma(x: MxArray, y: MxArray, z: MxArray, splitter: float) -> MxArray:
    """By error-free steps and one rounding to odd (Boldo and Melquiond, 2008); two roundings near overflow."""
    high, low = _two_product(x, y, splitter)
    sum_high, sum_low = _two_sum(z, low)
    total, rest = _two_sum(high, sum_high)
    exact = total + _rounded_to_odd_sum(sum_low, rest)
    return mx.where(mx.isfinite(exact), exact, x * y + z)
