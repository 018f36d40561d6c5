"""Exponentials and logarithms as straight-line code that LLVM vectorises.

Coefficients are minimax fits (Remez, relative error below a quarter of the last place) on the
reduced interval. The errors that remain are tested in tests/backends/test_scalar_accuracy.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx.backends.cpu.emit.ir_text import Value, bit_width

__all__ = ["FUNCTIONS", "exp", "expm1", "horner", "log", "log1p", "signed_power"]

# (e^r - 1 - r) / r^2 on |r| <= log(2) / 2
_EXPONENTIAL = {
    "float": (
        0.4999999403953552, 0.16666515171527863, 0.04166845604777336, 0.008369418792426586,
        0.0013813148252665997,
    ),
    "double": (
        0.5000000000000017, 0.16666666666666374, 0.04166666666648952, 0.008333333333507774,
        0.001388888895322893, 0.00019841269496400613, 2.4801483816355138e-05,
        2.755758180984295e-06, 2.763340734469226e-07, 2.500522593848289e-08,
    ),
}  # fmt: skip
# (2 atanh(s) - 2 s) / s^3 in z = s^2, for (1 + s) / (1 - s) between sqrt(1/2) and sqrt(2)
_LOGARITHM = {
    "float": (0.6666678190231323, 0.3997707962989807, 0.2988518476486206),
    "double": (
        0.666666666666674, 0.39999999999377983, 0.2857142875130256, 0.222221975873682,
        0.18183618987765865, 0.1531256987711606, 0.14811540318258035,
    ),
}  # fmt: skip
# the same two with some 40 good bits, for float32 powers
_EXPONENTIAL_MIDDLE = (
    0.5000000000462067, 0.16666666791646573, 0.04166666426653535, 0.008333279724810629,
    0.0013889209561321655, 0.0001991029515672225, 2.4706449660760863e-05,
)  # fmt: skip
_LOGARITHM_MIDDLE = (
    0.6666666667627381, 0.39999995441143193, 0.2857213019612888, 0.22175238009760814,
    0.1959878313510568,
)  # fmt: skip
_LOG2 = {
    "float": (0.6931471824645996, -1.9046542121259336e-09),
    "double": (0.6931471805599453, 2.3190468138462996e-17),
}
_LOG2_E = {
    "float": (1.4426950216293335, 1.925963033500e-08),
    "double": (1.4426950408889634, 2.0355273740931033e-17),
}
_MANTISSA = {"float": 23, "double": 52}
_BIAS = {"float": 127, "double": 1023}
# adding 3 * 2^(mantissa - 1) leaves a float's nearest integer in its low bits
_SHIFTER = {"float": 12582912.0, "double": 6755399441055744.0}
_SHIFTER_BITS = {"float": 0x4B400000, "double": 0x4338000000000000}
# beyond these exp is infinite, or rounds to zero (with one doubling to spare)
_EXP_RANGE = {"float": (-105.0, 90.0), "double": (-747.0, 711.0)}
_EXPM1_LEAST = {"float": -20.0, "double": -40.0}
_ROOT_HALF_BITS = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}


def horner(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with the constant coefficient first."""
    result = x.lift(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result.fma(x, coefficient)
    return result


def clamp(x: Value, low: float, high: float) -> Value:
    """x within bounds; NaN stays."""
    x = (x < low).where(low, x)
    return (x > high).where(high, x)


def nearest(x: Value) -> tuple[Value, Value]:
    """The nearest integer of a small x, as a float and as an integer (any integer for NaN)."""
    shifted = x + _SHIFTER[x.kind]
    return shifted - _SHIFTER[x.kind], shifted.bits() - _SHIFTER_BITS[x.kind]


def float_of(n: Value) -> Value:
    """A small integer as a float of the same width."""
    kind = {32: "float", 64: "double"}[bit_width(n.kind)]
    return (n + _SHIFTER_BITS[kind]).as_float() - _SHIFTER[kind]


def power_of_two(n: Value) -> Value:
    """2^n for a normal result."""
    kind = {32: "float", 64: "double"}[bit_width(n.kind)]
    return ((n + _BIAS[kind]) << _MANTISSA[kind]).as_float()


def scale(x: Value, n: Value) -> Value:
    """x * 2^n in two steps, so that overflow and subnormal results come out right."""
    half = n.arithmetic_shift(1)
    return x * power_of_two(half) * power_of_two(n - half)


def _reduce_exponent(x: Value) -> tuple[Value, Value, Value]:
    """x = n log(2) + r + e with a tiny e: r, e and n."""
    shifted = x.fma(_LOG2_E[x.kind][0], _SHIFTER[x.kind])
    count = shifted - _SHIFTER[x.kind]
    high, low = _LOG2[x.kind]
    first = count.fma(-high, x)
    reduced = count.fma(-low, first)
    error = count.fma(-low, first - reduced)
    return reduced, error, shifted.bits() - _SHIFTER_BITS[x.kind]


def _exp_times(x: Value, doublings: int) -> Value:
    r, _, n = _reduce_exponent(clamp(x, *_EXP_RANGE[x.kind]))
    p = horner(r, _EXPONENTIAL[x.kind])
    return scale((r * r).fma(p, r) + 1.0, n + doublings if doublings else n)


def exp(x: Value) -> Value:
    """e^x."""
    return _exp_times(x, 0)


def exp_half(x: Value) -> Value:
    """e^x / 2 without early overflow."""
    return _exp_times(x, -1)


def exp2(x: Value) -> Value:
    """2^x."""
    limit = float(_BIAS[x.kind] + 2)
    x = clamp(x, -limit - _MANTISSA[x.kind], limit)
    count, n = nearest(x)
    r = (x - count) * _LOG2[x.kind][0]
    return scale((r * r).fma(horner(r, _EXPONENTIAL[x.kind]), r) + 1.0, n)


def expm1(x: Value) -> Value:
    """e^x - 1."""
    r, error, n = _reduce_exponent(clamp(x, _EXPM1_LEAST[x.kind], _EXP_RANGE[x.kind][1] - 1.0))
    p = (r * r).fma(horner(r, _EXPONENTIAL[x.kind]), error) + r
    # one factor of two is kept back: 2^n itself may overflow
    unit = power_of_two(n - 1)
    result = unit.fma(p, unit - 0.5) * 2.0
    # e^x - 1 rounds to x here; half of a subnormal number would be lost
    return (abs(x) < 2.0 ** -(_MANTISSA[x.kind] + 2)).where(x, result)


def _tanh(x: Value) -> Value:
    t = expm1(abs(x) * -2.0)
    # near 1 the small difference from 1 must be exact
    large = t < -0.75
    quotient = large.where((t + 1.0) * 2.0, -t) / (t + 2.0)
    return large.where(1.0 - quotient, quotient).call("copysign", x)


def _sinh(x: Value) -> Value:
    a = abs(x)
    t = expm1(a)
    small = (t + t / (t + 1.0)) * 0.5
    half = exp_half(a)
    return (a < 1.0).where(small, half - 0.25 / half).call("copysign", x)


def _cosh(x: Value) -> Value:
    half = exp_half(abs(x))
    return half + 0.25 / half


def _logistic(x: Value) -> Value:
    e = exp(-abs(x))
    return (x >= 0.0).where(1.0, e) / (e + 1.0)


def split_exponent(x: Value) -> tuple[Value, Value]:
    """x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2): f, and k as a float."""
    mantissa = _MANTISSA[x.kind]
    subnormal = x < 2.0 ** (1 - _BIAS[x.kind])
    bits = subnormal.where(x * 2.0**mantissa, x).bits() - _ROOT_HALF_BITS[x.kind]
    k = bits.arithmetic_shift(mantissa) + subnormal.where(bits.lift(-mantissa), 0)
    m = (bits & ((1 << mantissa) - 1)) + _ROOT_HALF_BITS[x.kind]
    return m.as_float() - 1.0, float_of(k)


def _log_tail(f: Value, coefficients: Sequence[float]) -> Value:
    """f - log(1 + f)."""
    s = f / (f + 2.0)
    z = s * s
    square = f * f * 0.5
    return square - s * (z.fma(horner(z, coefficients), square))


def log_domain(x: Value, result: Value) -> Value:
    """A logarithm's values at 0, negative numbers, infinity and NaN."""
    outside = (x < 0.0).where(float("nan"), x + abs(x))
    result = (x > 0.0).where(result, outside)
    result = x.equal(0.0).where(float("-inf"), result)
    return x.equal(float("inf")).where(x, result)


def _log_plus(x: Value, correction: Value | None) -> Value:
    f, k = split_exponent(x)
    high, low = _LOG2[x.kind]
    small = k * low if correction is None else k.fma(low, correction)
    return k.fma(high, f - (_log_tail(f, _LOGARITHM[x.kind]) - small))


def log(x: Value) -> Value:
    """Natural logarithm."""
    return log_domain(x, _log_plus(x, None))


def log1p(x: Value) -> Value:
    """log(1 + x)."""
    u = x + 1.0
    virtual = u - 1.0
    lost = (1.0 - (u - virtual)) + (x - virtual)
    result = log_domain(u, _log_plus(u, lost / u))
    return x.equal(0.0).where(x, result)


def _log2(x: Value) -> Value:
    f, k = split_exponent(x)
    tail = _log_tail(f, _LOGARITHM[x.kind])
    high = f - tail
    low = (f - high) - tail
    unit, unit_low = _LOG2_E[x.kind]
    product = high * unit
    rest = high.fma(unit, -product) + high.fma(unit_low, low * unit)
    total = k + product
    return log_domain(x, total + (product - (total - k) + rest))


def _asinh(x: Value) -> Value:
    a = abs(x.convert("fpext", "double"))
    root = (a.fma(a, 1.0)).call("sqrt")
    ordinary = log1p(a + a * a / (root + 1.0))
    huge = log(a) + math.log(2.0)
    result = (a < 1e8).where(ordinary, huge)
    return result.convert("fptrunc", x.kind).call("copysign", x)


def _acosh(x: Value) -> Value:
    wide = x.convert("fpext", "double")
    t = wide - 1.0
    ordinary = log1p(t + t.fma(t, t * 2.0).call("sqrt"))
    huge = log(wide) + math.log(2.0)
    result = (wide < 1e8).where(ordinary, huge).convert("fptrunc", x.kind)
    return (x < 1.0).where(float("nan"), result)


def _atanh(x: Value) -> Value:
    a = abs(x.convert("fpext", "double"))
    result = log1p(a * 2.0 / (1.0 - a)) * 0.5
    return result.convert("fptrunc", x.kind).call("copysign", x)


def _cbrt(x: Value) -> Value:
    wide = abs(x.convert("fpext", "double"))
    # kept away from both ends of the range, where cubes would leave it
    subnormal, large = wide < 2.0**-1022, wide > 2.0**1000
    factor = subnormal.where(wide.lift(2.0**54), large.where(wide.lift(2.0**-54), 1.0))
    a = wide * factor
    # a third of the exponent gives five good bits, each of Halley's steps triples them
    third = a.bits().convert("uitofp", "double") * (1.0 / 3.0)
    guess = (third.convert("fptosi", "i64") + 0x2A9F7893782DA1CE).as_float()
    for _ in range(3):
        cube = guess * guess * guess
        guess = guess - guess * ((cube - a) / (cube * 2.0 + a))
    undo = subnormal.where(wide.lift(2.0**-18), large.where(wide.lift(2.0**18), 1.0))
    result = guess * undo
    trivial = x.equal(0.0) | x.is_nan() | abs(x).equal(float("inf"))
    return trivial.where(x, result.convert("fptrunc", x.kind).call("copysign", x))


def _exp2_middle(t: Value) -> Value:
    t = clamp(t, -1000.0, 1000.0)
    count, n = nearest(t)
    r = (t - count) * math.log(2.0)
    return ((r * r).fma(horner(r, _EXPONENTIAL_MIDDLE), r) + 1.0) * power_of_two(n)


def _power_single(x: Value, y: Value) -> Value:
    wide = x.convert("fpext", "double")
    f, k = split_exponent(wide)
    logarithm = (f - _log_tail(f, _LOGARITHM_MIDDLE)).fma(math.log2(math.e), k)
    logarithm = wide.equal(0.0).where(float("-inf"), logarithm)
    logarithm = wide.equal(float("inf")).where(wide, logarithm)
    return _exp2_middle(logarithm * y.convert("fpext", "double")).convert("fptrunc", x.kind)


def _pow(x: Value, y: Value) -> Value:
    if x.kind == "double":
        return x.call("pow", y)
    return signed_power(x, y, _power_single(abs(x), y))


def signed_power(x: Value, y: Value, magnitude: Value) -> Value:
    """x^y, given |x|^y but for the exceptions."""
    a = abs(x)
    whole = y.call("trunc").equal(y)
    half = y * 0.5
    odd = whole & half.call("trunc").not_equal(half)
    signed = (odd & (x.bits() < 0)).where(-magnitude, magnitude)
    nan = x.lift(float("nan"))
    undefined = (x < 0.0) & ~whole & a.compare("one", float("inf"))
    result = (undefined | x.is_nan() | y.is_nan()).where(nan, signed)
    one = y.equal(0.0) | x.equal(1.0) | (a.equal(1.0) & abs(y).equal(float("inf")))
    return one.where(1.0, result)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "log2": _log2,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "logistic": _logistic,
    "cbrt": _cbrt,
    "pow": _pow,
}
