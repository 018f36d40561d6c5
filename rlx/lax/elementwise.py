"""Elementwise functions: operands of one dtype, shapes that broadcast."""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.lax.operands import as_array, operands
from rlx.ops import arithmetic, comparison, conversion, rounding, special, transcendental

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bessel_i0e",
    "bessel_i1e",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clz",
    "complex",
    "conj",
    "cos",
    "cosh",
    "digamma",
    "div",
    "eq",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "ge",
    "gt",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "imag",
    "is_finite",
    "le",
    "lgamma",
    "log",
    "log1p",
    "logistic",
    "lt",
    "max",
    "min",
    "mul",
    "ne",
    "neg",
    "nextafter",
    "polygamma",
    "population_count",
    "random_gamma_grad",
    "real",
    "rem",
    "rsqrt",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
    "zeta",
]


def abs(x: Any) -> Array:
    """The absolute value; of complex numbers the magnitude.

    >>> from rlx import lax
    >>> lax.abs(-2.0).item()
    2.0
    """
    return arithmetic.absolute(x if isinstance(x, Array) else as_array(x))


def acos(x: Any) -> Array:
    """The arc cosine."""
    return transcendental.acos(x if isinstance(x, Array) else as_array(x))


def acosh(x: Any) -> Array:
    """The inverse hyperbolic cosine."""
    return transcendental.acosh(x if isinstance(x, Array) else as_array(x))


def asin(x: Any) -> Array:
    """The arc sine."""
    return transcendental.asin(x if isinstance(x, Array) else as_array(x))


def asinh(x: Any) -> Array:
    """The inverse hyperbolic sine."""
    return transcendental.asinh(x if isinstance(x, Array) else as_array(x))


def atan(x: Any) -> Array:
    """The arc tangent."""
    return transcendental.atan(x if isinstance(x, Array) else as_array(x))


def atanh(x: Any) -> Array:
    """The inverse hyperbolic tangent."""
    return transcendental.atanh(x if isinstance(x, Array) else as_array(x))


def bessel_i0e(x: Any) -> Array:
    """The exponentially scaled modified Bessel function of order 0."""
    return special.bessel_i0e(x if isinstance(x, Array) else as_array(x))


def bessel_i1e(x: Any) -> Array:
    """The exponentially scaled modified Bessel function of order 1."""
    return special.bessel_i1e(x if isinstance(x, Array) else as_array(x))


def bitwise_not(x: Any) -> Array:
    """Every bit flipped; logical not of bools.

    >>> from rlx import lax
    >>> lax.bitwise_not(5).item()
    -6
    """
    return comparison.bitwise_not(x if isinstance(x, Array) else as_array(x))


def cbrt(x: Any) -> Array:
    """The cube root."""
    return transcendental.cbrt(x if isinstance(x, Array) else as_array(x))


def ceil(x: Any) -> Array:
    """The smallest integer that is not less."""
    return rounding.ceil(x if isinstance(x, Array) else as_array(x))


def clz(x: Any) -> Array:
    """The number of leading zero bits of an integer.

    >>> from rlx import lax
    >>> lax.clz(1).item()
    31
    """
    return comparison.count_leading_zeros(x if isinstance(x, Array) else as_array(x))


def conj(x: Any) -> Array:
    """The complex conjugate."""
    return conversion.conj(x if isinstance(x, Array) else as_array(x))


def cos(x: Any) -> Array:
    """The cosine."""
    return transcendental.cos(x if isinstance(x, Array) else as_array(x))


def cosh(x: Any) -> Array:
    """The hyperbolic cosine."""
    return transcendental.cosh(x if isinstance(x, Array) else as_array(x))


def digamma(x: Any) -> Array:
    """The logarithmic derivative of the gamma function."""
    return special.digamma(x if isinstance(x, Array) else as_array(x))


def erf(x: Any) -> Array:
    """The error function."""
    return special.erf(x if isinstance(x, Array) else as_array(x))


def erf_inv(x: Any) -> Array:
    """The inverse of the error function."""
    return special.erf_inv(x if isinstance(x, Array) else as_array(x))


def erfc(x: Any) -> Array:
    """1 - erf(x), accurate where erf is near 1."""
    return special.erfc(x if isinstance(x, Array) else as_array(x))


