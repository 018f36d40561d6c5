"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.types import is_complex
from rlx.ops.arithmetic import (
    add,
    divide,
    integer_power,
    multiply,
    negative,
    select,
    square,
    subtract,
)
from rlx.ops.comparison import bitwise_and, bitwise_not, equal
from rlx.ops.families import Elementwise
from rlx.ops.rounding import is_finite
from rlx.trace.primitive import primitive

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "logaddexp",
    "logistic",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]

LOG_OF_TWO = float(np.log(2.0))


# ------------------------------------------------------------- exponentials and logarithms
def _complex_log1p(x: np.ndarray) -> np.ndarray:
    """log(1 + x) with the real part exact near 0, where NumPy's function loses the digits that 1 + x loses."""
    wide = x.astype(np.complex128, copy=False)
    a, b = wide.real, wide.imag
    near = np.log1p(a * (a + 2) + b * b) * 0.5
    out = np.empty_like(wide)
    out.real = np.where(np.maximum(np.abs(a), np.abs(b)) < 1, near, np.log(np.hypot(a + 1, b)))
    out.imag = np.arctan2(b, a + 1)
    return out.astype(x.dtype, copy=False)


@primitive
class exp(Elementwise):
    """e ** x."""

    kinds = "fc"
    compute = staticmethod(np.exp)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.exp(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (out,)


@primitive
class exp2(Elementwise):
    """2 ** x."""

    kinds = "fc"
    compute = staticmethod(np.exp2)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.exp2(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(out, LOG_OF_TWO)),)


@primitive
class expm1(Elementwise):
    """e ** x - 1, exact near 0."""

    kinds = "fc"

    def compute(self, x: np.ndarray) -> Any:
        out = np.expm1(x)
        return _expm1_at_edges(x, out) if np.iscomplexobj(out) else out

    def scalar(self, s: Any, x: Any) -> Any:
        return s.expm1(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, exp(x)),)  # out + 1 loses all digits if out is near -1


def _expm1_at_edges(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """NumPy's values, but real arguments give real results, and infinities are as in e ** x, as the array API needs."""
    edge = (x.imag == 0) | (np.isinf(x.real) & ~np.isfinite(x.imag))
    if not np.any(edge):
        return values
    power = np.exp(x)
    return np.where(edge, _complex_of(np.expm1(x.real), power.imag), values)


def _complex_of(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    out = np.empty(np.shape(real), np.result_type(real, 1j))
    out.real, out.imag = real, imaginary
    return out


@primitive
class log(Elementwise):
    """The natural logarithm."""

    kinds = "fc"
    domain = (0.2, 3.0)
    compute = staticmethod(np.log)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.log(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: divide(t, x),)


@primitive
class log1p(Elementwise):
    """log(1 + x), exact near 0."""

    kinds = "fc"
    domain = (-0.6, 3.0)

    def compute(self, x: np.ndarray) -> Any:
        return _complex_log1p(x) if x.dtype.kind == "c" else np.log1p(x)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.log1p(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: divide(t, add(x, 1)),)


# ------------------------------------------------------------- roots
@primitive
class sqrt(Elementwise):
    """The square root."""

    kinds = "fc"
    domain = (0.2, 3.0)
    compute = staticmethod(np.sqrt)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.sqrt(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, divide(0.5, out)),)


@primitive
class rsqrt(Elementwise):
    """1 / sqrt(x)."""

    kinds = "fc"
    domain = (0.2, 3.0)

    def compute(self, x: np.ndarray) -> Any:
        return np.divide(x.dtype.type(1), np.sqrt(x))

    def scalar(self, s: Any, x: Any) -> Any:
        return s.rsqrt(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(divide(out, x), -0.5)),)


@primitive
class cbrt(Elementwise):
    """The cube root."""

    kinds = "f"
    domain = (0.2, 3.0)
    compute = staticmethod(np.cbrt)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.cbrt(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(integer_power(out, exponent=-2), 1 / 3)),)


# ------------------------------------------------------------- trigonometric functions
@primitive
class sin(Elementwise):
    """The sine."""

    kinds = "fc"
    compute = staticmethod(np.sin)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.sin(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, cos(x)),)


@primitive
class cos(Elementwise):
    """The cosine."""

    kinds = "fc"
    compute = staticmethod(np.cos)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.cos(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, negative(sin(x))),)


