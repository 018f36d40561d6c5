"""Arithmetic: sums, products, quotients, powers, extrema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import DtypeError
from rlx.ir.types import TensorType, is_complex, is_integer
from rlx.ops.comparison import bitwise_and, equal, greater_equal, less
from rlx.ops.conversion import (
    bitcast,
    complex,
    conj,
    convert,
    float_dtype_of,
    imag,
    real,
    select,
)
from rlx.ops.families import Elementwise, scalar_like
from rlx.ops.rounding import ceil, floor, is_finite, nextafter, round, sign, trunc
from rlx.trace.primitive import Linear, primitive, registry, type_of

__all__ = [
    "absolute",
    "add",
    "bitcast",
    "ceil",
    "clamp",
    "complex",
    "conj",
    "convert",
    "copysign",
    "divide",
    "floor",
    "fma",
    "imag",
    "integer_power",
    "is_finite",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "power",
    "real",
    "remainder",
    "round",
    "select",
    "sign",
    "square",
    "subtract",
    "trunc",
]


# ------------------------------------------------------------- sums
@primitive
class add(Elementwise):
    """x + y."""

    linear_groups = ((0, 1),)
    kinds = "iufc"
    compute = staticmethod(np.add)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.add(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (1, 1)

    def linear_transpose(self, ct: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (ct, ct)


@primitive
class subtract(Elementwise):
    """x - y."""

    linear_groups = ((0, 1),)
    operation = "sub"
    kinds = "iufc"
    compute = staticmethod(np.subtract)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.sub(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (1, -1)

    def linear_transpose(self, ct: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (ct, negative(ct) if isinstance(y, Linear) else None)


@primitive
class negative(Elementwise):
    """-x; unsigned integers wrap."""

    linear_groups = ((0,),)
    operation = "neg"
    kinds = "iufc"
    compute = staticmethod(np.negative)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.neg(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (-1,)

    def linear_transpose(self, ct: Any, x: Any) -> tuple[Any, ...]:
        return (negative(ct),)


# ------------------------------------------------------------- products
@primitive
class multiply(Elementwise):
    """x * y."""

    linear_groups = ((0,), (1,))
    operation = "mul"
    kinds = "iufc"
    compute = staticmethod(np.multiply)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.mul(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (y, x)

    def linear_transpose(self, ct: Any, x: Any, y: Any) -> tuple[Any, ...]:
        if isinstance(x, Linear):
            return (multiply(ct, y), None)
        return (None, multiply(ct, x))


@primitive
class square(Elementwise):
    """x * x."""

    kinds = "iufc"

    def compute(self, x: np.ndarray) -> Any:
        if x.dtype.kind != "c":
            return np.square(x)
        out = np.empty_like(x)  # a product for the real part: see complex_scalars
        a, b = x.real, x.imag
        equal = (np.abs(a) == np.abs(b)) & np.isfinite(a)
        out.real, out.imag = np.where(equal, 0, (a - b) * (a + b)), a * b * 2
        return out

    def scalar(self, s: Any, x: Any) -> Any:
        return s.square(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(x, 2)),)


@primitive
class fma(Elementwise):
    """x * y + z, rounded once."""

    kinds = "f"

    def compute(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> Any:
        if x.dtype == np.float32:  # the product is exact in float64
            return _rounded_once(*(a.astype(np.float64) for a in (x, y, z)))
        return _split_fma(x, y, z)

    def scalar(self, s: Any, x: Any, y: Any, z: Any) -> Any:
        return s.fma(x, y, z)

    def partials(self, out: Any, x: Any, y: Any, z: Any) -> tuple[Any, ...]:
        return (y, x, 1)


def _two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """x + y rounded, and the error."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _to_odd(total: Any, error: Any) -> Any:
    """A rounded sum whose last bit records that it was inexact, so that it can be rounded again."""
    odd = (np.asarray(total).view(np.int64) & 1) == 1
    inexact = np.isfinite(total) & (error != 0) & ~odd
    return np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def _rounded_once(x: Any, y: Any, z: Any) -> Any:
    return _to_odd(*_two_sum(x * y, z)).astype(np.float32)


