"""The beta function, its logarithm, and the incomplete beta functions with all their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ops.arithmetic import absolute, add, convert, divide, multiply, negative, select, square, subtract
from rlx.ops.comparison import bitwise_and, equal, greater, less
from rlx.ops.differences import slope, widened
from rlx.ops.special import digamma
from rlx.ops.special_family import Special
from rlx.ops.stirling import log_beta_formula
from rlx.ops.transcendental import exp, log, log1p, sqrt
from rlx.trace.primitive import primitive, type_of

__all__ = ["beta", "betainc", "betaincc", "digamma_difference", "log_beta"]

# from here on the asymptotic series of digamma has an error below one unit in the last place
LARGE = 20.0


# ------------------------------------------------------------- the beta function
def _below_logarithm(x: Any) -> Any:
    """log(x) - digamma(x) for large x, by its asymptotic series."""
    inverse = divide(1, x)
    power = square(inverse)
    series = subtract(1 / 252, divide(power, 240))
    series = add(1 / 12, multiply(power, add(-1 / 120, multiply(power, series))))
    return multiply(inverse, add(0.5, multiply(inverse, series)))


def digamma_difference(a: Any, b: Any) -> Any:
    """digamma(a) - digamma(a + b), which is accurate even if a is much larger than b."""
    is_large = bitwise_and(greater(a, LARGE), greater(add(a, b), LARGE))
    start, width = select(is_large, a, LARGE), select(is_large, b, 1)
    series = subtract(_below_logarithm(add(start, width)), _below_logarithm(start))
    near, far = select(is_large, 1, a), select(is_large, 1, b)
    plain = subtract(digamma(near), digamma(add(near, far)))
    return select(is_large, subtract(series, log1p(divide(width, start))), plain)


@primitive
class beta(Special):
    """gamma(a) gamma(b) / gamma(a + b)."""

    domain = ((0.5, 3.0), (0.5, 3.0))

    def partials(self, out: Any, a: Any, b: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, multiply(out, digamma_difference(a, b))),
            lambda t: multiply(t, multiply(out, digamma_difference(b, a))),
        )


@primitive
class log_beta(Special):
    """log |beta(a, b)|."""

    domain = ((0.5, 3.0), (0.5, 3.0))

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """The formula for arrays, rounded to the operands' dtype."""
        return log_beta_formula.array(*arrays)

    def scalar(self, s: Any, a: Any, b: Any) -> Any:
        return log_beta_formula.scalar(s, a, b)

    def partials(self, out: Any, a: Any, b: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, digamma_difference(a, b)),
            lambda t: multiply(t, digamma_difference(b, a)),
        )


# ------------------------------------------------------------- incomplete
def _density(a: Any, b: Any, x: Any) -> Any:
    """The density of the beta distribution: the derivative of betainc in x."""
    left, right = multiply(subtract(a, 1), log(x)), multiply(subtract(b, 1), log1p(negative(x)))
    return exp(subtract(add(left, right), log_beta(a, b)))


def _step(shape: Any, other: Any, log_x: Any) -> Any:
    """A small part of the scale on which betainc varies in one of its shape parameters."""
    total = add(shape, other)
    width = sqrt(divide(other, multiply(shape, total)))
    place = absolute(add(log_x, log(divide(total, shape))))
    return divide(0.02, add(add(width, place), divide(1, shape)))


def _slope_from_one(moved: int, a: Any, b: Any, x: Any) -> Any:
    """The derivative in a or b, which is at least 1: in each tail of the function that is small there."""
    operands = (a, b, x)
    step = _step(b, a, log1p(negative(x))) if moved else _step(a, b, log(x))
    lower, upper = slope(betainc, operands, moved, step), slope(betaincc, operands, moved, step)
    return select(less(multiply(x, add(a, b)), a), lower, negative(upper))


def _shape_slope(moved: int, a: Any, b: Any, x: Any) -> Any:
    """The derivative of betainc in a (moved: 0) or b (moved: 1).

    betainc(a, b, x) is betainc(a + 1, b, x) + v / a, and betainc(a, b + 1, x) - v / b, with
    v = x**a (1 - x)**b / beta(a, b): that keeps the parameter away from 0.
    """
    shape, other = (b, a) if moved else (a, b)
    is_small = less(shape, 1)
    raised = select(is_small, add(shape, 1), shape)
    regular = _slope_from_one(moved, *((a, raised) if moved else (raised, b)), x)
    log_of_x, log_of_rest = log(x), log1p(negative(x))
    logarithm = subtract(add(multiply(a, log_of_x), multiply(b, log_of_rest)), add(log_beta(a, b), log(shape)))
    derivative = subtract(
        subtract(log_of_rest if moved else log_of_x, digamma_difference(shape, other)), divide(1, shape)
    )
    term = multiply(exp(logarithm), derivative)
    return select(is_small, (subtract if moved else add)(regular, term), regular)


def _guarded_slope(moved: int, out: Any, a: Any, b: Any, x: Any) -> Any:
    """The derivative of betainc in a or b: 0 at both ends of 0..1, NaN where betainc is NaN."""
    wide = [widened(v) for v in (a, b, x)]
    is_inside = bitwise_and(greater(wide[2], 0), less(wide[2], 1))
    found = _shape_slope(moved, wide[0], wide[1], select(is_inside, wide[2], 0.5))
    inside = convert(select(is_inside, found, 0), dtype=type_of(out).dtype)
    return select(equal(out, out), inside, out)


class IncompleteBeta(Special):
    """betainc or its complement: their derivatives differ in sign."""

    domain = ((0.8, 3.0), (0.8, 3.0), (0.2, 0.8))
    grows = True

    def partials(self, out: Any, a: Any, b: Any, x: Any) -> tuple[Any, ...]:
        signed = (lambda v: v) if self.grows else negative
        return (
            lambda t: multiply(t, signed(_guarded_slope(0, out, a, b, x))),
            lambda t: multiply(t, signed(_guarded_slope(1, out, a, b, x))),
            lambda t: multiply(t, signed(_density(a, b, x))),
        )


@primitive
class betainc(IncompleteBeta):
    """The regularised incomplete beta function of a, b and x."""


@primitive
class betaincc(IncompleteBeta):
    """1 - betainc(a, b, x), exact where betainc is near 1."""

    grows = False