@primitive
class tan(Elementwise):
    """The tangent."""

    kinds = "fc"
    domain = (-1.2, 1.2)
    compute = staticmethod(np.tan)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.tan(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, add(square(out), 1)),)


@primitive
class asin(Elementwise):
    """The inverse sine."""

    kinds = "fc"
    domain = (-0.8, 0.8)
    compute = staticmethod(np.arcsin)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.asin(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, rsqrt(subtract(1, square(x)))),)


@primitive
class acos(Elementwise):
    """The inverse cosine."""

    kinds = "fc"
    domain = (-0.8, 0.8)
    compute = staticmethod(np.arccos)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.acos(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, negative(rsqrt(subtract(1, square(x))))),)


@primitive
class atan(Elementwise):
    """The inverse tangent."""

    kinds = "fc"
    domain = (-0.8, 0.8)
    compute = staticmethod(np.arctan)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.atan(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: divide(t, add(square(x), 1)),)


@primitive
class atan2(Elementwise):
    """The angle of the point (y, x): operands in the order of atan2(y, x)."""

    kinds = "f"
    domain = ((-2.0, 2.0), (0.3, 2.0))
    compute = staticmethod(np.arctan2)

    def scalar(self, s: Any, y: Any, x: Any) -> Any:
        return s.atan2(y, x)

    def partials(self, out: Any, y: Any, x: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, divide(x, _squared_norm(x, y))),
            lambda t: multiply(t, negative(divide(y, _squared_norm(x, y)))),
        )


def _squared_norm(x: Any, y: Any) -> Any:
    return add(square(x), square(y))


# ------------------------------------------------------------- hyperbolic functions
@primitive
class sinh(Elementwise):
    """The hyperbolic sine."""

    kinds = "fc"
    compute = staticmethod(np.sinh)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.sinh(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, cosh(x)),)


@primitive
class cosh(Elementwise):
    """The hyperbolic cosine."""

    kinds = "fc"
    compute = staticmethod(np.cosh)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.cosh(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, sinh(x)),)


@primitive
class tanh(Elementwise):
    """The hyperbolic tangent."""

    kinds = "fc"
    domain = (-1.2, 1.2)
    compute = staticmethod(np.tanh)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.tanh(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(add(out, 1), subtract(1, out))),)


@primitive
class asinh(Elementwise):
    """The inverse hyperbolic sine."""

    kinds = "fc"
    domain = (-0.8, 0.8)
    compute = staticmethod(np.arcsinh)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.asinh(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, rsqrt(add(square(x), 1))),)


@primitive
class acosh(Elementwise):
    """The inverse hyperbolic cosine."""

    kinds = "fc"
    domain = (1.2, 3.0)
    compute = staticmethod(np.arccosh)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.acosh(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, rsqrt(subtract(square(x), 1))),)


@primitive
class atanh(Elementwise):
    """The inverse hyperbolic tangent."""

    kinds = "fc"
    domain = (-0.8, 0.8)
    compute = staticmethod(np.arctanh)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.atanh(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: divide(t, multiply(add(x, 1), subtract(1, x))),)


@primitive
class logistic(Elementwise):
    """1 / (1 + e ** -x)."""

    kinds = "fc"

    def compute(self, x: np.ndarray) -> Any:
        one = x.dtype.type(1)
        if is_complex(x.dtype):
            return one / (one + np.exp(-x))
        small = np.exp(-np.abs(x))  # never overflows
        return np.where(x >= 0, one, small) / (one + small)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.logistic(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(out, subtract(1, out))),)


@primitive
class logaddexp(Elementwise):
    """log(e ** x + e ** y) of real numbers; the derivatives at two equal infinities are 1/2 each."""

    kinds = "f"
    compute = staticmethod(np.logaddexp)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        same = s.and_(s.eq(x, y), s.not_(s.is_finite(y)))  # the difference of equal infinities is NaN
        return s.max(x, y) + s.log1p(s.exp(-abs(s.select(same, 0, x - y))))

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        same = bitwise_and(equal(x, y), bitwise_not(is_finite(y)))
        difference = select(same, 0, subtract(x, y))  # as in `scalar`, so that kernels share its exponential
        return (
            lambda t: multiply(t, logistic(difference)),
            lambda t: multiply(t, logistic(negative(difference))),
        )
