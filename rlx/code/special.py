"""Special functions as code: series if the terms have the same sign, otherwise continued fractions and asymptotic ones.

Each is a function of float64 numbers; those of SciPy have their names in `ir.scalar.SPECIAL`. Values and limits match
SciPy's. Loops end when terms become negligible, or after a number of steps that suffices for all arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from types import FunctionType

import numpy as np

from rlx.code.functions import CodeValue, Function, FunctionWriter, Variable, operation, where
from rlx.code.tables import (
    ERF_CENTRAL,
    ERF_COMPLEMENT,
    ERF_FARTHEST,
    INVERSE_ERF_CENTRAL,
    INVERSE_ERF_FAR,
    TEMME,
)

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, Function] = {}

_PI, _ROOT_PI, _ROOT_TWO_PI, _ROOT_HALF = math.pi, math.sqrt(math.pi), math.sqrt(2 * math.pi), math.sqrt(0.5)
_EULER = 0.5772156649015329
_INFINITY, _NAN = math.inf, math.nan
_absolute, _atan2, _copysign, _cos, _cosh, _erf, _erfc, _erf_inv, _exp, _expm1, _floor = map(
    operation, "abs atan2 copysign cos cosh erf erfc erf_inv exp expm1 floor".split()
)
_log, _log1p, _power, _sin, _sinh, _sqrt, _tan, _trunc = map(
    operation, "log log1p pow sin sinh sqrt tan trunc".split()
)
_lgamma = operation("special", "lgamma")  # every device and format has it


def _function(define: FunctionType, inline: bool = False) -> Function:
    """Enter a function into the table."""
    return FUNCTIONS.setdefault(define.__name__, Function.written(define, inline))


# ------------------------------------------------------------------ polynomials and coefficients
def _polynomial(variable: CodeValue, coefficients: Sequence[float]) -> CodeValue:
    """A polynomial by Horner's rule, with the constant coefficient first."""
    result: CodeValue | float = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = result * variable + coefficient
    assert isinstance(result, CodeValue)
    return result


def _bernoulli(most: int) -> list[Fraction]:
    """The Bernoulli numbers 0, 2, 4, ... by the Akiyama-Tanigawa algorithm."""
    found = []
    for n in range(0, most + 1, 2):
        row = [Fraction(1, k + 1) for k in range(n + 1)]
        for width in range(n, 0, -1):
            row = [(j + 1) * (row[j] - row[j + 1]) for j in range(width)]
        found.append(row[0])
    return found


_BERNOULLI = _bernoulli(26)
# ln gamma, its derivative and the sum of powers beyond their leading terms, in 1 / x^2
_STIRLING = [float(b / (2 * n * (2 * n - 1))) for n, b in enumerate(_BERNOULLI[:9]) if n]
_DIGAMMA = [float(b / (2 * n)) for n, b in enumerate(_BERNOULLI[:10]) if n]
_ZETA = [float(b / math.factorial(2 * n)) for n, b in enumerate(_BERNOULLI[:13]) if n]
_SPENCE = [float(b / math.factorial(2 * n + 1)) for n, b in enumerate(_BERNOULLI[:11]) if n]


def _zeta_number(x: int) -> float:
    """The Riemann zeta function of 2, 3, ..."""
    far = 200.0
    rest = far ** (1 - x) / (x - 1) + far**-x / 2 + x * far ** (-x - 1) / 12
    rest -= x * (x + 1) * (x + 2) * far ** (-x - 3) / 720
    return math.fsum(float(n) ** -x for n in range(1, 200)) + rest


# ln gamma(1 + x) beyond its linear term
_LOG_GAMMA_ONE = [(-1) ** k * _zeta_number(k) / k for k in range(2, 22)]


# ------------------------------------------------------------------ conditions
def _is_whole(x: CodeValue) -> CodeValue:
    return x.equals(_floor(x))


def _is_even(whole: CodeValue) -> CodeValue:
    return (_floor(whole / 2) * 2).equals(whole)


def _is_pole(x: CodeValue) -> CodeValue:
    return (x <= 0) & _is_whole(x)


def _any_nan(first: CodeValue, *others: CodeValue) -> CodeValue:
    found = first.differs(first)
    for x in others:
        found = found | x.differs(x)
    return found


# ------------------------------------------------------------------ complex numbers, by parts
def _complex_polynomial(
    f: FunctionWriter, coefficients: Sequence[float], real: CodeValue, imaginary: CodeValue
) -> tuple[CodeValue, CodeValue]:
    """The polynomial of a complex number by Horner's rule, the constant coefficient first."""
    hr, hi, was = f.variables("hr hi was", coefficients[-1], 0, 0)
    for coefficient in reversed(coefficients[:-1]):
        was.set(hr)
        hr.set(hr * real - hi * imaginary + coefficient)
        hi.set(was * imaginary + hi * real)
    return hr, hi


def _complex_fraction(
    f: FunctionWriter, top_of: Callable[[CodeValue], CodeValue], step: int, along: CodeValue
) -> tuple[CodeValue, CodeValue]:
    """1 / (b0 + a1 / (b1 + ...)) by Lentz's method: an is `top_of(n)`, bn = 1 + step n + i along."""
    size = f.variable("size", 1 / (1 + along * along))
    dr, di = f.variables("dr di", size, -along * size)
    hr, hi, cr, ci = f.variables("hr hi cr ci", dr, di, 1e300, 0)
    with f.count("n", 1, 400) as n:
        top, real = f.lets("top real", top_of(n), 1 + step * n)
        br, bi = f.lets("br bi", top * dr + real, top * di + along)
        size.set(1 / (br * br + bi * bi))
        dr.set(br * size)
        di.set(-bi * size)
        size.set(top / (cr * cr + ci * ci))
        er, ei = f.lets("er ei", real + cr * size, along - ci * size)
        cr.set(er)
        ci.set(ei)
        mr, mi = f.lets("mr mi", cr * dr - ci * di, cr * di + ci * dr)
        was = f.let("was", hr)
        hr.set(hr * mr - hi * mi)
        hi.set(was * mi + hi * mr)
        f.leave(_absolute(mr - 1) + _absolute(mi) < 1e-16)
    return hr, hi


