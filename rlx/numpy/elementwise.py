"""Elementwise functions of one primitive each, generated from tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import Array, ConcreteArray
from rlx.errors import DtypeError
from rlx.ir.extended import KEY_DTYPES
from rlx.ir.types import dtype_kind, is_complex, is_float, is_inexact, supported_dtypes
from rlx.numpy.documentation import alias, document
from rlx.numpy.promotion import convert_to, promote, promote_inexact, promote_numeric, scalar_array, shared
from rlx.ops import arithmetic, comparison, transcendental
from rlx.ops.families import refuse_keys
from rlx.trace.builder import Tracer

__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "cbrt",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "exp2",
    "expm1",
    "greater",
    "greater_equal",
    "invert",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1p",
    "logical_not",
    "nextafter",
    "not_equal",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "true_divide",
]

Function = Callable[..., Array]
Unary = Callable[[Any], Array]
Binary = Callable[[Any, Any], Array]
Promotion = Callable[..., list[Any]]
_ARRAYS = frozenset((ConcreteArray, Tracer))
_INEXACT = frozenset(d for d in supported_dtypes if is_inexact(d))
_NUMBERS = frozenset(d for d in supported_dtypes if d.kind != "b")
_REAL = frozenset(d for d in supported_dtypes if not is_complex(d))
_FLOATS = frozenset(d for d in supported_dtypes if is_float(d))
_BITS = frozenset(d for d in supported_dtypes if d.kind in "biu")
_INTEGERS = frozenset(d for d in supported_dtypes if d.kind in "iu")
_EQUALITY = supported_dtypes | set(KEY_DTYPES.values())
_BOOL = np.dtype(bool)


# ------------------------------------------------------------------ alignment
def aligned(x: Any, y: Any) -> tuple[Any, Any] | None:
    """Both operands if they need no promotion (the fast path), else None."""
    kind, other = type(x), type(y)
    if kind in _ARRAYS:
        if other in _ARRAYS:
            return (x, y) if x.dtype is y.dtype and x.weak_type is y.weak_type else None
        if other is float and x.dtype in _INEXACT:
            return x, scalar_array(y, x.dtype, x.weak_type)
        if other is int and not x.weak_type and x.dtype in _NUMBERS:
            return x, scalar_array(y, x.dtype, False)
    elif other in _ARRAYS:
        if kind is float and y.dtype in _INEXACT:
            return scalar_array(x, y.dtype, y.weak_type), y
        if kind is int and not y.weak_type and y.dtype in _NUMBERS:
            return scalar_array(x, y.dtype, False), y
    return None


def _refuse(name: str, dtype: np.dtype) -> DtypeError:
    return DtypeError(f"{name} does not take {dtype.name}.", "Convert the operand with .astype(...) first.")


def unary(name: str, primitive: Any, takes: frozenset[Any] = _NUMBERS, promoted: Promotion = promote) -> Unary:
    """A function of one operand."""

    def function(x: Any, /) -> Array:
        if type(x) in _ARRAYS and x.dtype in takes:
            return primitive(x)
        (value,) = promoted(name, shared(x))
        if value.dtype not in takes:
            raise _refuse(name, value.dtype)
        return primitive(value)

    return function


def binary(
    name: str,
    primitive: Any,
    takes: frozenset[Any] = _NUMBERS,
    promoted: Promotion = promote,
    for_bool: Any = None,
) -> Binary:
    """A function of two operands; `for_bool` is the primitive where both are bools."""

    def function(x: Any, y: Any, /) -> Array:
        pair = aligned(x, y)
        if pair is not None and pair[0].dtype in takes:
            return primitive(*pair)
        left, right = promoted(name, shared(x), shared(y))
        if for_bool is not None and left.dtype == _BOOL:
            return for_bool(left, right)
        if left.dtype not in takes:
            raise _refuse(name, left.dtype)
        return primitive(left, right)

    return function


def truth(x: Any, name: str = "logical_not") -> Any:
    """Whether elements are nonzero."""
    if type(x) in _ARRAYS and x.dtype is _BOOL:
        return x
    (x,) = promote(name, shared(x))
    refuse_keys(name, x.type)
    return x if x.dtype == _BOOL else comparison.not_equal(x, scalar_array(0, x.dtype, True))


def logical(name: str, primitive: Any, arity: int) -> Function:
    """A function of truth values."""

    def of_one(x: Any, /) -> Array:
        return primitive(truth(x, name))

    def of_two(x: Any, y: Any, /) -> Any:
        return primitive(truth(x, name), truth(y, name))

    return of_one if arity == 1 else of_two


# ------------------------------------------------------------------ tables
def _inexact_unary(name: str, summary: str, primitive: Any, result: str, at: str = "0.0") -> Unary:
    takes = _INEXACT if "c" in primitive.kinds else _FLOATS
    function = unary(name, primitive, takes, promoted=promote_inexact)
    return document(function, name, summary, f"float(jnp.{name}({at}))", result, 1)


_t = transcendental
sin = _inexact_unary("sin", "The sine of radians.", _t.sin, "0.0")
cos = _inexact_unary("cos", "The cosine of radians.", _t.cos, "1.0")
tan = _inexact_unary("tan", "The tangent of radians.", _t.tan, "0.0")
arcsin = _inexact_unary("arcsin", "The angle with a given sine.", _t.asin, "0.0")
arccos = _inexact_unary("arccos", "The angle with a given cosine.", _t.acos, "0.0", "1.0")
arctan = _inexact_unary("arctan", "The angle with a given tangent.", _t.atan, "0.0")
sinh = _inexact_unary("sinh", "The hyperbolic sine.", _t.sinh, "0.0")
cosh = _inexact_unary("cosh", "The hyperbolic cosine.", _t.cosh, "1.0")
tanh = _inexact_unary("tanh", "The hyperbolic tangent.", _t.tanh, "0.0")
arcsinh = _inexact_unary("arcsinh", "The inverse hyperbolic sine.", _t.asinh, "0.0")
arccosh = _inexact_unary("arccosh", "The inverse hyperbolic cosine.", _t.acosh, "0.0", "1.0")
arctanh = _inexact_unary("arctanh", "The inverse hyperbolic tangent.", _t.atanh, "0.0")
exp = _inexact_unary("exp", "e to the power x.", _t.exp, "1.0")
exp2 = _inexact_unary("exp2", "2 to the power x.", _t.exp2, "8.0", "3.0")
expm1 = _inexact_unary("expm1", "exp(x) - 1, accurate near 0.", _t.expm1, "0.0")
log = _inexact_unary("log", "The natural logarithm.", _t.log, "0.0", "1.0")
log1p = _inexact_unary("log1p", "log(1 + x), accurate near 0.", _t.log1p, "0.0")
sqrt = _inexact_unary("sqrt", "The square root.", _t.sqrt, "3.0", "9.0")
cbrt = _inexact_unary("cbrt", "The real cube root.", _t.cbrt, "2.0", "8.0")
asin, acos, atan = alias(arcsin, "asin"), alias(arccos, "acos"), alias(arctan, "atan")
asinh, acosh, atanh = alias(arcsinh, "asinh"), alias(arccosh, "acosh"), alias(arctanh, "atanh")


def _number_unary(
    name: str,
    summary: str,
    primitive: Any,
    result: str,
    at: str,
    takes: frozenset[Any] = _NUMBERS,
    promoted: Promotion = promote,
) -> Function:
    function = unary(name, primitive, takes, promoted)
    return document(function, name, summary, f"jnp.{name}({at}).item()", result, 1)


negative = _number_unary("negative", "-x.", arithmetic.negative, "-2", "2")
sign = _number_unary("sign", "-1, 0 or 1 as x is negative, zero or positive.", arithmetic.sign, "-1", "-3")
square = _number_unary("square", "x * x.", arithmetic.square, "9", "3", promoted=promote_numeric)
bitwise_not = _number_unary("bitwise_not", "Every bit inverted.", comparison.bitwise_not, "-4", "3", _BITS)


def _population_count(x: Any) -> Any:
    # of the magnitude, as NumPy counts
    if x.dtype == _BOOL:
        return convert_to(x, np.dtype("u1"))
    magnitude = arithmetic.absolute(x) if dtype_kind(x.dtype) == "i" else x
    return convert_to(comparison.population_count(magnitude), np.dtype("u1"))


bitwise_count = _number_unary(
    "bitwise_count", "The number of bits of |x| that are 1, as uint8.", _population_count, "3", "7", _BITS
)
invert, bitwise_invert = alias(bitwise_not, "invert"), alias(bitwise_not, "bitwise_invert")


def _pairwise(name: str, summary: str, primitive: Any, example: str, result: str, **options: Any) -> Binary:
    function = binary(name, primitive, **options)
    return document(function, name, summary, f"jnp.{name}({example}).item()", result, 2)


_a, _c = arithmetic, comparison
add = _pairwise("add", "x + y; bools: or.", _a.add, "1, 2", "3", for_bool=_c.bitwise_or)
subtract = _pairwise("subtract", "x - y.", _a.subtract, "1, 2", "-1")
multiply = _pairwise("multiply", "x * y; bools: and.", _a.multiply, "3, 2", "6", for_bool=_c.bitwise_and)
divide = _pairwise(
    "divide", "x / y, always floating.", _a.divide, "1, 2", "0.5", takes=_INEXACT, promoted=promote_inexact
)
true_divide = alias(divide, "true_divide")
maximum = _pairwise("maximum", "The larger one; NaN if either is NaN.", _a.maximum, "1, 2", "2", takes=supported_dtypes)
minimum = _pairwise(
    "minimum", "The smaller one; NaN if either is NaN.", _a.minimum, "1, 2", "1", takes=supported_dtypes
)
arctan2 = _pairwise(
    "arctan2",
    "The angle of the point (y, x): arctan2(y, x).",
    _t.atan2,
    "0.0, 1.0",
    "0.0",
    takes=_FLOATS,
    promoted=promote_inexact,
)
atan2 = alias(arctan2, "atan2")
copysign = _pairwise(
    "copysign", "|x| with the sign of y.", _a.copysign, "2.0, -1.0", "-2.0", takes=_FLOATS, promoted=promote_inexact
)
nextafter = _pairwise(
    "nextafter",
    "The number after x towards y.",
    _a.nextafter,
    "1.0, 1.0",
    "1.0",
    takes=_FLOATS,
    promoted=promote_inexact,
)
bitwise_and = _pairwise("bitwise_and", "x & y.", _c.bitwise_and, "6, 3", "2", takes=_BITS)
bitwise_or = _pairwise("bitwise_or", "x | y.", _c.bitwise_or, "6, 3", "7", takes=_BITS)
bitwise_xor = _pairwise("bitwise_xor", "x ^ y.", _c.bitwise_xor, "6, 3", "5", takes=_BITS)
left_shift = _pairwise("left_shift", "x << y.", _c.shift_left, "3, 2", "12", takes=_INTEGERS, promoted=promote_numeric)
bitwise_left_shift = alias(left_shift, "bitwise_left_shift")
equal = _pairwise("equal", "x == y.", _c.equal, "1, 1", "True", takes=_EQUALITY)
not_equal = _pairwise("not_equal", "x != y.", _c.not_equal, "1, 1", "False", takes=_EQUALITY)


# ------------------------------------------------------------------ order, also of complex numbers
def _ordered(name: str, summary: str, primitive: Any, strict: Any, result: str) -> Binary:
    """A comparison; complex numbers compare by real, then by imaginary part."""
    plain = binary(name, primitive, _REAL)

    def function(x: Any, y: Any, /) -> Array:
        pair = aligned(x, y)
        if pair is not None and pair[0].dtype in _REAL:
            return primitive(*pair)
        first, second = promote(name, shared(x), shared(y))
        if not is_complex(first.dtype):
            return plain(first, second)
        left, right = _a.real(first), _a.real(second)
        same = _c.bitwise_and(_c.equal(left, right), primitive(_a.imag(first), _a.imag(second)))
        return _c.bitwise_or(strict(left, right), same)

    return document(function, name, summary, f"jnp.{name}(1, 2).item()", result, 2)


less = _ordered("less", "x < y.", _c.less, _c.less, "True")
less_equal = _ordered("less_equal", "x <= y.", _c.less_equal, _c.less, "True")
greater = _ordered("greater", "x > y.", _c.greater, _c.greater, "False")
greater_equal = _ordered("greater_equal", "x >= y.", _c.greater_equal, _c.greater, "False")


# ------------------------------------------------------------------ truth values
def _truth_function(name: str, summary: str, primitive: Any, at: str, result: str, arity: int) -> Function:
    function = logical(name, primitive, arity)
    return document(function, name, summary, f"jnp.{name}({at}).item()", result, arity)


logical_and = _truth_function("logical_and", "Whether both elements are nonzero.", _c.bitwise_and, "1, 0", "False", 2)
logical_or = _truth_function("logical_or", "Whether at least one element is nonzero.", _c.bitwise_or, "1, 0", "True", 2)
logical_xor = _truth_function("logical_xor", "Whether exactly one is nonzero.", _c.bitwise_xor, "1, 1", "False", 2)
logical_not = _truth_function("logical_not", "Zero.", _c.bitwise_not, "1", "False", 1)
