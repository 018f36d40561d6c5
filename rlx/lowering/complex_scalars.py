"""Complex arithmetic and elementary functions as operations on real parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.errors import DtypeError
from rlx.lowering.scalar_calculus import Scalar, ScalarCalculus

__all__ = ["compare", "elementary"]


def elementary(op: str, s: ScalarCalculus, *operands: Scalar) -> Scalar:
    """A function of one or two complex operands."""
    function = (_UNARY if len(operands) == 1 else _BINARY).get(op)
    if function is None:
        raise DtypeError(f"{op} is not defined for complex numbers")
    return function(s, *operands)


def compare(op: str, s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    """eq and ne by parts; the orders are lexicographic, as NumPy's."""
    a, b, c, d = *_parts(s, x), *_parts(s, y)
    if op == "eq":
        return s.and_(s.eq(a, c), s.eq(b, d))
    if op == "ne":
        return s.or_(s.ne(a, c), s.ne(b, d))
    strict = {"lt": s.lt, "le": s.lt, "gt": s.gt, "ge": s.gt}[op]
    last = {"lt": s.lt, "le": s.le, "gt": s.gt, "ge": s.ge}[op]
    return s.or_(strict(a, c), s.and_(s.eq(a, c), last(b, d)))


def _parts(s: ScalarCalculus, x: Scalar) -> tuple[Scalar, Scalar]:
    return s.real(x), s.imag(x)


