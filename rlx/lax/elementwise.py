"""Elementwise functions: operands of one dtype, shapes that broadcast."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np

from rlx import tree
from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import is_complex, is_float, is_inexact, is_integer
from rlx.lax.operands import as_array, operands
from rlx.ops import arithmetic, comparison, conversion, rounding, special, transcendental
from rlx.ops.stop_gradient import stop_gradient as stop_gradient_op

__all__ = [
    "RoundingMethod",
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
    "betainc",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clamp",
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
    "integer_pow",
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
    "pow",
    "random_gamma_grad",
    "real",
    "reciprocal",
    "reduce_precision",
    "rem",
    "round",
    "rsqrt",
    "select",
    "select_n",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "stop_gradient",
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


# ------------------------------------------------------------- more than two operands, parameters
def betainc(a: Any, b: Any, x: Any) -> Array:
    """The regularised incomplete beta function of a, b and x."""
    return special.betainc(*operands("betainc", a, b, x))


def clamp(min: Any, x: Any, max: Any) -> Array:
    """x, brought between min and max.

    >>> from rlx import lax
    >>> lax.clamp(0.0, 3.0, 1.0).item()
    1.0
    """
    return arithmetic.clamp(*operands("clamp", min, x, max))


def integer_pow(x: Any, y: int) -> Array:
    """x to a power that is a Python integer.

    >>> from rlx import lax
    >>> lax.integer_pow(3.0, 2).item()
    9.0
    """
    return arithmetic.integer_power(as_array(x), exponent=int(y))


def pow(x: Any, y: Any) -> Array:
    """x to the power y; x is floating or complex, y of the same dtype or an integer.

    >>> from rlx import lax
    >>> lax.pow(2.0, 3.0).item()
    8.0
    """
    if isinstance(y, int) and not isinstance(y, bool):
        return integer_pow(x, y)
    exponent = as_array(y)
    base = as_array(x)
    if is_integer(exponent.dtype) and is_inexact(base.dtype):
        exponent = conversion.convert(exponent, dtype=base.dtype, weak=False)
    return arithmetic.power(*operands("pow", base, exponent))


def reciprocal(x: Any) -> Array:
    """1 / x.

    >>> from rlx import lax
    >>> lax.reciprocal(4.0).item()
    0.25
    """
    return integer_pow(x, -1)


class RoundingMethod(enum.IntEnum):
    """Where round sends halves."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The nearest integer.

    >>> from rlx import lax
    >>> lax.round(2.5).item(), lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN).item()
    (3.0, 2.0)
    """
    away = RoundingMethod(rounding_method) is RoundingMethod.AWAY_FROM_ZERO
    return rounding.round(as_array(x), mode="away" if away else "even")


def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """on_true where the bool pred holds, elsewhere on_false.

    >>> import numpy as np
    >>> from rlx import lax
    >>> np.asarray(lax.select(np.array([True, False]), np.array([1, 2]), np.array([3, 4])))
    array([1, 4])
    """
    return select_n(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Array:
    """cases[which], elementwise: `which` is a bool (of two cases) or an int32 array.

    >>> import numpy as np
    >>> from rlx import lax
    >>> which = np.array([2, 0, 1], np.int32)
    >>> np.asarray(lax.select_n(which, *np.arange(9).reshape(3, 3)))
    array([6, 1, 5])
    """
    if not cases:
        raise ShapeError("lax.select_n got no cases.", "Pass at least one array to select from.")
    which = as_array(which)
    chosen = operands("select_n", *cases)
    shape = as_array(chosen[0]).shape
    if any(as_array(c).shape != shape for c in chosen) or which.shape not in ((), shape):
        shapes = ", ".join(str(as_array(c).shape) for c in chosen)
        raise ShapeError(
            f"lax.select_n got `which` of shape {which.shape} and cases of shapes {shapes}.",
            "Cases have one shape, and `which` has that shape or is a scalar; rlx.numpy.where broadcasts.",
        )
    if len(chosen) == 1:
        return as_array(chosen[0])
    if which.dtype == np.dtype(bool):
        if len(chosen) > 2:
            raise DtypeError(
                f"lax.select_n got a bool `which` for {len(chosen)} cases.", "Use an int32 `which`."
            )
        return conversion.select(which, chosen[1], chosen[0])
    if which.dtype != np.dtype("i4"):
        raise DtypeError(
            f"lax.select_n got `which` of dtype {which.dtype.name}.", "Use a bool or int32 array."
        )
    result = chosen[-1]
    for number in reversed(range(len(chosen) - 1)):
        result = conversion.select(comparison.less_equal(which, number), chosen[number], result)
    return result


def stop_gradient(x: Any) -> Any:
    """x (an array or a tree of arrays), which derivatives take for a constant.

    >>> import rlx
    >>> rlx.grad(lambda x: x * rlx.lax.stop_gradient(x))(3.0).item()
    3.0
    """

    def stop(leaf: Any) -> Any:
        value = as_array(leaf)
        return stop_gradient_op(value) if is_inexact(value.dtype) else leaf

    return tree.map(stop, x)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Array:
    """The floats rounded to a format with fewer bits, in their own dtype.

    >>> from rlx import lax
    >>> lax.reduce_precision(1.2345678, 8, 7).item()
    1.234375
    """
    x = as_array(operand)
    if not is_float(x.dtype) or is_complex(x.dtype):
        raise DtypeError(
            f"lax.reduce_precision got {x.dtype.name}.", "It takes floating arrays: convert first."
        )
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ShapeError(
            f"lax.reduce_precision got exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}.",
            "A format has at least one exponent bit and no negative number of mantissa bits.",
        )
    return _round_to_format(x, exponent_bits, mantissa_bits)


def _round_to_format(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    info = ml_dtypes.finfo(x.dtype)
    word = np.dtype(f"u{x.dtype.itemsize}")
    bits = conversion.bitcast(x, dtype=word)
    rounded = bits
    spare = int(info.nmant) - mantissa_bits
    if spare > 0:
        half = (1 << (spare - 1)) - 1
        last = bitwise_and(shift_right_logical(bits, _word(spare, word)), _word(1, word))
        mask = _word((1 << 8 * word.itemsize) - (1 << spare), word)
        rounded = bitwise_and(add(bits, add(last, _word(half, word))), mask)
    result = conversion.bitcast(rounded, dtype=x.dtype)
    bias = (1 << (exponent_bits - 1)) - 1
    if bias < info.maxexp - 1:
        largest = (2.0 - 2.0**-mantissa_bits) * 2.0**bias
        too_large = comparison.greater(abs(result), largest)
        result = conversion.select(too_large, arithmetic.copysign(float("inf"), x), result)
        too_small = comparison.less(abs(result), 2.0 ** (1 - bias))
        result = conversion.select(too_small, arithmetic.copysign(0.0, x), result)
    return conversion.select(ne(x, x), x, result)


def _word(value: int, dtype: np.dtype) -> Array:
    return as_array(np.asarray(value, dtype))
