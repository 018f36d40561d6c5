"""Functions of float32 whose every rounding is prescribed: the same bits on every backend.

Random numbers are computed with these, so that a seed gives the same samples everywhere. The roundings are
the same as in JAX's compiler for CPUs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ir.types import dtype_kind
from rlx.ops.arithmetic import add, divide, fma, multiply, square
from rlx.ops.families import Elementwise
from rlx.ops.transcendental import exp
from rlx.trace.primitive import primitive

__all__ = ["portable_erf_inv", "portable_log", "portable_log1p"]

FLOAT32 = np.dtype(np.float32)
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


class _Arrays:
    """The calculus of scalar builders on float32 NumPy arrays, with the operations used here."""

    @staticmethod
    def fma(x: Any, y: Any, z: Any) -> Any:
        total = x.astype(np.float64) * np.float32(y) if np.ndim(y) == 0 else x.astype(np.float64) * y
        total = total + (np.float32(z) if np.ndim(z) == 0 else z)
        # a second rounding is wrong only halfway between two float32 numbers
        if ((total.view(np.int64) & 0x1FFFFFFF) == 0x10000000).any():
            arrays = (np.asarray(a, np.float32) for a in (x, y, z))
            return fma.compute(*np.broadcast_arrays(*arrays))
        return total.astype(np.float32)

    @staticmethod
    def select(predicate: Any, on_true: Any, on_false: Any) -> Any:
        chosen = np.where(predicate, on_true, on_false)
        return chosen if dtype_kind(chosen.dtype) in "iu" else chosen.astype(np.float32)

    @staticmethod
    def bitcast(x: Any, dtype: np.dtype) -> Any:
        return x.view(dtype)

    @staticmethod
    def cast(x: Any, dtype: np.dtype) -> Any:
        return x.astype(dtype)

    @staticmethod
    def shift_right_logical(x: Any, distance: int) -> Any:
        return x >> np.uint32(distance)

    @staticmethod
    def constant_like(x: Any, value: float) -> Any:
        return np.float32(value)

    sqrt = staticmethod(np.sqrt)
    abs = staticmethod(np.abs)
    eq = staticmethod(np.equal)
    lt = staticmethod(np.less)


class Portable(Elementwise):
    """Defines `spelled(s, x)`: the roundings, in the calculus `s` of scalars or of arrays."""

    kinds = "f"
    dtypes = (FLOAT32,)

    def compute(self, x: np.ndarray) -> np.ndarray:
        flat = np.atleast_1d(x)
        return np.asarray(self.spelled(_Arrays, flat), np.float32).reshape(x.shape)

    def scalar(self, s: Any, x: Any) -> Any:
        return self.spelled(s, x)

    def spelled(self, s: Any, x: Any) -> Any:
        """Evaluate the function, one rounding after another."""
        raise NotImplementedError(self.name)


def _product(s: Any, x: Any, y: Any) -> Any:
    """x * y, rounded: a compiler must not contract it with the sum that uses it."""
    return s.fma(x, y, -0.0)


def _horner(s: Any, x: Any, coefficients: tuple[float, ...]) -> Any:
    """A polynomial, highest power first, each step rounded once."""
    first, second, *rest = coefficients
    value = s.fma(x, first, second)
    for coefficient in rest:
        value = s.fma(value, x, coefficient)
    return value


# ------------------------------------------------------------- logarithms
_LOG = (
    (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
    (-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_LOG_TWO = (-2.12194440e-4, 0.693359375)  # the low and the high part
_SCALE = 25  # lifts subnormal numbers into the normal range


def _log(s: Any, x: Any) -> Any:
    """The logarithm: a polynomial in the mantissa, plus the exponent's multiple of log(2)."""
    subnormal = s.lt(x, SMALLEST_NORMAL)
    bits = s.bitcast(s.select(subnormal, x * 2.0**_SCALE, x), np.dtype(np.uint32))
    exponent = s.cast(s.cast(s.shift_right_logical(bits, 23), np.dtype(np.int32)) - 126, FLOAT32)
    exponent = s.select(subnormal, exponent - float(_SCALE), exponent)
    mantissa = s.bitcast((bits & 0x807FFFFF) | 0x3F000000, FLOAT32)
    low = s.lt(mantissa, math.sqrt(0.5))
    r = s.select(low, (mantissa - 1.0) + mantissa, mantissa - 1.0)
    exponent = s.select(low, exponent - 1.0, exponent)
    squared = r * r
    cubed = squared * r
    first, second, third = (_horner(s, r, part) for part in _LOG)
    total = s.fma(s.fma(first, cubed, second), cubed, third)
    total = s.fma(total, cubed, exponent * _LOG_TWO[0])
    result = (s.fma(squared, -0.5, r) + total) + exponent * _LOG_TWO[1]
    result = s.select(s.eq(x, math.inf), math.inf, result)
    result = s.select(s.eq(x, 0.0), -math.inf, result)
    # this comparison is also false for NaN
    return s.select(s.lt(x, 0.0), math.nan, s.select(s.eq(x, x), result, math.nan))


@primitive
class portable_log(Portable):
    """The natural logarithm."""

    domain = (0.1, 3.0)

    def spelled(self, s: Any, x: Any) -> Any:
        return _log(s, x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: divide(t, x),)


_LOG1P_NUMERATOR = (
    4.5270000862445199635215e-5,
    0.49854102823193375972212,
    6.5787325942061044846969,
    29.911919328553073277375,
    60.949667980987787057556,
    57.112963590585538103336,
    20.039553499201281259648,
)
_LOG1P_DENOMINATOR = (
    1.0,
    15.062909083469192043167,
    83.047565967967209469434,
    221.76239823732856465394,
    309.09872225312059774938,
    216.42788614495947685003,
    60.118660497603843919306,
)
_NEAR = math.sqrt(2) - 1


def _log1p(s: Any, x: Any) -> Any:
    """log(1 + x): a rational function near 0, elsewhere the logarithm."""
    squared = x * x
    ratio = _horner(s, x, _LOG1P_NUMERATOR) / _horner(s, x, _LOG1P_DENOMINATOR)
    near = x + (squared * -0.5 + _product(s, x * squared, ratio))
    return s.select(s.lt(s.abs(x), _NEAR), near, _log(s, x + 1.0))


@primitive
class portable_log1p(Portable):
    """log(1 + x)."""

    domain = (-0.8, 2.0)

    def spelled(self, s: Any, x: Any) -> Any:
        return _log1p(s, x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: divide(t, add(x, 1)),)


# ------------------------------------------------------------- the inverse error function
CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


@primitive
class portable_erf_inv(Portable):
    """The inverse of the error function, by Giles's approximation."""

    domain = (-0.8, 0.8)

    def spelled(self, s: Any, x: Any) -> Any:
        w = -_log1p(s, _product(s, x, -x))
        central = s.lt(w, 5.0)
        shifted = s.select(central, w - 2.5, s.sqrt(w) - 3.0)
        pairs = list(zip(CENTRE, TAIL, strict=True))
        value = s.select(central, *(s.constant_like(x, c) for c in pairs[0]))
        for centre, tail in pairs[1:]:
            chosen = s.select(central, *(s.constant_like(x, c) for c in (centre, tail)))
            value = s.fma(value, shifted, chosen)
        return s.select(s.eq(s.abs(x), 1.0), x * math.inf, value * x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        half_root_pi = math.sqrt(math.pi) / 2
        return (lambda t: multiply(t, multiply(exp(square(out)), half_root_pi)),)
