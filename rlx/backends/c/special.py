"""Special functions in C: series if the terms have the same sign, otherwise continued fractions and asymptotic series.

Each is a function of doubles, by its name in `ir.scalar.SPECIAL` and with the parameters x, y, z. Values and limits
match SciPy's. Loops end when terms become negligible, or after a number of steps that suffices for all arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from rlx.backends.c.types import literal
from rlx.backends.loops.tables import ERF_COMPLEMENT, TEMME

__all__ = ["SPECIAL_TEXTS", "polynomial"]

_F64 = np.dtype(np.float64)
_ROOT_PI = math.sqrt(math.pi)
_EULER = 0.5772156649015329


def polynomial(variable: str, coefficients: Sequence[float]) -> str:
    """A polynomial by Horner's rule, with the constant coefficient first."""
    text = literal(_F64, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        text = f"({text} * {variable} + {literal(_F64, coefficient)})"
    return text


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


def _zeta(x: int) -> float:
    """The Riemann zeta function of 2, 3, ..."""
    far = 200.0
    rest = far ** (1 - x) / (x - 1) + far**-x / 2 + x * far ** (-x - 1) / 12
    rest -= x * (x + 1) * (x + 2) * far ** (-x - 3) / 720
    return math.fsum(float(n) ** -x for n in range(1, 200)) + rest


# ln gamma(1 + x) beyond its linear term
_LOG_GAMMA_ONE = [(-1) ** k * _zeta(k) / k for k in range(2, 22)]


def _zeta_terms() -> list[str]:
    """The Euler-Maclaurin corrections; each has two more factors than the one before."""
    lines = ["double factor = x * power / y;"]
    for n, coefficient in enumerate(_ZETA):
        lines.append(f"sum += {literal(_F64, coefficient)} * factor;")
        if n < len(_ZETA) - 1:
            lines.append(f"factor *= (x + {2 * n + 1}) * (x + {2 * n + 2}) / (y * y);")
    return lines


def _temme() -> str:
    """Temme's series: in eta, and in 1 / a."""
    text = polynomial("eta", TEMME[-1])
    for row in reversed(TEMME[:-1]):
        text = f"({text} * in + {polynomial('eta', row)})"
    return text


def _owens_lines() -> list[str]:
    """Gauss quadrature, by pairs of nodes around the middle of the interval."""
    nodes, weights = np.polynomial.legendre.leggauss(32)
    lines = []
    for node, weight in zip(nodes[16:], weights[16:], strict=True):
        for sign in (1, -1):
            lines.append(f"t = middle * {literal(_F64, 1 + sign * float(node))};")
            lines.append(f"sum += {literal(_F64, float(weight))} * exp(-0.5 * x * x * t * t) / (1 + t * t);")
    return lines


def _complex_fraction(top: str, step: int, imaginary: str) -> list[str]:
    """1 / (b0 + a1 / (b1 + ...)) as hr + i hi by Lentz's method: an is `top`, bn = 1 + step n + i imaginary."""
    return [
        f"const double along = {imaginary};",
        "double size = 1 / (1 + along * along), dr = size, di = -along * size, hr = dr, hi = di, cr = 1e300, ci = 0;",
        "for (int n = 1; n < 400; ++n) {",
        f"    const double top = {top}, real = 1 + {step} * n;",
        "    const double br = top * dr + real, bi = top * di + along;",
        "    size = 1 / (br * br + bi * bi);",
        "    dr = br * size;",
        "    di = -bi * size;",
        "    size = top / (cr * cr + ci * ci);",
        "    const double er = real + cr * size, ei = along - ci * size;",
        "    cr = er;",
        "    ci = ei;",
        "    const double mr = cr * dr - ci * di, mi = cr * di + ci * dr, was = hr;",
        "    hr = hr * mr - hi * mi;",
        "    hi = was * mi + hi * mr;",
        "    if (fabs(mr - 1) + fabs(mi) < 1e-16) break;",
        "}",
    ]


def _complex_polynomial(coefficients: Sequence[float], real: str, imaginary: str) -> list[str]:
    """hr + i hi, the polynomial of a complex number by Horner's rule, the constant coefficient first."""
    lines = [f"double hr = {literal(_F64, coefficients[-1])}, hi = 0, was = 0;"]
    for coefficient in reversed(coefficients[:-1]):
        lines.append("was = hr;")
        lines.append(f"hr = hr * {real} - hi * {imaginary} + {literal(_F64, coefficient)};")
        lines.append(f"hi = was * {imaginary} + hi * {real};")
    return lines


# of x + iy: the reciprocal, and its square
_RECIPROCAL = (
    "const double norm = x * x + y * y, wr = x / norm, wi = -y / norm, sr = wr * wr - wi * wi, si = 2 * wr * wi;"
)


# name -> parameters and statements. N{...} is a number; rlx_..._float64 are other functions in this table
_BODIES: dict[str, tuple[str, Sequence[str]]] = {
    "digamma": ("x", [
        "double less = 0;",
        "if (x == 0) return copysign((double)INFINITY, -x);",
        "if (x < 0) {",
        "    const double part = x - floor(x + 0.5);",
        "    if (x == -INFINITY || part == 0) return NAN;",
        "    less = N{pi} / tan(N{pi} * part);",
        "    x = 1 - x;",
        "}",
        "for (; x < 10; x += 1) less += 1 / x;",
        "if (x == INFINITY) return x;",
        "const double square = 1 / (x * x);",
        f"return log(x) - 0.5 / x - square * {polynomial('square', _DIGAMMA)} - less;",
    ]),
    "zeta": ("xy", [
        "if (x != x || y != y) return NAN;",
        "if (x == 1) return INFINITY;",
        "if (x < 1) return NAN;",
        "if (y <= 0 && y == floor(y)) return INFINITY;",
        "if (y <= 0 && x != floor(x)) return NAN;",
        "if (y == INFINITY || x == INFINITY) return y > 1 ? 0 : y == 1 ? 1 : INFINITY;",
        "double sum = 0, power = pow(y, -x);",
        "for (int n = 0; n < 12 || y < 12; ++n) {",
        "    sum += power;",
        "    if (power < 1e-17 * sum && y > 0) return sum;",
        "    y += 1;",
        "    power = pow(y, -x);",
        "}",
        "sum += power * y / (x - 1) + 0.5 * power;",
        *_zeta_terms(),
        "return sum;",
    ]),
    "polygamma": ("xy", [
        "if (x == 0) return rlx_digamma_float64(y);",
        "const double sign = floor(x / 2) * 2 == x ? -1.0 : 1.0;",
        "return sign * tgamma(x + 1) * rlx_zeta_float64(x + 1, y);",
    ]),
    # ln(1 + x) - x
    "log_excess": ("x", [
        "if (fabs(x) > 0.4) return log1p(x) - x;",
        "/* ln((1 + r) / (1 - r)) with r = x / (2 + x) */",
        "const double ratio = x / (2 + x), square = ratio * ratio;",
        f"const double series = {polynomial('square', [2 / (2 * n + 1) for n in range(1, 14)])};",
        "return ratio * (series * square - x);",
    ]),
    # ln gamma(x) - (x - 1/2) ln(x) + x - ln(2 pi) / 2, for x >= 10
    "stirling": ("x", [
        "const double square = 1 / (x * x);",
        f"return {polynomial('square', _STIRLING)} / x;",
    ]),
    # y^x e^-y / gamma(x + 1)
    "gamma_weight": ("xy", [
        "if (x < 10) return y == 0 ? (x == 0 ? 1.0 : 0.0) : exp(x * log(y) - y - lgamma(x + 1));",
        "const double power = x * rlx_log_excess_float64((y - x) / x) - rlx_stirling_float64(x);",
        "return exp(power) / sqrt(N{2 * pi} * x);",
    ]),
    # the incomplete gamma function for large x and y near x: erfc, and Temme's series for the rest
    "gamma_near": ("xyz", [
        "const double apart = (y - x) / x;",
        "const double eta = copysign(sqrt(-2 * rlx_log_excess_float64(apart)), apart), in = 1 / x;",
        f"const double series = {_temme()};",
        "const double rest = exp(-0.5 * x * eta * eta) / sqrt(N{2 * pi} * x) * series;",
        "return 0.5 * erfc(z * eta * sqrt(0.5 * x)) + z * rest;",
    ]),
    # the series and the continued fraction of the incomplete gamma function
    "gamma_series": ("xy", [
        "double term = 1, sum = 1;",
        "for (int n = 1; n < 3000 && term > 1e-17 * sum; ++n) {",
        "    term *= y / (x + n);",
        "    sum += term;",
        "}",
        "return rlx_gamma_weight_float64(x, y) * sum;",
    ]),
    "gamma_fraction": ("xy", [
        "double bottom = y + 1 - x, left = 1e300, right = 1 / bottom, result = right;",
        "for (int n = 1; n < 3000; ++n) {",
        "    const double top = n * (x - n);",
        "    bottom += 2;",
        "    right = top * right + bottom;",
        "    left = bottom + top / left;",
        "    if (fabs(right) < 1e-300) right = 1e-300;",
        "    if (fabs(left) < 1e-300) left = 1e-300;",
        "    right = 1 / right;",
        "    result *= left * right;",
        "    if (fabs(left * right - 1) < 1e-16) break;",
        "}",
        "return rlx_gamma_weight_float64(x, y) * x * result;",
    ]),
    "igamma": ("xy", [
        "if (x != x || y != y || x < 0 || y < 0) return NAN;",
        "if (x == 0) return y > 0 ? 1.0 : (double)NAN;",
        "if (y == 0) return 0;",
        "if (x == INFINITY) return y == INFINITY ? (double)NAN : 0.0;",
        "if (y == INFINITY) return 1;",
        "if (x >= 64 && fabs(y - x) < 0.3 * x) return rlx_gamma_near_float64(x, y, -1);",
        "if (y > 1 && y > x) return 1 - rlx_igammac_float64(x, y);",
        "return rlx_gamma_series_float64(x, y);",
    ]),
    "igammac": ("xy", [
        "if (x != x || y != y || x < 0 || y < 0) return NAN;",
        "if (x == 0) return y > 0 ? 0.0 : (double)NAN;",
        "if (y == 0) return 1;",
        "if (x == INFINITY) return y == INFINITY ? (double)NAN : 1.0;",
        "if (y == INFINITY) return 0;",
        "if (x >= 64 && fabs(y - x) < 0.3 * x) return rlx_gamma_near_float64(x, y, 1);",
        "if (y > 1.1 && y > x) return rlx_gamma_fraction_float64(x, y);",
        "if (y > 1.1 || x > (y > 0.5 ? 1.1 * y : -0.4 / log(y))) return 1 - rlx_gamma_series_float64(x, y);",
        "/* small x and y: 1 - y^x / gamma(1 + x), and the rest of the series */",
        "double term = 1, sum = 0;",
        "for (int n = 1; n < 100; ++n) {",
        "    term *= -y / n;",
        "    sum += term / (x + n);",
        "    if (fabs(term) < 1e-18 * fabs(sum)) break;",
        "}",
        "const double power = x * log(y) - rlx_log_gamma_one_float64(x);",
        "return -expm1(power) - x * exp(power) * sum;",
    ]),
    # ln gamma(1 + x) for x >= 0
    "log_gamma_one": ("x", [
        "if (x > 0.2) return lgamma(1 + x);",
        f"return x * {polynomial('x', [-_EULER, *_LOG_GAMMA_ONE])};",
    ]),
    "log_beta": ("xy", [
        "const double a = x < y ? x : y, b = x < y ? y : x, sum = x + y;",
        "if (x != x || y != y) return NAN;",
        "if (a <= 0 && a == floor(a)) /* a pole, unless another one takes it away */",
        "    return b == floor(b) && b > 0 && sum <= 0 ? rlx_log_beta_plain_float64(1 - sum, b) : (double)INFINITY;",
        "return rlx_log_beta_plain_float64(a, b);",
    ]),
    # away from poles
    "log_beta_plain": ("xy", [
        "const double a = x < y ? x : y, b = x < y ? y : x, sum = x + y;",
        "if (b == INFINITY) return a > 0 ? -(double)INFINITY : (double)NAN;",
        "if (b < 10 || sum < 10 || a < -0.5 * b) return lgamma(a) + (lgamma(b) - lgamma(sum));",
        "const double rest = rlx_stirling_float64(b) - rlx_stirling_float64(sum);",
        "if (a < 10) return lgamma(a) - a * (log(sum) - 1) + rest - (b - 0.5) * log1p(a / b);",
        "const double powers = a * log1p(b / a) + (b - 0.5) * log1p(a / b);",
        "return rest + rlx_stirling_float64(a) + 0.5 * log(N{2 * pi} / a) - powers;",
    ]),
    # without tgamma: Stirling's series, with powers of exact arguments
    "gamma": ("x", [
        "if (x == 0) return copysign((double)INFINITY, x);",
        "if (x < 0 && x == floor(x)) return NAN;",
        "if (x > 172) return INFINITY;",
        "if (x >= 0.5) return rlx_positive_gamma_float64(x);",
        "const double whole = floor(x + 0.5), sign = floor(whole / 2) * 2 == whole ? 1.0 : -1.0;",
        "return sign * N{pi} / (sin(N{pi} * (x - whole)) * rlx_positive_gamma_float64(1 - x));",
    ]),
    "positive_gamma": ("x", [
        "double factor = 1;",
        "for (; x < 10; x += 1) factor *= x;",
        "const double half = pow(x, 0.5 * x - 0.25);",
        "return N{sqrt(2 * pi)} * half * exp(-x) * half * exp(rlx_stirling_float64(x)) / factor;",
    ]),
    # of complex numbers x + iy: the real part (z = 0) or the imaginary one
    "log_size": ("xy", [
        "const double a = fabs(x), b = fabs(y);",
        "if (a > b) return log(a) + 0.5 * log1p(b / a * (b / a));",
        "return log(b) + 0.5 * log1p(a / b * (a / b));",
    ]),
    # where x >= 1/2 and y >= 0
    "right_loggamma": ("xyz", [
        "const double u = x < 1.5 ? x - 1 : x - 2;",
        "if (u * u + y * y < 0.04) {",
        "    /* near its zeros 1 and 2 */",
        *[f"    {line}" for line in _complex_polynomial([0, -_EULER, *_LOG_GAMMA_ONE], "u", "y")],
        "    if (x < 1.5) return z == 0 ? hr : hi;",
        "    return z == 0 ? hr + 0.5 * log1p(u * (2 + u) + y * y) : hi + atan2(y, 1 + u);",
        "}",
        "double less = 1, turn = 0;",
        "for (; x * x + y * y < 100; x += 1) {",
        "    less *= x * x + y * y;",
        "    turn += atan2(y, x);",
        "}",
        _RECIPROCAL,
        *_complex_polynomial(_STIRLING, "sr", "si"),
        "const double size = rlx_log_size_float64(x, y), angle = atan2(y, x);",
        "const double series = hr * wr - hi * wi + N{log(2 * pi) / 2};",
        "if (z == 0) return (x - 0.5) * size - y * angle - x + series - 0.5 * log(less);",
        "return (x - 0.5) * angle + y * (size - 1) + hr * wi + hi * wr - turn;",
    ]),
    # where y >= 0; left of 1/2 by the logarithm of the sine, which is log(i / 2) - i pi z + log(1 - e^(2 i pi z))
    "upper_loggamma": ("xyz", [
        "if (x != x || y != y || (y == 0 && x <= 0 && x == floor(x))) return NAN;",
        "if (x >= 0.5) return rlx_right_loggamma_float64(x, y, z);",
        "const double part = N{pi} * (x - floor(x + 0.5)), s = sin(part), c = cos(part), fall = exp(-N{2 * pi} * y);",
        "const double rest = 2 * s * s * fall - expm1(-N{2 * pi} * y), across = -2 * s * c * fall;",
        "if (z == 0) {",
        "    const double sine = N{pi} * y + rlx_log_size_float64(rest, across);",
        "    return N{log(2 * pi)} - sine - rlx_right_loggamma_float64(1 - x, y, 0);",
        "}",
        "const double turn = N{pi} * (0.5 - x) + atan2(across, rest);",
        "return rlx_right_loggamma_float64(1 - x, y, 1) - turn;",
    ]),
    "complex_loggamma_real_part": ("xy", ["return rlx_upper_loggamma_float64(x, fabs(y), 0);"]),
    "complex_loggamma_imaginary_part": ("xy", [
        "return copysign(1.0, y) * rlx_upper_loggamma_float64(x, fabs(y), 1);",
    ]),
    "complex_gamma_real_part": ("xy", [
        "const double size = exp(rlx_upper_loggamma_float64(x, fabs(y), 0));",
        "return size * cos(rlx_upper_loggamma_float64(x, fabs(y), 1));",
    ]),
    "complex_gamma_imaginary_part": ("xy", [
        "const double size = exp(rlx_upper_loggamma_float64(x, fabs(y), 0));",
        "return copysign(1.0, y) * size * sin(rlx_upper_loggamma_float64(x, fabs(y), 1));",
    ]),
    # where x >= 1/2
    "right_digamma": ("xyz", [
        "double less = 0, over = 0;",
        "for (; x * x + y * y < 100; x += 1) {",
        "    less += x / (x * x + y * y);",
        "    over -= y / (x * x + y * y);",
        "}",
        _RECIPROCAL,
        *_complex_polynomial([0, *_DIGAMMA], "sr", "si"),
        "if (z == 0) return rlx_log_size_float64(x, y) - 0.5 * wr - hr - less;",
        "return atan2(y, x) - 0.5 * wi - hi - over;",
    ]),
    # left of 1/2 by the cotangent
    "complex_digamma_part": ("xyz", [
        "if (x != x || y != y || (y == 0 && x <= 0 && x == floor(x))) return NAN;",
        "if (x >= 0.5) return rlx_right_digamma_float64(x, y, z);",
        "const double part = N{pi} * (x - floor(x + 0.5)), s = sin(part), h = sinh(N{pi} * y);",
        "const double norm = s * s + h * h;",
        "const double across = fabs(y) > 20 ? copysign(1.0, y) : h * cosh(N{pi} * y) / norm;",
        "if (z == 0) return rlx_right_digamma_float64(1 - x, -y, 0) - N{pi} * (s * cos(part) / norm);",
        "return rlx_right_digamma_float64(1 - x, -y, 1) + N{pi} * across;",
    ]),
    "complex_digamma_real_part": ("xy", ["return rlx_complex_digamma_part_float64(x, y, 0);"]),
    "complex_digamma_imaginary_part": ("xy", ["return rlx_complex_digamma_part_float64(x, y, 1);"]),
    # the sign of gamma(x)
    "gamma_sign": ("x", ["return x < 0 && floor(x / 2) * 2 != floor(x) ? -1.0 : 1.0;"]),
    "beta": ("xy", [
        "const double a = x < y ? x : y, b = x < y ? y : x, sum = x + y;",
        "if (x != x || y != y) return NAN;",
        "if (a <= 0 && a == floor(a)) {",
        "    /* a pole, which another pole below may cancel */",
        "    if (b != floor(b) || sum > 0) return INFINITY;",
        "    const double sign = floor(b / 2) * 2 == b ? 1.0 : -1.0;",
        "    return b > 0 ? sign * rlx_beta_positive_float64(1 - sum, b) : (double)INFINITY;",
        "}",
        "if (b <= 0 && b == floor(b)) return INFINITY;",
        "if (b == INFINITY) return a > 0 ? 0.0 : (double)NAN;",
        "if (sum <= 0 && sum == floor(sum)) return 0;",
        "return rlx_beta_positive_float64(a, b);",
    ]),
    "beta_positive": ("xy", [
        "const double sum = x + y;",
        "if (fabs(x) < 20 && fabs(y) < 20 && fabs(sum) > 1e-280) {",
        "    const double a = tgamma(x), b = tgamma(y), c = tgamma(sum);",
        "    return fabs(a) > fabs(b) ? a / c * b : b / c * a;",
        "}",
        "const double sign = rlx_gamma_sign_float64(x) * rlx_gamma_sign_float64(y) * rlx_gamma_sign_float64(sum);",
        "return sign * exp(rlx_log_beta_plain_float64(x, y));",
    ]),
    # the continued fraction of betainc, which converges fast for z below the mean; w is 1 - z
    "beta_fraction": ("xyzw", [
        "double left = 1, right = 1 - (x + y) * z / (x + 1);",
        "if (fabs(right) < 1e-300) right = 1e-300;",
        "right = 1 / right;",
        "double result = right;",
        "for (int n = 1; n < 5000; ++n) {",
        "    double top = n * (y - n) * z / ((x + 2 * n - 1) * (x + 2 * n));",
        "    right = 1 + top * right;",
        "    left = 1 + top / left;",
        "    if (fabs(right) < 1e-300) right = 1e-300;",
        "    if (fabs(left) < 1e-300) left = 1e-300;",
        "    right = 1 / right;",
        "    result *= left * right;",
        "    top = -(x + n) * (x + y + n) * z / ((x + 2 * n) * (x + 2 * n + 1));",
        "    right = 1 + top * right;",
        "    left = 1 + top / left;",
        "    if (fabs(right) < 1e-300) right = 1e-300;",
        "    if (fabs(left) < 1e-300) left = 1e-300;",
        "    right = 1 / right;",
        "    result *= left * right;",
        "    if (fabs(left * right - 1) < 1e-16) break;",
        "}",
        "return rlx_beta_weight_float64(x, y, z, w) * result / x;",
    ]),
    # z^x w^y / beta(x, y), where w is 1 - z
    "beta_weight": ("xyzw", [
        "const double sum = x + y;",
        "if (x < 10 || y < 10) return exp(x * log(z) + y * log(w) - rlx_log_beta_plain_float64(x, y));",
        "/* the powers and Stirling's leading terms are close: use their quotients */",
        "const double apart = z * y - w * x;",
        "const double power = x * rlx_log_excess_float64(apart / x) + y * rlx_log_excess_float64(-apart / y);",
        "const double rest = rlx_stirling_float64(sum) - rlx_stirling_float64(x) - rlx_stirling_float64(y);",
        "return exp(power + rest) * sqrt(x / sum * y / N{2 * pi});",
    ]),
    "betainc": ("xyz", [
        "if (x != x || y != y || z != z || x < 0 || y < 0 || z < 0 || z > 1) return NAN;",
        "if ((x == 0 && y == 0) || (x == INFINITY && y == INFINITY)) return NAN;",
        "if (x == 0 || y == INFINITY) return z > 0 ? 1.0 : 0.0;",
        "if (y == 0 || x == INFINITY) return z < 1 ? 0.0 : 1.0;",
        "if (z == 0 || z == 1) return z;",
        "if (z * (x + y + 2) > x + 1) return 1 - rlx_beta_fraction_float64(y, x, 1 - z, z);",
        "return rlx_beta_fraction_float64(x, y, z, 1 - z);",
    ]),
    "betaincc": ("xyz", [
        "if (x != x || y != y || z != z || x < 0 || y < 0 || z < 0 || z > 1) return NAN;",
        "if ((x == 0 && y == 0) || (x == INFINITY && y == INFINITY)) return NAN;",
        "if (x == 0 || y == INFINITY) return z > 0 ? 0.0 : 1.0;",
        "if (y == 0 || x == INFINITY) return z < 1 ? 1.0 : 0.0;",
        "if (z == 0 || z == 1) return 1 - z;",
        "if (z * (x + y + 2) > x + 1) return rlx_beta_fraction_float64(y, x, 1 - z, z);",
        "return 1 - rlx_beta_fraction_float64(x, y, z, 1 - z);",
    ]),
    "binomial": ("xy", [
        "if (x != x || y != y) return NAN;",
        "if (x < 0 && x == floor(x)) return NAN;",
        "double k = floor(y);",
        "if (k == y && k < 0) return 0;",
        "if (y > 1e15 && y > 1e8 * fabs(x) && y < INFINITY) {",
        "    /* reflected: x + 1 - y has lost the 1 */",
        "    const double turn = x == floor(x) ? 0 : sin(N{pi} * (y - 2 * floor(y / 2) - x)) / N{pi};",
        "    return rlx_gamma_sign_float64(1 + x) * turn * exp(lgamma(1 + x) - (1 + x) * log(y));",
        "}",
        "if (k == y && (fabs(x) > 1e-8 || x == 0)) {",
        "    const double whole = floor(x);",
        "    if (whole == x && k > whole / 2 && whole > 0) k = whole - k;",
        "    if (k >= 0 && k < 20) {",
        "        double top = 1, bottom = 1;",
        "        for (int n = 1; n <= (int)k; ++n) {",
        "            top *= n + x - k;",
        "            bottom *= n;",
        "            if (fabs(top) > 1e50) { top /= bottom; bottom = 1; }",
        "        }",
        "        return top / bottom;",
        "    }",
        "}",
        "if (x >= 1e10 * y && y > 0) return exp(-rlx_log_beta_float64(1 + x - y, 1 + y) - log(x + 1));",
        "return 1 / (x + 1) / rlx_beta_float64(1 + x - y, 1 + y);",
    ]),
    "pochhammer": ("xy", [
        "if (x != x || y != y) return NAN;",
        "double result = 1;",
        "for (int n = 0; n < 100 && y >= 1; ++n) {",
        "    if (x + y == 1) break;",
        "    y -= 1;",
        "    result *= x + y;",
        "    if (result == 0 || fabs(result) == INFINITY) break;",
        "}",
        "for (int n = 0; n < 100 && y <= -1; ++n) {",
        "    if (x + y == 0) break;",
        "    result /= x + y;",
        "    y += 1;",
        "    if (result == 0 || fabs(result) == INFINITY) break;",
        "}",
        "if (y == 0) return result;",
        "if (x > 1e4 && fabs(y) <= 1) {",
        "    const double first = y * (y - 1) / (2 * x), second = y * (y - 1) * (y - 2) * (3 * y - 1) / (24 * x * x);",
        "    const double third = y * y * (y - 1) * (y - 1) * (y - 2) * (y - 3) / (48 * x * x * x);",
        "    return result * pow(x, y) * (1 + first + second + third);",
        "}",
        "const double end = x + y;",
        "if (end <= 0 && end == floor(end) && x != end) return x <= 0 && x == floor(x) ? (double)NAN : INFINITY;",
        "if (x <= 0 && x == floor(x) && x != end) return 0;",
        "const double sign = rlx_gamma_sign_float64(end) * rlx_gamma_sign_float64(x);",
        "return result * sign * exp(lgamma(end) - lgamma(x));",
    ]),
    # e^-|x| times the modified Bessel function of order y at x >= 0
    "bessel_scaled": ("xy", [
        "if (x == INFINITY) return 0;",
        "double term = 1, sum = 1;",
        "if (x <= 30) {",
        "    for (int n = 1; n < 200 && term > 1e-18 * sum; ++n) {",
        "        term *= 0.25 * x * x / (n * (n + y));",
        "        sum += term;",
        "    }",
        "    return (y == 0 ? sum : 0.5 * x * sum) * exp(-x);",
        "}",
        "for (int n = 1; n < 60 && fabs(term) > 1e-18; ++n) {",
        "    term *= ((2 * n - 1) * (2 * n - 1) - 4 * y * y) / (8 * n * x);",
        "    sum += term;",
        "}",
        "return sum / sqrt(N{2 * pi} * x);",
    ]),
    "bessel_i0e": ("x", ["return x != x ? x : rlx_bessel_scaled_float64(fabs(x), 0);"]),
    "bessel_i1e": ("x", ["return x != x ? x : copysign(rlx_bessel_scaled_float64(fabs(x), 1), x);"]),
    "bessel_i0": ("x", [
        "const double middle = exp(0.5 * fabs(x));",
        "return fabs(x) == INFINITY ? (double)INFINITY : middle * rlx_bessel_i0e_float64(x) * middle;",
    ]),
    "bessel_i1": ("x", [
        "const double middle = exp(0.5 * fabs(x));",
        "return fabs(x) == INFINITY ? x : middle * rlx_bessel_i1e_float64(x) * middle;",
    ]),
    "erfcx": ("x", [
        "if (x < 0.45) return x < -27 ? (double)INFINITY : exp(x * x) * erfc(x);",
        "if (x > 20) {",
        "    const double square = 0.5 / (x * x);",
        f"    return {polynomial('square', [1, -1, 3, -15, 105, -945, 10395, -135135])} / (x * N{{root}});",
        "}",
        "const double t = (x - 4) / (x + 4);",
        f"return {polynomial('t', ERF_COMPLEMENT['double'])} / (1 + 2 * x);",
    ]),
    "log_ndtr": ("x", [
        "const double t = x * N{1 / sqrt(2)};",
        "if (x < -1) return log(0.5 * rlx_erfcx_float64(-t)) - t * t;",
        "return log1p(-0.5 * erfc(t));",
    ]),
    "ndtri": ("x", [
        "if (x != x || x < 0 || x > 1) return NAN;",
        "if (x == 0 || x == 1) return x == 0 ? -(double)INFINITY : (double)INFINITY;",
        "const double p = x > 0.5 ? 1 - x : x, t = sqrt(-2 * log(p));",
        "double q;",
        "if (p > 0.1) q = N{sqrt(2)} * rlx_inverse_erf_float64(1 - 2 * p);",
        "else {",
        "    /* a guess with three digits, and steps of Halley's method, which triple the digits */",
        f"    q = t - {polynomial('t', [2.515517, 0.802853, 0.010328])}"
        f" / {polynomial('t', [1, 1.432788, 0.189269, 0.001308])};",
        "    for (int n = 0; n < 3; ++n) {",
        "        /* (tail - p) / density, with the density factored out of the tail: neither underflows */",
        "        const double tail = 0.5 * rlx_erfcx_float64(q * N{1 / sqrt(2)});",
        "        const double step = N{sqrt(2 * pi)} * (tail - exp(log(p) + 0.5 * q * q));",
        "        q += step / (1 - 0.5 * q * step);",
        "    }",
        "}",
        "return x > 0.5 ? q : x == 0.5 ? 0.0 : -q;",
    ]),
    "owens_t": ("xy", [
        "if (x != x || y != y) return NAN;",
        "const double a = fabs(y);",
        "x = fabs(x);",
        "if (x == INFINITY || a == 0) return copysign(0.0, y);",
        "double result;",
        "if (a <= 1) result = rlx_owens_near_float64(x, a);",
        "else {",
        "    const double near = 0.5 * erfc(x * N{1 / sqrt(2)}), far = 0.5 * erfc(a * x * N{1 / sqrt(2)});",
        "    result = x == 0 && a == INFINITY ? 0.25 : 0.5 * (near + far) - near * far;",
        "    if (a < INFINITY) result -= rlx_owens_near_float64(a * x, 1 / a);",
        "}",
        "return copysign(result, y);",
    ]),
    "owens_near": ("xy", [
        "/* beyond nine standard deviations the result is 0 */",
        "const double end = x * y > 9 ? 9 / x : y, middle = 0.5 * end;",
        "double sum = 0, t;",
        *_owens_lines(),
        "return middle * sum * exp(-0.5 * x * x) * N{1 / (2 * pi)};",
    ]),
    "dawson": ("x", [
        "const double square = x * x;",
        "if (fabs(x) == INFINITY) return 1 / x;",
        "double term = 1, sum = 1;",
        "if (fabs(x) < 6.5) {",
        "    for (int n = 1; n < 200 && term > 1e-18 * sum; ++n) {",
        "        term *= square / n;",
        "        sum += term / (2 * n + 1);",
        "    }",
        "    return x * sum * exp(-square);",
        "}",
        "for (int n = 1; n < 40 && term > 1e-18; ++n) {",
        "    term *= (2 * n - 1) / (2 * square);",
        "    sum += term;",
        "}",
        "return 0.5 * sum / x;",
    ]),
    "spence": ("x", [
        "if (!(x >= 0)) return NAN;",
        "if (x == 0) return N{pi * pi / 6};",
        "if (x == INFINITY) return -(double)INFINITY;",
        "double less = 0, sign = 1;",
        "if (x > 2) {",
        "    less = -0.5 * log(x) * log(x);",
        "    sign = -1;",
        "    x = 1 / x;",
        "}",
        "if (x < 0.5) {",
        "    less += sign * (N{pi * pi / 6} - log(x) * log1p(-x));",
        "    sign = -sign;",
        "    x = 1 - x;",
        "}",
        "const double u = -log(x), square = u * u;",
        f"return less + sign * (u - 0.25 * square + u * square * {polynomial('square', _SPENCE)});",
    ]),
    "expint_one": ("x", ["return rlx_expint_n_float64(1, x);"]),
    "expint_i": ("x", [
        "if (x < 0) return -rlx_expint_one_float64(-x);",
        "if (x == 0) return -(double)INFINITY;",
        "if (!(x < INFINITY)) return x;",
        "double term = 1, sum = 0;",
        "if (x < 40) {",
        "    for (int n = 1; n < 300; ++n) {",
        "        term *= x / n;",
        "        sum += term / n;",
        "        if (term < 1e-18 * sum) break;",
        "    }",
        "    return N{euler} + log(x) + sum;",
        "}",
        "for (int n = 0; n < 60 && term > 1e-18; ++n) {",
        "    sum += term;",
        "    term *= (n + 1) / x;",
        "}",
        "const double middle = exp(0.5 * x);",
        "return middle / x * sum * middle;",
    ]),
    # of integer order x >= 0
    "expint_n": ("xy", [
        "if (x != x || y != y || x < 0 || y < 0) return NAN;",
        "if (y == INFINITY) return 0;",
        "if (y == 0) return x < 2 ? (double)INFINITY : 1 / (x - 1);",
        "if (x == 0) return exp(-y) / y;",
        "if (x > 5000) {",
        "    const double in = 1 / (x + y), q = in * in * x;",
        "    const double second = in * in * (x - 2 * y), third = in * in * in * in * (6 * y * y - 8 * x * y + x * x);",
        "    return exp(-y) * in * (1 + q * (1 + second + third));",
        "}",
        "if (y > 1) {",
        "    double bottom = y + x, left = 1e300, right = 1 / bottom, result = right;",
        "    for (int n = 1; n < 1000; ++n) {",
        "        const double top = -n * (x - 1 + n);",
        "        bottom += 2;",
        "        right = 1 / (top * right + bottom);",
        "        left = bottom + top / left;",
        "        result *= left * right;",
        "        if (fabs(left * right - 1) < 1e-16) break;",
        "    }",
        "    return result * exp(-y);",
        "}",
        "const int order = (int)x - 1;",
        "double result = order ? 1.0 / order : -log(y) - N{euler}, factor = 1;",
        "for (int n = 1; n < order + 100; ++n) {",
        "    factor *= -y / n;",
        "    double part = -factor / (n - order);",
        "    if (n == order) {",
        "        double psi = -N{euler};",
        "        for (int m = 1; m <= order; ++m) psi += 1.0 / m;",
        "        part = factor * (psi - log(y));",
        "    }",
        "    result += part;",
        "    if (n > order && fabs(part) < 1e-17 * fabs(result)) break;",
        "}",
        "return result;",
    ]),
    # E1(ix) e^(ix) for x > 0 by its continued fraction: the real part (y = 0) or the imaginary one
    "expint_imaginary": ("xy", [
        "/* the fraction's partial denominators are 1 + 2n + ix */",
        *_complex_fraction("-(double)n * n", 2, "x"),
        "return y == 0 ? hr : hi;",
    ]),
    "sine_integral": ("x", [
        "const double a = fabs(x);",
        "if (a == INFINITY) return copysign(N{pi / 2}, x);",
        "if (a <= 4) {",
        "    double term = x, sum = x;",
        "    for (int n = 1; n < 40; ++n) {",
        "        term *= -x * x / ((2 * n) * (2 * n + 1));",
        "        sum += term / (2 * n + 1);",
        "        if (fabs(term) < 1e-18 * fabs(sum)) break;",
        "    }",
        "    return sum;",
        "}",
        "const double real = rlx_expint_imaginary_float64(a, 0), imaginary = rlx_expint_imaginary_float64(a, 1);",
        "return copysign(N{pi / 2} + cos(a) * imaginary - sin(a) * real, x);",
    ]),
    "cosine_integral": ("x", [
        "const double a = fabs(x);",
        "if (a == INFINITY) return x > 0 ? 0.0 : (double)NAN;",
        "if (a == 0) return -(double)INFINITY;",
        "if (a <= 4) {",
        "    double term = 1, sum = 0;",
        "    for (int n = 1; n < 40; ++n) {",
        "        term *= -x * x / ((2 * n - 1) * (2 * n));",
        "        sum += term / (2 * n);",
        "        if (fabs(term) < 1e-18) break;",
        "    }",
        "    return N{euler} + log(a) + sum;",
        "}",
        "const double real = rlx_expint_imaginary_float64(a, 0), imaginary = rlx_expint_imaginary_float64(a, 1);",
        "return -cos(a) * real - sin(a) * imaginary;",
    ]),
    # the fresnel integrals at x >= 1.5: 1/2 minus the oscillation, by the continued fraction of erfc
    "fresnel_far": ("xy", [
        "/* erfc(w) e^(w w) w / root(pi) with w = root(pi) / 2 (1 - i) x: denominators 1 - i pi x x + 4n */",
        "const double square = N{pi} * x * x;",
        *_complex_fraction("-(2.0 * n - 1) * (2.0 * n)", 4, "-square"),
        "/* (1 + i) / 2 (1 - e^(i pi x x / 2) (1 - i) x h): x x is taken modulo 4 first */",
        "const double angle = N{pi / 2} * (x * x - 4 * floor(0.25 * x * x));",
        "const double c = cos(angle), s = sin(angle), pr = x * (hr + hi), pi = x * (hi - hr);",
        "const double er = 1 - (c * pr - s * pi), ei = -(c * pi + s * pr);",
        "return 0.5 * (y == 0 ? er - ei : er + ei);",
    ]),
    "fresnel_sine": ("x", [
        "const double a = fabs(x);",
        "if (a > 1e7) return x != x ? x : copysign(0.5, x);",
        "if (a >= 1.5) return copysign(rlx_fresnel_far_float64(a, 1), x);",
        "const double t = N{pi / 2} * x * x;",
        "double term = t, sum = t / 3;",
        "for (int n = 1; n < 40 && fabs(term) > 1e-19; ++n) {",
        "    term *= -t * t / ((2 * n) * (2 * n + 1));",
        "    sum += term / (4 * n + 3);",
        "}",
        "return x * sum;",
    ]),
    "fresnel_cosine": ("x", [
        "const double a = fabs(x);",
        "if (a > 1e7) return x != x ? x : copysign(0.5, x);",
        "if (a >= 1.5) return copysign(rlx_fresnel_far_float64(a, 0), x);",
        "const double t = N{pi / 2} * x * x;",
        "double term = 1, sum = 1;",
        "for (int n = 1; n < 40 && fabs(term) > 1e-19; ++n) {",
        "    term *= -t * t / ((2 * n - 1) * (2 * n));",
        "    sum += term / (4 * n + 1);",
        "}",
        "return x * sum;",
    ]),
}  # fmt: skip
_NUMBERS = {
    "pi": math.pi, "2 * pi": 2 * math.pi, "pi / 2": math.pi / 2, "pi * pi / 6": math.pi**2 / 6, "euler": _EULER,
    "root": _ROOT_PI, "sqrt(2)": math.sqrt(2), "1 / sqrt(2)": math.sqrt(0.5), "sqrt(2 * pi)": math.sqrt(2 * math.pi),
    "1 / (2 * pi)": 0.5 / math.pi, "log(2 * pi)": math.log(2 * math.pi), "log(2 * pi) / 2": 0.5 * math.log(2 * math.pi),
}  # fmt: skip


def _text(name: str, parameters: str, lines: Sequence[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    for word, number in _NUMBERS.items():
        body = body.replace(f"N{{{word}}}", literal(_F64, number))
    taken = ", ".join(f"double {letter}" for letter in parameters)
    return f"static double rlx_{name}_float64({taken}) {{\n{body}\n}}"


SPECIAL_TEXTS = {name: _text(name, *body) for name, body in _BODIES.items()}