def _split_fma(x: Any, y: Any, z: Any) -> Any:
    """float64: the product's error is found by splitting the factors in halves."""
    product = x * y
    halves = [(h, a - h) for a in (x, y) for h in [(a * 134217729.0) - (a * 134217729.0 - a)]]
    (x_high, x_low), (y_high, y_low) = halves
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    total, rest = _two_sum(product, z)
    # the two errors are added to odd, so that the last sum rounds as if there had been one
    fused = total + _to_odd(*_two_sum(error, rest))
    return np.where(np.isfinite(fused), fused, product + z)


# ------------------------------------------------------------- quotients
def _divide_integers(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Truncating quotient; all bits set if the divisor is 0."""
    zero = y == 0
    divisor = np.where(zero, y.dtype.type(1), y)
    with np.errstate(all="ignore"):
        quotient = np.floor_divide(x - np.fmod(x, divisor), divisor)
    ones = np.invert(np.zeros((), y.dtype))
    return np.where(zero, ones, quotient)


@primitive
class divide(Elementwise):
    """x / y; truncating for integers (by zero: all bits set)."""

    operation = "div"
    kinds = "iufc"
    domain = ((-2.0, 2.0), (0.5, 3.0))

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        return _divide_integers(x, y) if is_integer(x.dtype) else np.divide(x, y)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.div(x, y)

    def linear_in(self, *types: TensorType, **params: Any) -> tuple[tuple[int, ...], ...]:
        """Division is linear in the numerator, unless it truncates."""
        return () if is_integer(types[0].dtype) else ((0,),)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (
            lambda t: divide(t, y),
            lambda t: multiply(t, negative(divide(out, y))),
        )

    def linear_transpose(self, ct: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (divide(ct, y), None)


@primitive
class remainder(Elementwise):
    """x - y * trunc(x / y), with the sign of x; an integer x itself where y is 0."""

    kinds = "iuf"
    domain = ((-7.6, 7.6), (3.0, 3.4))

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        if not is_integer(x.dtype):
            return np.fmod(x, y)
        zero = y == 0
        return np.where(zero, x, np.fmod(x, np.where(zero, y.dtype.type(1), y)))

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.rem(x, y) if not is_integer(x.dtype) else s.select(s.eq(y, 0), x, s.rem(x, y))

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (1, lambda t: multiply(t, negative(trunc(divide(x, y)))))


# ------------------------------------------------------------- powers
@primitive
class power(Elementwise):
    """x ** y for floating and complex numbers; 0 ** 0 is 1."""

    operation = "pow"
    kinds = "fc"
    domain = ((0.3, 2.0), (-2.0, 2.0))

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        if np.ndim(y) == 0 and x.dtype.kind == "f" and abs(y) == 0.5:
            return _half_power(x, bool(y > 0))
        return np.power(x, y)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.pow(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, multiply(y, power(_base_of_slope(x, y), subtract(y, 1)))),
            lambda t: multiply(t, multiply(registry["log"](_replace_zero(x)), out)),
        )


def _half_power(x: np.ndarray, positive: bool) -> Any:
    """x ** 0.5 or x ** -0.5 by a square root, which NumPy uses for the former even at -inf and -0.

    Compiled programs compute the same (`passes.algebra`).
    """
    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    number = wide.dtype.type
    root = np.sqrt(wide + number(0))
    values, at_infinity = (root, np.inf) if positive else (number(1) / root, 0)
    return np.where(x == -np.inf, number(at_infinity), values).astype(x.dtype)


def _base_of_slope(x: Any, y: Any) -> Any:
    """x, and 1 where both are 0: the slope of x ** 0 is also 0 there, not 0 * 0 ** -1."""
    return select(bitwise_and(equal(x, 0), equal(y, 0)), 1, x)


def _replace_zero(x: Any) -> Any:
    """1 where x is 0, so that a limit of 0 * log(0) becomes 0."""
    return select(equal(x, 0), 1, x)


def _power_by_squaring(multiply_: Callable[[Any, Any], Any], x: Any, exponent: int) -> Any:
    result: Any = None
    while exponent:
        if exponent & 1:
            result = x if result is None else multiply_(result, x)
        exponent >>= 1
        x = multiply_(x, x) if exponent else x
    return result


@primitive
class integer_power(Elementwise):
    """x ** exponent for a Python integer; negative ones for floating and complex numbers only."""

    kinds = "iufc"
    domain = (0.4, 2.0)
    sample_params = tuple({"exponent": n} for n in (3, 0, 1, 2, 7))

    def type(self, *types: TensorType, exponent: int) -> TensorType:
        if exponent < 0 and is_integer(types[0].dtype):
            raise DtypeError(
                f"integer_power cannot raise {types[0].dtype.name} to the negative power {exponent}.",
                "Convert the base to a floating dtype with .astype(...) first.",
            )
        return super().type(*types, exponent=exponent)

    def compute(self, x: np.ndarray, *, exponent: int) -> Any:
        if exponent == 0:
            return np.ones_like(x)
        result = _power_by_squaring(np.multiply, x, abs(exponent))
        return np.divide(x.dtype.type(1), result) if exponent < 0 else result

    def scalar(self, s: Any, x: Any, *, exponent: int) -> Any:
        if exponent == 0:
            return s.constant_like(x, 1)
        result = _power_by_squaring(s.mul, x, abs(exponent))
        return s.div(s.constant_like(x, 1), result) if exponent < 0 else result

    def partials(self, out: Any, x: Any, *, exponent: int) -> tuple[Any, ...]:
        if exponent in (0, 1):
            return (exponent or None,)
        return (lambda t: multiply(t, multiply(integer_power(x, exponent=exponent - 1), exponent)),)


# ------------------------------------------------------------- magnitude and extrema
@primitive
class absolute(Elementwise):
    """|x|, real for complex x; the derivative at 0 is 1 (JAX's convention)."""

    operation = "abs"
    kinds = "iufc"
    compute = staticmethod(np.absolute)

    def result_dtype(self, *dtypes: np.dtype, **params: Any) -> np.dtype:
        """The dtype of the operand, or of its parts."""
        return float_dtype_of(dtypes[0])

    def scalar(self, s: Any, x: Any) -> Any:
        return s.abs(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        if not is_complex(type_of(x).dtype):
            return (lambda t: select(greater_equal(x, 0), t, negative(t)),)
        return (lambda t: real(multiply(t, divide(conj(x), complex(_replace_zero(out), 0)))),)


@primitive
class copysign(Elementwise):
    """|x| with the sign of y."""

    kinds = "f"
    compute = staticmethod(np.copysign)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.copysign(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(select(greater_equal(x, 0), t, negative(t)), copysign(scalar_like(y, 1), y)), None)


class Extremum(Elementwise):
    """maximum or minimum: NaN if either operand is NaN; a tie shares the derivative."""

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, self.share(x, y, out)),
            lambda t: multiply(t, self.share(y, x, out)),
        )

    @staticmethod
    def share(x: Any, other: Any, out: Any) -> Any:
        """1 where x is the extremum, 1/2 where the other operand is as well, else 0."""
        shared = select(equal(other, out), scalar_like(out, 0.5), 1)
        return select(equal(x, out), shared, 0)


@primitive
class maximum(Extremum):
    """The larger one; complex numbers compare by real, then imaginary part."""

    operation = "max"
    compute = staticmethod(np.maximum)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.max(x, y)


@primitive
class minimum(Extremum):
    """The smaller one; complex numbers compare by real, then imaginary part."""

    operation = "min"
    compute = staticmethod(np.minimum)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.min(x, y)


@primitive
class clamp(Elementwise):
    """min(max(x, low), high), operands in the order low, x, high."""

    kinds = "biuf"
    domain = ((-1.5, -0.5), (-2.0, 2.0), (0.5, 1.5))

    def compute(self, low: np.ndarray, x: np.ndarray, high: np.ndarray) -> Any:
        return np.minimum(np.maximum(x, low), high)

    def scalar(self, s: Any, low: Any, x: Any, high: Any) -> Any:
        return s.min(s.max(x, low), high)

    def partials(self, out: Any, low: Any, x: Any, high: Any) -> tuple[Any, ...]:
        return (
            lambda t: select(bitwise_and(less(x, low), less(low, high)), t, 0),
            lambda t: select(bitwise_and(less(low, x), less(x, high)), t, 0),
            lambda t: select(less(high, x), t, 0),
        )