def _reciprocal(f: FunctionWriter, x: CodeValue, y: CodeValue) -> list[CodeValue]:
    """The parts of 1 / (x + iy), and of its square."""
    norm = f.let("norm", x * x + y * y)
    wr, wi = f.lets("wr wi", x / norm, -y / norm)
    return [wr, wi, *f.lets("sr si", wr * wr - wi * wi, 2 * wr * wi)]


# ------------------------------------------------------------------ the gamma function and its derivatives
@_function
def digamma(f: FunctionWriter, x: Variable) -> CodeValue:
    less = f.variable("less", 0)
    f.give(_copysign(_INFINITY, -x), x.equals(0))
    with f.when(x < 0):
        part = f.let("part", x - _floor(x + 0.5))
        f.give(_NAN, x.equals(-_INFINITY) | part.equals(0))
        less.set(_PI / _tan(_PI * part))
        x.set(1 - x)
    with f.loop(x < 10):
        less += 1 / x
        x += 1
    f.give(x, x.equals(_INFINITY))
    square = f.let("square", 1 / (x * x))
    return _log(x) - 0.5 / x - square * _polynomial(square, _DIGAMMA) - less


@_function
def zeta(f: FunctionWriter, x: CodeValue, y: Variable) -> CodeValue:
    f.give(_NAN, _any_nan(x, y))
    f.give(_INFINITY, x.equals(1))
    f.give(_NAN, x < 1)
    f.give(_INFINITY, _is_pole(y))
    f.give(_NAN, (y <= 0) & x.differs(_floor(x)))
    f.give(where(y > 1, 0, where(y.equals(1), 1, _INFINITY)), y.equals(_INFINITY) | x.equals(_INFINITY))
    total, power, n = f.variables("total power n", 0, _power(y, -x), 0)
    with f.loop((n < 12) | (y < 12)):
        total += power
        f.give(total, (power < 1e-17 * total) & (y > 0))
        y += 1
        power.set(_power(y, -x))
        n += 1
    total += power * y / (x - 1) + 0.5 * power
    # the Euler-Maclaurin corrections; each has two more factors than the one before
    factor = f.variable("factor", x * power / y)
    for k, coefficient in enumerate(_ZETA):
        if k:
            factor *= (x + (2 * k - 1)) * (x + 2 * k) / (y * y)
        total += coefficient * factor
    return total