def exp(x: Any) -> Array:
    """e to the power x.

    >>> from rlx import lax
    >>> lax.exp(0.0).item()
    1.0
    """
    return transcendental.exp(x if isinstance(x, Array) else as_array(x))


def exp2(x: Any) -> Array:
    """2 to the power x."""
    return transcendental.exp2(x if isinstance(x, Array) else as_array(x))


def expm1(x: Any) -> Array:
    """exp(x) - 1, accurate near 0."""
    return transcendental.expm1(x if isinstance(x, Array) else as_array(x))


def floor(x: Any) -> Array:
    """The largest integer that is not greater."""
    return rounding.floor(x if isinstance(x, Array) else as_array(x))


def imag(x: Any) -> Array:
    """The imaginary part."""
    return conversion.imag(x if isinstance(x, Array) else as_array(x))


def is_finite(x: Any) -> Array:
    """Whether a float is neither infinite nor NaN.

    >>> from rlx import lax
    >>> lax.is_finite(float('inf')).item()
    False
    """
    return rounding.is_finite(x if isinstance(x, Array) else as_array(x))


def lgamma(x: Any) -> Array:
    """The logarithm of the gamma function's magnitude."""
    return special.lgamma(x if isinstance(x, Array) else as_array(x))


def log(x: Any) -> Array:
    """The natural logarithm."""
    return transcendental.log(x if isinstance(x, Array) else as_array(x))


def log1p(x: Any) -> Array:
    """log(1 + x), accurate near 0."""
    return transcendental.log1p(x if isinstance(x, Array) else as_array(x))


def logistic(x: Any) -> Array:
    """1 / (1 + exp(-x))."""
    return transcendental.logistic(x if isinstance(x, Array) else as_array(x))


def neg(x: Any) -> Array:
    """-x."""
    return arithmetic.negative(x if isinstance(x, Array) else as_array(x))


def population_count(x: Any) -> Array:
    """The number of bits that are set.

    >>> from rlx import lax
    >>> lax.population_count(6).item()
    2
    """
    return comparison.population_count(x if isinstance(x, Array) else as_array(x))


def real(x: Any) -> Array:
    """The real part."""
    return conversion.real(x if isinstance(x, Array) else as_array(x))


def rsqrt(x: Any) -> Array:
    """1 / sqrt(x)."""
    return transcendental.rsqrt(x if isinstance(x, Array) else as_array(x))


def sign(x: Any) -> Array:
    """-1, 0 or 1; of complex numbers x / abs(x).

    >>> from rlx import lax
    >>> lax.sign(-3).item()
    -1
    """
    return rounding.sign(x if isinstance(x, Array) else as_array(x))


def sin(x: Any) -> Array:
    """The sine."""
    return transcendental.sin(x if isinstance(x, Array) else as_array(x))


def sinh(x: Any) -> Array:
    """The hyperbolic sine."""
    return transcendental.sinh(x if isinstance(x, Array) else as_array(x))


def sqrt(x: Any) -> Array:
    """The square root."""
    return transcendental.sqrt(x if isinstance(x, Array) else as_array(x))


def square(x: Any) -> Array:
    """x * x.

    >>> from rlx import lax
    >>> lax.square(3).item()
    9
    """
    return arithmetic.square(x if isinstance(x, Array) else as_array(x))


def tan(x: Any) -> Array:
    """The tangent."""
    return transcendental.tan(x if isinstance(x, Array) else as_array(x))


def tanh(x: Any) -> Array:
    """The hyperbolic tangent."""
    return transcendental.tanh(x if isinstance(x, Array) else as_array(x))


def add(x: Any, y: Any) -> Array:
    """x + y.

    >>> from rlx import lax
    >>> lax.add(1, 2).item()
    3
    """
    return arithmetic.add(*operands("add", x, y))


def atan2(x: Any, y: Any) -> Array:
    """The angle of the point (y, x): atan(x / y) in the right quadrant."""
    return transcendental.atan2(*operands("atan2", x, y))


def bitwise_and(x: Any, y: Any) -> Array:
    """The bits set in both; logical and of bools.

    >>> from rlx import lax
    >>> lax.bitwise_and(6, 3).item()
    2
    """
    return comparison.bitwise_and(*operands("bitwise_and", x, y))