def _add(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    return s.complex(s.real(x) + s.real(y), s.imag(x) + s.imag(y))


def _sub(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    return s.complex(s.real(x) - s.real(y), s.imag(x) - s.imag(y))


def _mul(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    a, b, c, d = *_parts(s, x), *_parts(s, y)
    return s.complex(a * c - b * d, a * d + b * c)


def _div(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    """Smith's method: the larger part of y divides first, so that squares do not overflow."""
    a, b, c, d = *_parts(s, x), *_parts(s, y)
    wide = s.ge(s.abs(c), s.abs(d))
    larger, smaller = s.select(wide, c, d), s.select(wide, d, c)
    ratio = s.select(s.eq(larger, 0), smaller, smaller / larger)
    scale = larger + smaller * ratio
    first, second = s.select(wide, a, b), s.select(wide, b, a)
    real = (first + second * ratio) / scale
    imaginary = (second - first * ratio) / scale
    return s.complex(real, s.select(wide, imaginary, -imaginary))


def _neg(s: ScalarCalculus, x: Scalar) -> Scalar:
    return s.complex(-s.real(x), -s.imag(x))


def _square(s: ScalarCalculus, x: Scalar) -> Scalar:
    """The real part as a product of sum and difference: nothing cancels but equal parts, exactly."""
    a, b = _parts(s, x)
    equal = s.and_(s.eq(s.abs(a), s.abs(b)), s.lt(s.abs(a), np.inf))  # their sum may be infinite
    return s.complex(s.select(equal, s.constant_like(a, 0), (a - b) * (a + b)), a * b * 2)


def _hypot(s: ScalarCalculus, a: Scalar, b: Scalar) -> Scalar:
    a, b = s.abs(a), s.abs(b)
    large, small = s.max(a, b), s.min(a, b)
    ratio = s.select(s.eq(large, 0), large, small / large)
    plain = large * s.sqrt(ratio * ratio + 1)
    infinite = s.or_(s.eq(a, np.inf), s.eq(b, np.inf))
    return s.select(infinite, s.constant_like(a, np.inf), plain)


def _abs(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _hypot(s, *_parts(s, x))


def _sign(s: ScalarCalculus, x: Scalar) -> Scalar:
    """x / |x|; if only one part is infinite, 1 and 0 replace both."""
    a, b = _parts(s, x)
    wide, high = s.eq(s.abs(a), np.inf), s.eq(s.abs(b), np.inf)
    one, nothing = s.constant_like(a, 1), s.constant_like(a, 0)
    single = s.ne(wide, high)
    a = s.select(single, s.select(wide, s.copysign(one, a), nothing), a)
    b = s.select(single, s.select(high, s.copysign(one, b), nothing), b)
    size = _hypot(s, a, b)
    divisor = s.select(s.eq(size, 0), one, size)
    return s.complex(a / divisor, b / divisor)


def _scaled(s: ScalarCalculus, size: Scalar, angle: Scalar) -> Scalar:
    """size * e^(i angle), exactly real if the angle is zero (inf * 0 is NaN otherwise)."""
    straight = s.eq(angle, 0)
    return s.complex(
        s.select(straight, size, size * s.cos(angle)),
        s.select(straight, angle, size * s.sin(angle)),
    )


def _exp(s: ScalarCalculus, x: Scalar) -> Scalar:
    """As in C99 if the angle is infinite or NaN: 0 if the size is, and infinite by its real part."""
    a, b = _parts(s, x)
    unknown = s.not_(s.is_finite(b))
    gone = s.and_(unknown, s.eq(a, -np.inf))
    result = _scaled(s, s.exp(a), s.select(gone, s.copysign(s.constant_like(b, 0), b), b))
    infinite = s.and_(unknown, s.eq(a, np.inf))
    return s.complex(s.select(infinite, a, s.real(result)), s.imag(result))


def _exp2(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _exp(s, x * s.constant_like(x, np.log(2.0)))


def _expm1(s: ScalarCalculus, x: Scalar) -> Scalar:
    """e^x - 1, whose real part is expm1(a) cos(b) - 2 sin(b / 2)^2."""
    a, b = _parts(s, x)
    half = s.sin(b * 0.5)
    real = s.expm1(a) * s.cos(b) - half * half * 2
    real = s.select(s.eq(a, -np.inf), s.constant_like(a, -1), real)
    infinite = s.and_(s.not_(s.is_finite(b)), s.eq(a, np.inf))
    return s.complex(s.select(infinite, a, real), s.imag(_exp(s, x)))


def _log(s: ScalarCalculus, x: Scalar) -> Scalar:
    a, b = _parts(s, x)
    return s.complex(s.log(_hypot(s, a, b)), s.atan2(b, a))


def _log1p(s: ScalarCalculus, x: Scalar) -> Scalar:
    a, b = _parts(s, x)
    near = s.log1p(a * (a + 2) + b * b) * 0.5
    far = s.log(_hypot(s, a + 1, b))
    small = s.lt(s.max(s.abs(a), s.abs(b)), 1)
    return s.complex(s.select(small, near, far), s.atan2(b, a + 1))


def _log2(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _log(s, x) * s.constant_like(x, 1 / np.log(2.0))


def _sqrt(s: ScalarCalculus, x: Scalar) -> Scalar:
    a, b = _parts(s, x)
    size = _hypot(s, a, b)
    root = s.sqrt((size + s.abs(a)) * 0.5)
    other = s.select(s.eq(root, 0), root, s.abs(b) / (root * 2))
    right = s.ge(a, 0)
    real = s.select(right, root, other)
    imaginary = s.copysign(s.select(right, other, root), b)
    infinite = s.eq(s.abs(b), np.inf)
    return s.complex(s.select(infinite, s.abs(b), real), s.select(infinite, b, imaginary))


def _rsqrt(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _div(s, s.constant_like(x, 1), _sqrt(s, x))


def _times_i(s: ScalarCalculus, x: Scalar) -> Scalar:
    return s.complex(-s.imag(x), s.real(x))


def _times_minus_i(s: ScalarCalculus, x: Scalar) -> Scalar:
    return s.complex(s.imag(x), -s.real(x))


def _sinh(s: ScalarCalculus, x: Scalar) -> Scalar:
    a, b = _parts(s, x)
    # on an axis no NaN of an angle or of an infinity times zero
    real = s.select(s.and_(s.eq(a, 0), s.not_(s.is_finite(b))), a, s.sinh(a) * s.cos(b))
    return s.complex(real, s.select(s.eq(b, 0), b, s.cosh(a) * s.sin(b)))


def _cosh(s: ScalarCalculus, x: Scalar) -> Scalar:
    a, b = _parts(s, x)
    on_axis = b * s.copysign(s.constant_like(a, 1), a)
    return s.complex(s.cosh(a) * s.cos(b), s.select(s.eq(b, 0), on_axis, s.sinh(a) * s.sin(b)))


def _sin(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _times_minus_i(s, _sinh(s, _times_i(s, x)))


def _cos(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _cosh(s, _times_i(s, x))


def _tanh(s: ScalarCalculus, x: Scalar) -> Scalar:
    """Kahan's formula; beyond |re| = 20 the value is +-1 to the last place of float64."""
    a, b = _parts(s, x)
    tangent, sine = s.tan(b), s.sinh(a)
    beta = tangent * tangent + 1
    rho = s.sqrt(sine * sine + 1)
    scale = beta * sine * sine + 1
    large = s.gt(s.abs(a), 20)
    decay = s.exp(s.abs(a) * -2) * s.sin(b) * s.cos(b) * 4
    real = s.select(large, s.copysign(s.constant_like(a, 1), a), beta * rho * sine / scale)
    imaginary = s.select(large, decay, tangent / scale)
    # as in C99: no angle matters at infinity, and both axes stay unchanged
    far = s.and_(s.eq(s.abs(a), np.inf), s.not_(s.is_finite(b)))
    imaginary = s.select(far, s.copysign(s.constant_like(b, 0), b), s.select(s.eq(b, 0), b, imaginary))
    return s.complex(s.select(s.eq(a, 0), a, real), imaginary)


def _tan(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _times_minus_i(s, _tanh(s, _times_i(s, x)))


def _at_infinity(s: ScalarCalculus, x: Scalar, value: Scalar, real: Scalar, imaginary: Scalar) -> Scalar:
    """Other parts than the value's where a part of x is infinite: C99's, whose formulas subtract infinities."""
    infinite = s.or_(*(s.eq(s.abs(part), np.inf) for part in _parts(s, x)))
    return s.complex(s.select(infinite, real, s.real(value)), s.select(infinite, imaginary, s.imag(value)))


def _asinh(s: ScalarCalculus, x: Scalar) -> Scalar:
    a, b = _parts(s, x)
    # 1 + ix and 1 - ix by parts: the sign of a zero part says on which side of a cut x is
    plus, minus = _sqrt(s, s.complex(1 - b, a)), _sqrt(s, s.complex(b + 1, -a))
    real = s.asinh(s.real(minus) * s.imag(plus) - s.real(plus) * s.imag(minus))
    value = s.complex(real, s.atan2(b, s.real(plus * minus)))
    return _at_infinity(s, x, value, s.copysign(s.constant_like(a, np.inf), a), s.atan2(b, s.abs(a)))


def _asin(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _times_minus_i(s, _asinh(s, _times_i(s, x)))


def _acos(s: ScalarCalculus, x: Scalar) -> Scalar:
    a, b = _parts(s, x)
    minus, plus = _sqrt(s, s.complex(1 - a, -b)), _sqrt(s, s.complex(a + 1, b))
    real = s.atan2(s.real(minus), s.real(plus)) * 2
    value = s.complex(real, s.asinh(s.imag(s.conj(plus) * minus)))
    return _at_infinity(s, x, value, s.atan2(s.abs(b), a), s.copysign(s.constant_like(b, np.inf), -b))


def _acosh(s: ScalarCalculus, x: Scalar) -> Scalar:
    a, b = _parts(s, x)
    minus, plus = _sqrt(s, s.complex(a - 1, b)), _sqrt(s, s.complex(a + 1, b))
    real = s.asinh(s.real(s.conj(minus) * plus))
    value = s.complex(real, s.atan2(s.imag(minus), s.real(plus)) * 2)
    return _at_infinity(s, x, value, s.constant_like(a, np.inf), s.atan2(b, a))


def _atanh(s: ScalarCalculus, x: Scalar) -> Scalar:
    """(log1p(x) - log1p(-x)) / 2, with the real part in a form that keeps small x."""
    a, b = _parts(s, x)
    square = b * b
    left, right = (a - 1) * (a - 1) + square, (a + 1) * (a + 1) + square
    real = s.copysign(s.log1p(s.abs(a) * 4 / s.select(s.gt(a, 0), left, right)) * 0.25, a)
    angle = s.atan2(b * 2, (s.constant_like(a, 1) - a) * (a + 1) - square) * 0.5
    quarter = s.select(s.is_nan(b), b, s.copysign(s.constant_like(b, np.pi / 2), b))
    return _at_infinity(s, x, s.complex(real, angle), s.copysign(s.constant_like(a, 0), a), quarter)


def _atan(s: ScalarCalculus, x: Scalar) -> Scalar:
    return _times_minus_i(s, _atanh(s, _times_i(s, x)))


def _logistic(s: ScalarCalculus, x: Scalar) -> Scalar:
    one = s.constant_like(x, 1)
    return _div(s, one, one + _exp(s, -x))


def _pow(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    power = _exp(s, y * _log(s, x))
    zero_base = s.eq(x, 0)
    zero_power, one = s.eq(y, 0), s.constant_like(x, 1)
    at_zero = s.select(s.gt(s.real(y), 0), s.constant_like(x, 0), power)
    return s.select(zero_power, one, s.select(zero_base, at_zero, power))


def _first_nan_or(s: ScalarCalculus, wanted: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """x or y by a predicate, but NaN if either is NaN, x's before y's."""
    return s.select(s.or_(s.is_nan(x), s.and_(wanted, s.not_(s.is_nan(y)))), x, y)


def _max(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    return _first_nan_or(s, s.gt(x, y), x, y)


def _min(s: ScalarCalculus, x: Scalar, y: Scalar) -> Scalar:
    return _first_nan_or(s, s.lt(x, y), x, y)


_UNARY: dict[str, Callable[..., Scalar]] = {
    "neg": _neg,
    "abs": _abs,
    "square": _square,
    "sign": _sign,
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "log2": _log2,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "logistic": _logistic,
}

_BINARY: dict[str, Callable[..., Scalar]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "max": _max,
    "min": _min,
}