@_function
def polygamma(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    f.give(digamma(y), x.equals(0))
    sign = f.let("sign", where(_is_even(x), -1, 1))
    return sign * gamma(x + 1) * zeta(x + 1, y)


@_function
def log_excess(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """ln(1 + x) - x."""
    f.give(_log1p(x) - x, _absolute(x) > 0.4)
    # ln((1 + r) / (1 - r)) with r = x / (2 + x)
    ratio = f.let("ratio", x / (2 + x))
    square = f.let("square", ratio * ratio)
    series = f.let("series", _polynomial(square, [2 / (2 * n + 1) for n in range(1, 14)]))
    return ratio * (series * square - x)


@_function
def stirling(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """ln gamma(x) - (x - 1/2) ln(x) + x - ln(2 pi) / 2, for x >= 10."""
    square = f.let("square", 1 / (x * x))
    return _polynomial(square, _STIRLING) / x


@_function
def gamma_weight(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """y^x e^-y / gamma(x + 1)."""
    plain = _exp(x * _log(y) - y - _lgamma(x + 1))
    f.give(where(y.equals(0), where(x.equals(0), 1, 0), plain), x < 10)
    power = f.let("power", x * log_excess((y - x) / x) - stirling(x))
    return _exp(power) / _sqrt(2 * _PI * x)


@_function
def gamma_near(f: FunctionWriter, x: CodeValue, y: CodeValue, z: CodeValue) -> CodeValue:
    """The incomplete gamma function for large x and y near x: erfc, and Temme's series for the rest."""
    apart = f.let("apart", (y - x) / x)
    eta = f.let("eta", _copysign(_sqrt(-2 * log_excess(apart)), apart))
    inverse = f.let("inverse", 1 / x)
    series = _polynomial(eta, TEMME[-1])
    for row in reversed(TEMME[:-1]):
        series = f.let("series", series * inverse + _polynomial(eta, row))
    rest = f.let("rest", _exp(-0.5 * x * eta * eta) / _sqrt(2 * _PI * x) * series)
    return 0.5 * _erfc(z * eta * _sqrt(0.5 * x)) + z * rest


@_function
def gamma_series(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """The incomplete gamma function by its series."""
    term, total = f.variables("term total", 1, 1)
    with f.count("n", 1, 3000) as n:
        f.leave_unless(term > 1e-17 * total)
        term *= y / (x + n)
        total += term
    return gamma_weight(x, y) * total


def _lentz_step(f: FunctionWriter, top: CodeValue, bottom: CodeValue | int, parts: Sequence[Variable]) -> None:
    """A step of a continued fraction by Lentz's method: its left and right part, and its value."""
    left, right, result = parts
    right.set(bottom + top * right)
    left.set(bottom + top / left)
    for part in (right, left):
        with f.when(_absolute(part) < 1e-300):
            part.set(1e-300)
    right.set(1 / right)
    result *= left * right


@_function
def gamma_fraction(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """The incomplete gamma function by its continued fraction."""
    bottom = f.variable("bottom", y + 1 - x)
    left, right = f.variables("left right", 1e300, 1 / bottom)
    result = f.variable("result", right)
    with f.count("n", 1, 3000) as n:
        top = f.let("top", n * (x - n))
        bottom += 2
        _lentz_step(f, top, bottom, (left, right, result))
        f.leave(_absolute(left * right - 1) < 1e-16)
    return gamma_weight(x, y) * x * result


def _gamma_limits(f: FunctionWriter, x: CodeValue, y: CodeValue, complement: bool) -> None:
    """Return the incomplete gamma function, or its complement, at limits and near x = y."""
    below, above = (1, 0) if complement else (0, 1)
    f.give(_NAN, _any_nan(x, y) | (x < 0) | (y < 0))
    f.give(where(y > 0, above, _NAN), x.equals(0))
    f.give(below, y.equals(0))
    f.give(where(y.equals(_INFINITY), _NAN, below), x.equals(_INFINITY))
    f.give(above, y.equals(_INFINITY))
    f.give(gamma_near(x, y, 1 if complement else -1), (x >= 64) & (_absolute(y - x) < 0.3 * x))


@_function
def igamma(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    _gamma_limits(f, x, y, False)
    f.give(1 - igammac(x, y), (y > 1) & (y > x))
    return gamma_series(x, y)


@_function
def igammac(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    _gamma_limits(f, x, y, True)
    f.give(gamma_fraction(x, y), (y > 1.1) & (y > x))
    f.give(1 - gamma_series(x, y), (y > 1.1) | (x > where(y > 0.5, 1.1 * y, -0.4 / _log(y))))
    # small x and y: 1 - y^x / gamma(1 + x), and the rest of the series
    term, total = f.variables("term total", 1, 0)
    with f.count("n", 1, 100) as n:
        term *= -y / n
        total += term / (x + n)
        f.leave(_absolute(term) < 1e-18 * _absolute(total))
    power = f.let("power", x * _log(y) - log_gamma_one(x))
    return -_expm1(power) - x * _exp(power) * total


@_function
def log_gamma_one(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """ln gamma(1 + x) for x >= 0."""
    f.give(_lgamma(1 + x), x > 0.2)
    return x * _polynomial(x, [-_EULER, *_LOG_GAMMA_ONE])


@_function
def gamma(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """By Stirling's series, with powers of exact arguments; languages have it."""
    f.give(_copysign(_INFINITY, x), x.equals(0))
    f.give(_NAN, (x < 0) & _is_whole(x))
    f.give(_INFINITY, x > 172)
    f.give(positive_gamma(x), x >= 0.5)
    whole = f.let("whole", _floor(x + 0.5))
    sign = f.let("sign", where(_is_even(whole), 1, -1))
    return sign * _PI / (_sin(_PI * (x - whole)) * positive_gamma(1 - x))


@_function
def positive_gamma(f: FunctionWriter, x: Variable) -> CodeValue:
    factor = f.variable("factor", 1)
    with f.loop(x < 10):
        factor *= x
        x += 1
    root = f.let("root", _power(x, 0.5 * x - 0.25))
    return _ROOT_TWO_PI * root * _exp(-x) * root * _exp(stirling(x)) / factor


@_function
def log_gamma(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """ln |gamma(x)|; languages have it."""
    f.give(_absolute(x), x.differs(x) | _absolute(x).equals(_INFINITY))
    f.give(_INFINITY, _is_pole(x))
    f.give(right_log_gamma(x), x >= 0.5)
    turn = f.let("turn", _absolute(_sin(_PI * (x - _floor(x + 0.5)))))
    return math.log(_PI) - _log(turn) - right_log_gamma(1 - x)


@_function
def right_log_gamma(f: FunctionWriter, x: Variable) -> CodeValue:
    """ln gamma(x) for x >= 1/2."""
    near = f.let("near", where(x < 1.5, x - 1, x - 2))
    with f.when(_absolute(near) < 0.2):  # near its zeros 1 and 2
        series = near * _polynomial(near, [-_EULER, *_LOG_GAMMA_ONE])
        f.give(series + where(x < 1.5, 0, _log1p(near)))
    less = f.variable("less", 1)
    with f.loop(x < 10):
        less *= x
        x += 1
    return (x - 0.5) * _log(x) - x + 0.5 * math.log(2 * _PI) + stirling(x) - _log(less)


@_function
def gamma_sign(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """The sign of gamma(x)."""
    return where((x < 0) & (_floor(x / 2) * 2).differs(_floor(x)), -1, 1)


# ------------------------------------------------------------------ of complex numbers x + iy; z chooses the part
@_function
def log_size(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """The logarithm of the absolute value."""
    a, b = f.lets("a b", _absolute(x), _absolute(y))
    f.give(_log(a) + 0.5 * _log1p(b / a * (b / a)), a > b)
    return _log(b) + 0.5 * _log1p(a / b * (a / b))


@_function
def right_loggamma(f: FunctionWriter, x: Variable, y: CodeValue, z: CodeValue) -> CodeValue:
    """The real part (z = 0) or the imaginary one, where x >= 1/2 and y >= 0."""
    u = f.let("u", where(x < 1.5, x - 1, x - 2))
    with f.when(u * u + y * y < 0.04):  # near its zeros 1 and 2
        hr, hi = _complex_polynomial(f, [0, -_EULER, *_LOG_GAMMA_ONE], u, y)
        f.give(where(z.equals(0), hr, hi), x < 1.5)
        f.give(where(z.equals(0), hr + 0.5 * _log1p(u * (2 + u) + y * y), hi + _atan2(y, 1 + u)))
    less, turn = f.variables("less turn", 1, 0)
    with f.loop(x * x + y * y < 100):
        less *= x * x + y * y
        turn += _atan2(y, x)
        x += 1
    wr, wi, sr, si = _reciprocal(f, x, y)
    hr, hi = _complex_polynomial(f, _STIRLING, sr, si)
    size, angle = f.lets("size angle", log_size(x, y), _atan2(y, x))
    series = f.let("series", hr * wr - hi * wi + 0.5 * math.log(2 * _PI))
    f.give((x - 0.5) * size - y * angle - x + series - 0.5 * _log(less), z.equals(0))
    return (x - 0.5) * angle + y * (size - 1) + hr * wi + hi * wr - turn


@_function
def upper_loggamma(f: FunctionWriter, x: CodeValue, y: CodeValue, z: CodeValue) -> CodeValue:
    """Where y >= 0. Left of 1/2 by the logarithm of the sine: log(i / 2) - i pi z + log(1 - e^(2 i pi z))."""
    f.give(_NAN, _any_nan(x, y) | (y.equals(0) & _is_pole(x)))
    f.give(right_loggamma(x, y, z), x >= 0.5)
    part = f.let("part", _PI * (x - _floor(x + 0.5)))
    s, c, fall = f.lets("s c fall", _sin(part), _cos(part), _exp(-2 * _PI * y))
    rest = f.let("rest", 2 * s * s * fall - _expm1(-2 * _PI * y))
    across = f.let("across", -2 * s * c * fall)
    with f.when(z.equals(0)):
        sine = f.let("sine", _PI * y + log_size(rest, across))
        f.give(math.log(2 * _PI) - sine - right_loggamma(1 - x, y, 0))
    turn = f.let("turn", _PI * (0.5 - x) + _atan2(across, rest))
    return right_loggamma(1 - x, y, 1) - turn


@_function
def complex_loggamma_real_part(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    return upper_loggamma(x, _absolute(y), 0)


@_function
def complex_loggamma_imaginary_part(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    return _copysign(1, y) * upper_loggamma(x, _absolute(y), 1)


@_function
def complex_gamma_real_part(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    size = f.let("size", _exp(upper_loggamma(x, _absolute(y), 0)))
    return size * _cos(upper_loggamma(x, _absolute(y), 1))


@_function
def complex_gamma_imaginary_part(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    size = f.let("size", _exp(upper_loggamma(x, _absolute(y), 0)))
    return _copysign(1, y) * size * _sin(upper_loggamma(x, _absolute(y), 1))


@_function
def right_digamma(f: FunctionWriter, x: Variable, y: CodeValue, z: CodeValue) -> CodeValue:
    """Where x >= 1/2."""
    less, over = f.variables("less over", 0, 0)
    with f.loop(x * x + y * y < 100):
        less += x / (x * x + y * y)
        over -= y / (x * x + y * y)
        x += 1
    wr, wi, sr, si = _reciprocal(f, x, y)
    hr, hi = _complex_polynomial(f, [0, *_DIGAMMA], sr, si)
    f.give(log_size(x, y) - 0.5 * wr - hr - less, z.equals(0))
    return _atan2(y, x) - 0.5 * wi - hi - over


@_function
def complex_digamma_part(f: FunctionWriter, x: CodeValue, y: CodeValue, z: CodeValue) -> CodeValue:
    """Left of 1/2 by the cotangent."""
    f.give(_NAN, _any_nan(x, y) | (y.equals(0) & _is_pole(x)))
    f.give(right_digamma(x, y, z), x >= 0.5)
    part = f.let("part", _PI * (x - _floor(x + 0.5)))
    s, h = f.lets("s h", _sin(part), _sinh(_PI * y))
    norm = f.let("norm", s * s + h * h)
    across = f.let("across", where(_absolute(y) > 6.5, _copysign(1, y), h * _cosh(_PI * y) / norm))
    f.give(right_digamma(1 - x, -y, 0) - _PI * (s * _cos(part) / norm), z.equals(0))
    return right_digamma(1 - x, -y, 1) + _PI * across


@_function
def complex_digamma_real_part(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    return complex_digamma_part(x, y, 0)


@_function
def complex_digamma_imaginary_part(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    return complex_digamma_part(x, y, 1)


# ------------------------------------------------------------------ the beta function and quotients of gamma functions
def _by_size(f: FunctionWriter, x: CodeValue, y: CodeValue) -> list[CodeValue]:
    """The smaller number, the larger one, and the sum."""
    return f.lets("a b total", where(x < y, x, y), where(x < y, y, x), x + y)


@_function
def log_beta(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    a, b, total = _by_size(f, x, y)
    f.give(_NAN, _any_nan(x, y))
    # a pole, unless another one takes it away
    cancelled = _is_whole(b) & (b > 0) & (total <= 0)
    f.give(where(cancelled, log_beta_plain(1 - total, b), _INFINITY), _is_pole(a))
    return log_beta_plain(a, b)


@_function
def log_beta_plain(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """Away from poles."""
    a, b, total = _by_size(f, x, y)
    f.give(where(a > 0, -_INFINITY, _NAN), b.equals(_INFINITY))
    f.give(_lgamma(a) + (_lgamma(b) - _lgamma(total)), (b < 10) | (total < 10) | (a < -0.5 * b))
    rest = f.let("rest", stirling(b) - stirling(total))
    f.give(_lgamma(a) - a * (_log(total) - 1) + rest - (b - 0.5) * _log1p(a / b), a < 10)
    powers = f.let("powers", a * _log1p(b / a) + (b - 0.5) * _log1p(a / b))
    return rest + stirling(a) + 0.5 * _log(2 * _PI / a) - powers


@_function
def beta(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    a, b, total = _by_size(f, x, y)
    f.give(_NAN, _any_nan(x, y))
    with f.when(_is_pole(a)):  # which another pole below may cancel
        f.give(_INFINITY, b.differs(_floor(b)) | (total > 0))
        sign = f.let("sign", where(_is_even(b), 1, -1))
        f.give(where(b > 0, sign * beta_positive(1 - total, b), _INFINITY))
    f.give(_INFINITY, _is_pole(b))
    f.give(where(a > 0, 0, _NAN), b.equals(_INFINITY))
    f.give(0, _is_pole(total))
    return beta_positive(a, b)


@_function
def beta_positive(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    total = f.let("total", x + y)
    with f.when((_absolute(x) < 20) & (_absolute(y) < 20) & (_absolute(total) > 1e-280)):
        a, b, c = f.lets("a b c", gamma(x), gamma(y), gamma(total))
        f.give(where(_absolute(a) > _absolute(b), a / c * b, b / c * a))
    sign = f.let("sign", gamma_sign(x) * gamma_sign(y) * gamma_sign(total))
    return sign * _exp(log_beta_plain(x, y))


@_function
def beta_fraction(f: FunctionWriter, x: CodeValue, y: CodeValue, z: CodeValue, w: CodeValue) -> CodeValue:
    """The continued fraction of betainc, which converges fast for z below the mean; w is 1 - z."""
    left, right = f.variables("left right", 1, 1 - (x + y) * z / (x + 1))
    with f.when(_absolute(right) < 1e-300):
        right.set(1e-300)
    right.set(1 / right)
    result = f.variable("result", right)
    with f.count("n", 1, 5000) as n:
        top = f.variable("top", n * (y - n) * z / ((x + 2 * n - 1) * (x + 2 * n)))
        _lentz_step(f, top, 1, (left, right, result))
        top.set(-(x + n) * (x + y + n) * z / ((x + 2 * n) * (x + 2 * n + 1)))
        _lentz_step(f, top, 1, (left, right, result))
        f.leave(_absolute(left * right - 1) < 1e-16)
    return beta_weight(x, y, z, w) * result / x


@_function
def beta_weight(f: FunctionWriter, x: CodeValue, y: CodeValue, z: CodeValue, w: CodeValue) -> CodeValue:
    """z^x w^y / beta(x, y), where w is 1 - z."""
    total = f.let("total", x + y)
    f.give(_exp(x * _log(z) + y * _log(w) - log_beta_plain(x, y)), (x < 10) | (y < 10))
    # the powers and Stirling's leading terms are close: use their quotients
    apart = f.let("apart", z * y - w * x)
    power = f.let("power", x * log_excess(apart / x) + y * log_excess(-apart / y))
    rest = f.let("rest", stirling(total) - stirling(x) - stirling(y))
    return _exp(power + rest) * _sqrt(x / total * y / (2 * _PI))


def _beta_cumulated(f: FunctionWriter, x: CodeValue, y: CodeValue, z: CodeValue, complement: bool) -> CodeValue:
    """The incomplete beta function, or its complement."""
    below, above = (1, 0) if complement else (0, 1)
    f.give(_NAN, _any_nan(x, y, z) | (x < 0) | (y < 0) | (z < 0) | (z > 1))
    f.give(_NAN, (x.equals(0) & y.equals(0)) | (x.equals(_INFINITY) & y.equals(_INFINITY)))
    f.give(where(z > 0, above, below), x.equals(0) | y.equals(_INFINITY))
    f.give(where(z < 1, below, above), y.equals(0) | x.equals(_INFINITY))
    f.give(1 - z if complement else z, z.equals(0) | z.equals(1))
    upper, lower = beta_fraction(y, x, 1 - z, z), beta_fraction(x, y, z, 1 - z)
    f.give(upper if complement else 1 - upper, z * (x + y + 2) > x + 1)
    return 1 - lower if complement else lower


@_function
def betainc(f: FunctionWriter, x: CodeValue, y: CodeValue, z: CodeValue) -> CodeValue:
    return _beta_cumulated(f, x, y, z, False)


@_function
def betaincc(f: FunctionWriter, x: CodeValue, y: CodeValue, z: CodeValue) -> CodeValue:
    return _beta_cumulated(f, x, y, z, True)


@_function
def binomial(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    f.give(_NAN, _any_nan(x, y))
    f.give(_NAN, (x < 0) & _is_whole(x))
    k = f.variable("k", _floor(y))
    f.give(0, k.equals(y) & (k < 0))
    with f.when((y > 1e15) & (y > 1e8 * _absolute(x)) & (y < _INFINITY)):  # reflected: x + 1 - y has lost the 1
        turn = f.let("turn", where(_is_whole(x), 0, _sin(_PI * (y - 2 * _floor(y / 2) - x)) / _PI))
        f.give(gamma_sign(1 + x) * turn * _exp(_lgamma(1 + x) - (1 + x) * _log(y)))
    with f.when(k.equals(y) & ((_absolute(x) > 1e-8) | x.equals(0))):
        whole = f.let("whole", _floor(x))
        with f.when(whole.equals(x) & (k > whole / 2) & (whole > 0)):
            k.set(whole - k)
        with f.when((k >= 0) & (k < 20)):
            top, bottom = f.variables("top bottom", 1, 1)
            with f.count("n", 1, 20) as n:
                f.leave_unless(n <= k)
                top *= n + x - k
                bottom *= n
                with f.when(_absolute(top) > 1e50):
                    top /= bottom
                    bottom.set(1)
            f.give(top / bottom)
    f.give(_exp(-log_beta(1 + x - y, 1 + y) - _log(x + 1)), (x >= 1e10 * y) & (y > 0))
    return 1 / (x + 1) / beta(1 + x - y, 1 + y)


@_function
def pochhammer(f: FunctionWriter, x: CodeValue, y: Variable) -> CodeValue:
    f.give(_NAN, _any_nan(x, y))
    result = f.variable("result", 1)
    with f.count("n", 0, 100):
        f.leave_unless(y >= 1)
        f.leave((x + y).equals(1))
        y -= 1
        result *= x + y
        f.leave(result.equals(0) | _absolute(result).equals(_INFINITY))
    with f.count("n", 0, 100):
        f.leave_unless(y <= -1)
        f.leave((x + y).equals(0))
        result /= x + y
        y += 1
        f.leave(result.equals(0) | _absolute(result).equals(_INFINITY))
    f.give(result, y.equals(0))
    with f.when((x > 1e4) & (_absolute(y) <= 1)):
        first = f.let("first", y * (y - 1) / (2 * x))
        second = f.let("second", y * (y - 1) * (y - 2) * (3 * y - 1) / (24 * x * x))
        third = f.let("third", y * y * (y - 1) * (y - 1) * (y - 2) * (y - 3) / (48 * x * x * x))
        f.give(result * _power(x, y) * (1 + first + second + third))
    end = f.let("end", x + y)
    f.give(where(_is_pole(x), _NAN, _INFINITY), _is_pole(end) & x.differs(end))
    f.give(0, _is_pole(x) & x.differs(end))
    sign = f.let("sign", gamma_sign(end) * gamma_sign(x))
    return result * sign * _exp(_lgamma(end) - _lgamma(x))


# ------------------------------------------------------------------ Bessel functions
@_function
def bessel_scaled(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """e^-|x| times the modified Bessel function of order y at x >= 0."""
    f.give(0, x.equals(_INFINITY))
    term, total = f.variables("term total", 1, 1)
    with f.when(x <= 30):
        with f.count("n", 1, 200) as n:
            f.leave_unless(term > 1e-18 * total)
            term *= 0.25 * x * x / (n * (n + y))
            total += term
        f.give(where(y.equals(0), total, 0.5 * x * total) * _exp(-x))
    with f.count("n", 1, 60) as n:
        f.leave_unless(_absolute(term) > 1e-18)
        term *= ((2 * n - 1) * (2 * n - 1) - 4 * y * y) / (8 * n * x)
        total += term
    return total / _sqrt(2 * _PI * x)


@_function
def bessel_i0e(f: FunctionWriter, x: CodeValue) -> CodeValue:
    return where(x.differs(x), x, bessel_scaled(_absolute(x), 0))


@_function
def bessel_i1e(f: FunctionWriter, x: CodeValue) -> CodeValue:
    return where(x.differs(x), x, _copysign(bessel_scaled(_absolute(x), 1), x))


@_function
def bessel_i0(f: FunctionWriter, x: CodeValue) -> CodeValue:
    middle = f.let("middle", _exp(0.5 * _absolute(x)))
    return where(_absolute(x).equals(_INFINITY), _INFINITY, middle * bessel_i0e(x) * middle)


@_function
def bessel_i1(f: FunctionWriter, x: CodeValue) -> CodeValue:
    middle = f.let("middle", _exp(0.5 * _absolute(x)))
    return where(_absolute(x).equals(_INFINITY), x, middle * bessel_i1e(x) * middle)


# ------------------------------------------------------------------ the normal distribution
@_function
def error_central(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """erf(x) for |x| <= 1."""
    return x + x * _polynomial(f.let("square", x * x), ERF_CENTRAL["double"])


@_function
def error_far(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """erfc(x) for x >= 0.45: the square's leading bits are exact, so its exponential is."""
    f.give(0, x > ERF_FARTHEST["double"])
    lead = f.let("lead", _floor(x * 65536) / 65536)
    t = f.let("t", (x - 4) / (x + 4))
    bell = _exp(-lead * lead) * _exp((lead - x) * (lead + x))
    return bell * (_polynomial(t, ERF_COMPLEMENT["double"]) / (1 + 2 * x))


@_function
def error(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """erf(x); languages have it."""
    a = f.let("a", _absolute(x))
    f.give(_copysign(1 - error_far(a), x), a > 1)
    return error_central(x)


@_function
def error_complement(f: FunctionWriter, x: CodeValue) -> CodeValue:
    """erfc(x); languages have it."""
    f.give(error_far(x), x >= 0.5)
    f.give(2 - error_far(-x), x < -0.5)
    return 1 - error_central(x)


@partial(_function, inline=True)
def inverse_erf(f: FunctionWriter, x: CodeValue) -> CodeValue:
    a = f.let("a", _absolute(x))
    f.give(where(a > 1, _NAN, _copysign(_INFINITY, x)), a >= 1)
    f.give(x, _any_nan(x))
    w = f.let("w", -_log((1 - a) * (1 + a)))
    central, tail = f.lets("central tail", w - 2.5, _sqrt(w) - 4)
    ratio = where(w < 5, _polynomial(central, INVERSE_ERF_CENTRAL), _polynomial(tail, INVERSE_ERF_FAR))
    guess = f.let("guess", a * ratio)
    # one step of Halley's method, which triples the good digits
    excess = where(guess > 0.5, (1 - a) - _erfc(guess), _erf(guess) - a)
    change = f.let("change", excess / (_exp(-guess * guess) * (2 / _ROOT_PI)))
    return _copysign(guess - change / (guess * change + 1), x)


@_function
def erfcx(f: FunctionWriter, x: CodeValue) -> CodeValue:
    f.give(where(x < -27, _INFINITY, _exp(x * x) * _erfc(x)), x < 0.45)
    with f.when(x > 20):
        square = f.let("square", 0.5 / (x * x))
        f.give(_polynomial(square, [1, -1, 3, -15, 105, -945, 10395, -135135]) / (x * _ROOT_PI))
    t = f.let("t", (x - 4) / (x + 4))
    return _polynomial(t, ERF_COMPLEMENT["double"]) / (1 + 2 * x)


@_function
def log_ndtr(f: FunctionWriter, x: CodeValue) -> CodeValue:
    t = f.let("t", x * _ROOT_HALF)
    f.give(_log(0.5 * erfcx(-t)) - t * t, x < -1)
    return _log1p(-0.5 * _erfc(t))


@_function
def ndtri(f: FunctionWriter, x: CodeValue) -> CodeValue:
    f.give(_NAN, _any_nan(x) | (x < 0) | (x > 1))
    f.give(where(x.equals(0), -_INFINITY, _INFINITY), x.equals(0) | x.equals(1))
    p = f.let("p", where(x > 0.5, 1 - x, x))
    t = f.let("t", _sqrt(-2 * _log(p)))
    q = f.variable("q", 0)
    with f.when(p > 0.1):
        q.set(math.sqrt(2) * _erf_inv(1 - 2 * p))
    with f.otherwise():  # a guess with three digits, and steps of Halley's method, which triple the digits
        guess = _polynomial(t, [2.515517, 0.802853, 0.010328]) / _polynomial(t, [1, 1.432788, 0.189269, 0.001308])
        q.set(t - guess)
        with f.count("n", 0, 3):
            # (tail - p) / density, with the density factored out of the tail: neither underflows
            tail = f.let("tail", 0.5 * erfcx(q * _ROOT_HALF))
            change = f.let("change", _ROOT_TWO_PI * (tail - _exp(_log(p) + 0.5 * q * q)))
            q += change / (1 - 0.5 * q * change)
    return where(x > 0.5, q, where(x.equals(0.5), 0, -q))


@_function
def owens_t(f: FunctionWriter, x: Variable, y: CodeValue) -> CodeValue:
    f.give(_NAN, _any_nan(x, y))
    a = f.let("a", _absolute(y))
    x.set(_absolute(x))
    f.give(_copysign(0, y), x.equals(_INFINITY) | a.equals(0))
    result = f.variable("result", 0)
    with f.when(a <= 1):
        result.set(owens_near(x, a))
    with f.otherwise():
        tail, other = f.lets("tail other", 0.5 * _erfc(x * _ROOT_HALF), 0.5 * _erfc(a * x * _ROOT_HALF))
        result.set(where(x.equals(0) & a.equals(_INFINITY), 0.25, 0.5 * (tail + other) - tail * other))
        with f.when(a < _INFINITY):
            result -= owens_near(a * x, 1 / a)
    return _copysign(result, y)


@_function
def owens_near(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """By Gauss quadrature, with pairs of nodes around the middle of the interval."""
    end = f.let("end", where(x * y > 9, 9 / x, y))  # beyond nine standard deviations the result is 0
    middle = f.let("middle", 0.5 * end)
    total, t = f.variables("total t", 0, 0)
    nodes, weights = np.polynomial.legendre.leggauss(32)
    for node, weight in zip(nodes[16:], weights[16:], strict=True):
        for sign in (1, -1):
            t.set(middle * (1 + sign * float(node)))
            total += float(weight) * _exp(-0.5 * x * x * t * t) / (1 + t * t)
    return middle * total * _exp(-0.5 * x * x) * (0.5 / _PI)


@_function
def dawson(f: FunctionWriter, x: CodeValue) -> CodeValue:
    square = f.let("square", x * x)
    f.give(1 / x, _absolute(x).equals(_INFINITY))
    term, total = f.variables("term total", 1, 1)
    with f.when(_absolute(x) < 6.5):
        with f.count("n", 1, 200) as n:
            f.leave_unless(term > 1e-18 * total)
            term *= square / n
            total += term / (2 * n + 1)
        f.give(x * total * _exp(-square))
    with f.count("n", 1, 40) as n:
        f.leave_unless(term > 1e-18)
        term *= (2 * n - 1) / (2 * square)
        total += term
    return 0.5 * total / x


# ------------------------------------------------------------------ integrals
@_function
def spence(f: FunctionWriter, x: Variable) -> CodeValue:
    f.give(_NAN, ~(x >= 0))
    f.give(_PI**2 / 6, x.equals(0))
    f.give(-_INFINITY, x.equals(_INFINITY))
    less, sign = f.variables("less sign", 0, 1)
    with f.when(x > 2):
        less.set(-0.5 * _log(x) * _log(x))
        sign.set(-1)
        x.set(1 / x)
    with f.when(x < 0.5):
        less += sign * (_PI**2 / 6 - _log(x) * _log1p(-x))
        sign.set(-sign)
        x.set(1 - x)
    u = f.let("u", -_log(x))
    square = f.let("square", u * u)
    return less + sign * (u - 0.25 * square + u * square * _polynomial(square, _SPENCE))


@_function
def expint_one(f: FunctionWriter, x: CodeValue) -> CodeValue:
    return expint_n(1, x)


@_function
def expint_i(f: FunctionWriter, x: CodeValue) -> CodeValue:
    f.give(-expint_one(-x), x < 0)
    f.give(-_INFINITY, x.equals(0))
    f.give(x, ~(x < _INFINITY))
    term, total = f.variables("term total", 1, 0)
    with f.when(x < 40):
        with f.count("n", 1, 300) as n:
            term *= x / n
            total += term / n
            f.leave(term < 1e-18 * total)
        f.give(_EULER + _log(x) + total)
    with f.count("n", 0, 60) as n:
        f.leave_unless(term > 1e-18)
        total += term
        term *= (n + 1) / x
    middle = f.let("middle", _exp(0.5 * x))
    return middle / x * total * middle


@_function
def expint_n(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """Of integer order x >= 0."""
    f.give(_NAN, _any_nan(x, y) | (x < 0) | (y < 0))
    f.give(0, y.equals(_INFINITY))
    f.give(where(x < 2, _INFINITY, 1 / (x - 1)), y.equals(0))
    f.give(_exp(-y) / y, x.equals(0))
    with f.when(x > 5000):
        i = f.let("i", 1 / (x + y))
        q, second = f.lets("q second", i * i * x, i * i * (x - 2 * y))
        third = f.let("third", i * i * i * i * (6 * y * y - 8 * x * y + x * x))
        f.give(_exp(-y) * i * (1 + q * (1 + second + third)))
    with f.when(y > 1):
        bottom = f.variable("bottom", y + x)
        left, right = f.variables("left right", 1e300, 1 / bottom)
        result = f.variable("result", right)
        with f.count("n", 1, 1000) as n:
            top = f.let("top", -n * (x - 1 + n))
            bottom += 2
            right.set(1 / (top * right + bottom))
            left.set(bottom + top / left)
            result *= left * right
            f.leave(_absolute(left * right - 1) < 1e-16)
        f.give(result * _exp(-y))
    order = f.let("order", _trunc(x) - 1)
    result, factor = f.variables("result factor", where(order.differs(0), 1 / order, -_log(y) - _EULER), 1)
    with f.count("n", 1, 5100) as n:
        f.leave_unless(n < order + 100)
        factor *= -y / n
        part = f.variable("part", -factor / (n - order))
        with f.when(n.equals(order)):
            psi = f.variable("psi", -_EULER)
            with f.count("m", 1, 5000) as m:
                f.leave_unless(m <= order)
                psi += 1 / m
            part.set(factor * (psi - _log(y)))
        result += part
        f.leave((n > order) & (_absolute(part) < 1e-17 * _absolute(result)))
    return result


@_function
def expint_imaginary(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """E1(ix) e^(ix) for x > 0 by its continued fraction: the real part (y = 0) or the imaginary one."""
    along = f.let("along", x)  # the fraction's partial denominators are 1 + 2n + ix
    hr, hi = _complex_fraction(f, lambda n: -n * n, 2, along)
    return where(y.equals(0), hr, hi)


@_function
def sine_integral(f: FunctionWriter, x: CodeValue) -> CodeValue:
    a = f.let("a", _absolute(x))
    f.give(_copysign(_PI / 2, x), a.equals(_INFINITY))
    with f.when(a <= 4):
        term, total = f.variables("term total", x, x)
        with f.count("n", 1, 40) as n:
            term *= -x * x / ((2 * n) * (2 * n + 1))
            total += term / (2 * n + 1)
            f.leave(_absolute(term) < 1e-18 * _absolute(total))
        f.give(total)
    real, imaginary = f.lets("real imaginary", expint_imaginary(a, 0), expint_imaginary(a, 1))
    return _copysign(_PI / 2 + _cos(a) * imaginary - _sin(a) * real, x)


@_function
def cosine_integral(f: FunctionWriter, x: CodeValue) -> CodeValue:
    a = f.let("a", _absolute(x))
    f.give(where(x > 0, 0, _NAN), a.equals(_INFINITY))
    f.give(-_INFINITY, a.equals(0))
    with f.when(a <= 4):
        term, total = f.variables("term total", 1, 0)
        with f.count("n", 1, 40) as n:
            term *= -x * x / ((2 * n - 1) * (2 * n))
            total += term / (2 * n)
            f.leave(_absolute(term) < 1e-18)
        f.give(_EULER + _log(a) + total)
    real, imaginary = f.lets("real imaginary", expint_imaginary(a, 0), expint_imaginary(a, 1))
    return -_cos(a) * real - _sin(a) * imaginary


@_function
def fresnel_far(f: FunctionWriter, x: CodeValue, y: CodeValue) -> CodeValue:
    """The fresnel integrals at x >= 1.5: 1/2 minus the oscillation, by the continued fraction of erfc."""
    # erfc(w) e^(w w) w / root(pi) with w = root(pi) / 2 (1 - i) x: denominators 1 - i pi x x + 4n
    square = f.let("square", _PI * x * x)
    hr, hi = _complex_fraction(f, lambda n: -(2 * n - 1) * (2 * n), 4, f.let("along", -square))
    # (1 + i) / 2 (1 - e^(i pi x x / 2) (1 - i) x h): x x is taken modulo 4 first
    angle = f.let("angle", _PI / 2 * (x * x - 4 * _floor(0.25 * x * x)))
    c, s, pr, pi = f.lets("c s pr pi", _cos(angle), _sin(angle), x * (hr + hi), x * (hi - hr))
    er, ei = f.lets("er ei", 1 - (c * pr - s * pi), -(c * pi + s * pr))
    return 0.5 * where(y.equals(0), er - ei, er + ei)


def _fresnel(f: FunctionWriter, x: CodeValue, sine: bool) -> CodeValue:
    """The sine or the cosine integral of pi t^2 / 2."""
    a = f.let("a", _absolute(x))
    f.give(where(x.differs(x), x, _copysign(0.5, x)), a > 1e7)
    f.give(_copysign(fresnel_far(a, int(sine)), x), a >= 1.5)
    t = f.let("t", _PI / 2 * x * x)
    term = f.variable("term", t if sine else 1)
    total = f.variable("total", t / 3 if sine else 1)
    with f.count("n", 1, 40) as n:
        f.leave_unless(_absolute(term) > 1e-19)
        factor = (2 * n) * (2 * n + 1) if sine else (2 * n - 1) * (2 * n)
        term *= -t * t / factor
        total += term / (4 * n + (3 if sine else 1))
    return x * total


@_function
def fresnel_sine(f: FunctionWriter, x: CodeValue) -> CodeValue:
    return _fresnel(f, x, True)


@_function
def fresnel_cosine(f: FunctionWriter, x: CodeValue) -> CodeValue:
    return _fresnel(f, x, False)