def bitwise_or(x: Any, y: Any) -> Array:
    """The bits set in either; logical or of bools."""
    return comparison.bitwise_or(*operands("bitwise_or", x, y))


def bitwise_xor(x: Any, y: Any) -> Array:
    """The bits set in one of the two; logical exclusive or of bools."""
    return comparison.bitwise_xor(*operands("bitwise_xor", x, y))


def complex(x: Any, y: Any) -> Array:
    """x + iy of two real arrays."""
    return conversion.complex(*operands("complex", x, y))


def div(x: Any, y: Any) -> Array:
    """x / y; of integers truncated towards zero.

    >>> from rlx import lax
    >>> lax.div(-7, 2).item()
    -3
    """
    return arithmetic.divide(*operands("div", x, y))


def eq(x: Any, y: Any) -> Array:
    """Whether x equals y.

    >>> from rlx import lax
    >>> lax.eq(2, 2).item()
    True
    """
    return comparison.equal(*operands("eq", x, y))


def ge(x: Any, y: Any) -> Array:
    """Whether x >= y."""
    return comparison.greater_equal(*operands("ge", x, y))


def gt(x: Any, y: Any) -> Array:
    """Whether x > y."""
    return comparison.greater(*operands("gt", x, y))


def igamma(a: Any, x: Any) -> Array:
    """The regularised lower incomplete gamma function of a and x."""
    return special.igamma(*operands("igamma", a, x))


def igamma_grad_a(a: Any, x: Any) -> Array:
    """The derivative of igamma with respect to a."""
    return special.igamma_grad_a(*operands("igamma_grad_a", a, x))


def igammac(a: Any, x: Any) -> Array:
    """The regularised upper incomplete gamma function of a and x."""
    return special.igammac(*operands("igammac", a, x))


def le(x: Any, y: Any) -> Array:
    """Whether x <= y."""
    return comparison.less_equal(*operands("le", x, y))


def lt(x: Any, y: Any) -> Array:
    """Whether x < y."""
    return comparison.less(*operands("lt", x, y))


def max(x: Any, y: Any) -> Array:
    """The larger of both; NaN where either is NaN.

    >>> from rlx import lax
    >>> lax.max(2, 3).item()
    3
    """
    return arithmetic.maximum(*operands("max", x, y))


def min(x: Any, y: Any) -> Array:
    """The smaller of both; NaN where either is NaN."""
    return arithmetic.minimum(*operands("min", x, y))


def mul(x: Any, y: Any) -> Array:
    """x * y."""
    return arithmetic.multiply(*operands("mul", x, y))


def ne(x: Any, y: Any) -> Array:
    """Whether x differs from y."""
    return comparison.not_equal(*operands("ne", x, y))


def nextafter(x: Any, y: Any) -> Array:
    """The next float after x in the direction of y."""
    return rounding.nextafter(*operands("nextafter", x, y))


def polygamma(m: Any, x: Any) -> Array:
    """The derivative of order m of digamma."""
    return special.polygamma(*operands("polygamma", m, x))


def random_gamma_grad(a: Any, x: Any) -> Array:
    """The derivative of a gamma sample with respect to its parameter a."""
    return special.random_gamma_grad(*operands("random_gamma_grad", a, x))


def rem(x: Any, y: Any) -> Array:
    """x - y * trunc(x / y): the remainder with the sign of x.

    >>> from rlx import lax
    >>> lax.rem(-7, 3).item()
    -1
    """
    return arithmetic.remainder(*operands("rem", x, y))


def shift_left(x: Any, y: Any) -> Array:
    """x with its bits moved y places left."""
    return comparison.shift_left(*operands("shift_left", x, y))


def shift_right_arithmetic(x: Any, y: Any) -> Array:
    """x with its bits moved y places right, the sign kept."""
    return comparison.shift_right_arithmetic(*operands("shift_right_arithmetic", x, y))


def shift_right_logical(x: Any, y: Any) -> Array:
    """x with its bits moved y places right, zeros moved in."""
    return comparison.shift_right_logical(*operands("shift_right_logical", x, y))


def sub(x: Any, y: Any) -> Array:
    """x - y."""
    return arithmetic.subtract(*operands("sub", x, y))


def zeta(x: Any, q: Any) -> Array:
    """The Hurwitz zeta function of x and q."""
    return special.zeta(*operands("zeta", x, q))
