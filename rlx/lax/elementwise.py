"""Elementwise functions: operands of one dtype, shapes that broadcast. One line of a table each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.array import Array
from rlx.lax.operands import as_array, operands
from rlx.ops import arithmetic, comparison, conversion, rounding, special, transcendental
from rlx.trace.flat import shared_array

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
    "ne",
    "neg",
    "population_count",
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
]

_ARGUMENTS = {1: "x: an array or number.", 2: "x, y: arrays or numbers of one dtype, whose shapes broadcast."}
_ACCURACY = "accuracy: accepted for JAX compatibility; results are always as exact as the dtype allows."


def _document(
    function: Any, name: str, summary: str, example: str, result: str, arguments: tuple[str, ...]
) -> Callable[..., Array]:
    """Give a function its name, and a docstring with an example that runs as a doctest."""
    function.__name__ = function.__qualname__ = name
    lines = "".join(f"\n      {line}" for line in arguments)
    function.__doc__ = (
        f"{summary}\n\n    Args:{lines}\n"
        "    Returns: an array of the broadcast shape.\n"
        "    Raises: DtypeError for a dtype that the function does not take, or operands of several.\n\n"
        f"    >>> from rlx import lax\n    >>> {example}\n    {result}\n    "
    )
    return function


_VIEWS = (conversion.real, conversion.imag)  # of their operands' memory


def _unary(name: str, primitive: Any, summary: str, example: str, result: str) -> Callable[..., Array]:
    converted = as_array if primitive in _VIEWS else shared_array

    def function(x: Any) -> Array:
        return primitive(converted(x))

    return _document(function, name, summary, example, result, (_ARGUMENTS[1],))


def _unary_with_accuracy(name: str, primitive: Any, summary: str, example: str, result: str) -> Callable[..., Array]:
    def function(x: Any, *, accuracy: Any = None) -> Array:
        return primitive(shared_array(x))

    return _document(function, name, summary, example, result, (_ARGUMENTS[1], _ACCURACY))


def _binary(name: str, primitive: Any, summary: str, example: str, result: str) -> Callable[..., Array]:
    def function(x: Any, y: Any) -> Array:
        return primitive(*operands(name, x, y))

    return _document(function, name, summary, example, result, (_ARGUMENTS[2],))


abs = _unary(
    "abs", arithmetic.absolute, "The absolute value; of complex numbers the magnitude.", "lax.abs(-2.0).item()", "2.0"
)
acos = _unary("acos", transcendental.acos, "The arc cosine.", "round(lax.acos(0.5).item(), 4)", "1.0472")
acosh = _unary(
    "acosh", transcendental.acosh, "The inverse hyperbolic cosine.", "round(lax.acosh(1.5).item(), 4)", "0.9624"
)
asin = _unary("asin", transcendental.asin, "The arc sine.", "round(lax.asin(0.5).item(), 4)", "0.5236")
asinh = _unary(
    "asinh", transcendental.asinh, "The inverse hyperbolic sine.", "round(lax.asinh(0.5).item(), 4)", "0.4812"
)
atan = _unary("atan", transcendental.atan, "The arc tangent.", "round(lax.atan(0.5).item(), 4)", "0.4636")
atanh = _unary(
    "atanh", transcendental.atanh, "The inverse hyperbolic tangent.", "round(lax.atanh(0.5).item(), 4)", "0.5493"
)
bessel_i0e = _unary(
    "bessel_i0e",
    special.bessel_i0e,
    "The exponentially scaled modified Bessel function of order 0.",
    "round(lax.bessel_i0e(0.5).item(), 4)",
    "0.645",
)
bessel_i1e = _unary(
    "bessel_i1e",
    special.bessel_i1e,
    "The exponentially scaled modified Bessel function of order 1.",
    "round(lax.bessel_i1e(0.5).item(), 4)",
    "0.1564",
)
bitwise_not = _unary(
    "bitwise_not", comparison.bitwise_not, "Every bit flipped; logical not of bools.", "lax.bitwise_not(5).item()", "-6"
)
cbrt = _unary_with_accuracy("cbrt", transcendental.cbrt, "The cube root.", "round(lax.cbrt(27.0).item(), 4)", "3.0")
ceil = _unary("ceil", rounding.ceil, "The smallest integer that is not less.", "lax.ceil(0.3).item()", "1.0")
clz = _unary(
    "clz", comparison.count_leading_zeros, "The number of leading zero bits of an integer.", "lax.clz(1).item()", "31"
)
cos = _unary_with_accuracy("cos", transcendental.cos, "The cosine.", "round(lax.cos(1.0).item(), 4)", "0.5403")
cosh = _unary("cosh", transcendental.cosh, "The hyperbolic cosine.", "round(lax.cosh(0.5).item(), 4)", "1.1276")
digamma = _unary(
    "digamma",
    special.digamma,
    "The logarithmic derivative of the gamma function.",
    "round(lax.digamma(2.0).item(), 4)",
    "0.4228",
)
erf = _unary("erf", special.erf, "The error function.", "round(lax.erf(0.5).item(), 4)", "0.5205")
erf_inv = _unary(
    "erf_inv", special.erf_inv, "The inverse of the error function.", "round(lax.erf_inv(0.5).item(), 4)", "0.4769"
)
erfc = _unary(
    "erfc", special.erfc, "1 - erf(x), accurate where erf is near 1.", "round(lax.erfc(0.5).item(), 4)", "0.4795"
)
exp = _unary_with_accuracy("exp", transcendental.exp, "e to the power x.", "round(lax.exp(0.5).item(), 4)", "1.6487")
exp2 = _unary_with_accuracy("exp2", transcendental.exp2, "2 to the power x.", "lax.exp2(3.0).item()", "8.0")
expm1 = _unary_with_accuracy(
    "expm1", transcendental.expm1, "exp(x) - 1, accurate near 0.", "round(lax.expm1(0.5).item(), 4)", "0.6487"
)
floor = _unary("floor", rounding.floor, "The largest integer that is not greater.", "lax.floor(0.7).item()", "0.0")
imag = _unary("imag", conversion.imag, "The imaginary part.", "lax.imag(1 + 2j).item()", "2.0")
is_finite = _unary(
    "is_finite",
    rounding.is_finite,
    "Whether a float is neither infinite nor NaN.",
    "lax.is_finite(float('inf')).item()",
    "False",
)
lgamma = _unary(
    "lgamma",
    special.lgamma,
    "The logarithm of the gamma function's magnitude.",
    "round(lax.lgamma(4.0).item(), 4)",
    "1.7918",
)
log = _unary_with_accuracy(
    "log", transcendental.log, "The natural logarithm.", "round(lax.log(2.0).item(), 4)", "0.6931"
)
log1p = _unary_with_accuracy(
    "log1p", transcendental.log1p, "log(1 + x), accurate near 0.", "round(lax.log1p(1e-3).item(), 4)", "0.001"
)
logistic = _unary_with_accuracy(
    "logistic", transcendental.logistic, "1 / (1 + exp(-x)).", "round(lax.logistic(0.5).item(), 4)", "0.6225"
)
neg = _unary("neg", arithmetic.negative, "-x.", "lax.neg(2).item()", "-2")
population_count = _unary(
    "population_count",
    comparison.population_count,
    "The number of bits that are set.",
    "lax.population_count(6).item()",
    "2",
)
real = _unary("real", conversion.real, "The real part.", "lax.real(1 + 2j).item()", "1.0")
rsqrt = _unary_with_accuracy("rsqrt", transcendental.rsqrt, "1 / sqrt(x).", "round(lax.rsqrt(4.0).item(), 4)", "0.5")
sign = _unary("sign", rounding.sign, "-1, 0 or 1; of complex numbers x / abs(x).", "lax.sign(-3).item()", "-1")
sin = _unary_with_accuracy("sin", transcendental.sin, "The sine.", "round(lax.sin(0.5).item(), 4)", "0.4794")
sinh = _unary("sinh", transcendental.sinh, "The hyperbolic sine.", "round(lax.sinh(0.5).item(), 4)", "0.5211")
sqrt = _unary_with_accuracy("sqrt", transcendental.sqrt, "The square root.", "round(lax.sqrt(2.0).item(), 4)", "1.4142")
square = _unary("square", arithmetic.square, "x * x.", "lax.square(3).item()", "9")
tan = _unary_with_accuracy("tan", transcendental.tan, "The tangent.", "round(lax.tan(0.5).item(), 4)", "0.5463")
tanh = _unary_with_accuracy(
    "tanh", transcendental.tanh, "The hyperbolic tangent.", "round(lax.tanh(0.5).item(), 4)", "0.4621"
)
add = _binary("add", arithmetic.add, "x + y.", "lax.add(1, 2).item()", "3")
atan2 = _binary(
    "atan2",
    transcendental.atan2,
    "The angle of the point (y, x): atan(x / y) in the right quadrant.",
    "round(lax.atan2(1.0, -1.0).item(), 4)",
    "2.3562",
)
bitwise_and = _binary(
    "bitwise_and",
    comparison.bitwise_and,
    "The bits set in both; logical and of bools.",
    "lax.bitwise_and(6, 3).item()",
    "2",
)
bitwise_or = _binary(
    "bitwise_or",
    comparison.bitwise_or,
    "The bits set in either; logical or of bools.",
    "lax.bitwise_or(6, 3).item()",
    "7",
)
bitwise_xor = _binary(
    "bitwise_xor",
    comparison.bitwise_xor,
    "The bits set in one of the two; logical exclusive or of bools.",
    "lax.bitwise_xor(6, 3).item()",
    "5",
)
complex = _binary("complex", conversion.complex, "x + iy of two real arrays.", "lax.complex(1.0, 2.0).item()", "(1+2j)")
div = _binary("div", arithmetic.divide, "x / y; of integers truncated towards zero.", "lax.div(-7, 2).item()", "-3")
eq = _binary("eq", comparison.equal, "Whether x equals y.", "lax.eq(2, 2).item()", "True")
ge = _binary("ge", comparison.greater_equal, "Whether x >= y.", "lax.ge(2, 3).item()", "False")
gt = _binary("gt", comparison.greater, "Whether x > y.", "lax.gt(3, 2).item()", "True")
le = _binary("le", comparison.less_equal, "Whether x <= y.", "lax.le(2, 2).item()", "True")
lt = _binary("lt", comparison.less, "Whether x < y.", "lax.lt(3, 2).item()", "False")
max = _binary("max", arithmetic.maximum, "The larger of both; NaN where either is NaN.", "lax.max(2, 3).item()", "3")
min = _binary("min", arithmetic.minimum, "The smaller of both; NaN where either is NaN.", "lax.min(2, 3).item()", "2")
ne = _binary("ne", comparison.not_equal, "Whether x differs from y.", "lax.ne(2, 3).item()", "True")
rem = _binary(
    "rem",
    arithmetic.remainder,
    "x - y * trunc(x / y): the remainder with the sign of x.",
    "lax.rem(-7, 3).item()",
    "-1",
)
shift_left = _binary(
    "shift_left", comparison.shift_left, "x with its bits moved y places left.", "lax.shift_left(3, 2).item()", "12"
)
shift_right_arithmetic = _binary(
    "shift_right_arithmetic",
    comparison.shift_right_arithmetic,
    "x with its bits moved y places right, the sign kept.",
    "lax.shift_right_arithmetic(-8, 1).item()",
    "-4",
)
shift_right_logical = _binary(
    "shift_right_logical",
    comparison.shift_right_logical,
    "x with its bits moved y places right, zeros moved in.",
    "lax.shift_right_logical(8, 1).item()",
    "4",
)
sub = _binary("sub", arithmetic.subtract, "x - y.", "lax.sub(5, 3).item()", "2")
