"""Functions of probabilities: products with logarithms, and the normal distribution's functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ops.arithmetic import add, divide, multiply, negative, select, square, subtract
from rlx.ops.comparison import less
from rlx.ops.families import Elementwise
from rlx.ops.special import erf
from rlx.ops.special_family import Special
from rlx.ops.special_integrals import erfcx
from rlx.ops.transcendental import exp, log, log1p
from rlx.trace.primitive import primitive

__all__ = ["entr", "log_ndtr", "logit", "ndtri", "owens_t", "xlog1py", "xlogy"]

HALF_ROOT = math.sqrt(0.5)
LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


# ------------------------------------------------------------- products with logarithms
class LogarithmicProduct(Elementwise):
    """x times a logarithm of y: 0 where x is 0, unless y is NaN."""

    kinds = "fc"
    domain = ((0.3, 2.0), (0.3, 2.0))

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        logarithm = np.log(y) if self.name == "xlogy" else np.log1p(y)
        return np.where((x == 0) & ~np.isnan(y), x.dtype.type(0), x * logarithm)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        logarithm = s.log(y) if self.name == "xlogy" else s.log1p(y)
        is_zero = s.and_(s.eq(x, 0), s.not_(s.is_nan(y)))
        return s.select(is_zero, s.constant_like(x, 0), x * logarithm)


@primitive
class xlogy(LogarithmicProduct):
    """x log(y)."""

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, log(y)), lambda t: divide(multiply(t, x), y))


@primitive
class xlog1py(LogarithmicProduct):
    """x log(1 + y)."""

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, log1p(y)), lambda t: divide(multiply(t, x), add(y, 1)))


@primitive
class entr(Elementwise):
    """-x log(x), 0 at 0 and -inf below."""

    kinds = "f"
    domain = (0.3, 2.0)

    def compute(self, x: np.ndarray) -> Any:
        inside = np.where(x == 0, x.dtype.type(0), -x * np.log(x))
        return np.where(x < 0, x.dtype.type(-np.inf), inside)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.select(x < 0.0, -np.inf, s.select(s.eq(x, 0.0), 0.0, -x * s.log(x)))

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, select(less(x, 0), 0, negative(add(log(x), 1)))),)


@primitive
class logit(Elementwise):
    """log(x / (1 - x)), accurate also around 1/2."""

    kinds = "f"
    domain = (0.1, 0.9)

    def compute(self, x: np.ndarray) -> Any:
        excess = 2 * (x - x.dtype.type(0.5))
        near = np.log1p(excess) - np.log1p(-excess)
        return np.where((x > 0.3) & (x < 0.65), near, np.log(x / (1 - x)))

    def scalar(self, s: Any, x: Any) -> Any:
        excess = 2.0 * (x - 0.5)
        near = s.log1p(excess) - s.log1p(-excess)
        return s.select((x > 0.3) & (x < 0.65), near, s.log(x / (1.0 - x)))

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: divide(t, multiply(x, subtract(1, x))),)


# ------------------------------------------------------------- the normal distribution
@primitive
class ndtri(Special):
    """The quantile of the normal distribution: the x below which a normal variable is with a given probability."""

    domain = (0.1, 0.9)

    def partials(self, out: Any, p: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, exp(add(divide(square(out), 2), LOG_ROOT_TWO_PI))),)


@primitive
class log_ndtr(Special):
    """The logarithm of the probability that a normal variable is below x."""

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        def in_x(t: Any) -> Any:
            # density over probability: far below 0 both underflow, but their ratio is known
            is_low = less(x, -1)
            low = divide(math.sqrt(2 / math.pi), erfcx(multiply(select(is_low, x, -1), -HALF_ROOT)))
            exponent = subtract(negative(add(divide(square(x), 2), LOG_ROOT_TWO_PI)), out)
            return multiply(t, select(is_low, low, exp(select(is_low, 0, exponent))))

        return (in_x,)


@primitive
class owens_t(Special):
    """The probability that a normal variable is above h, and another variable between 0 and a times the first."""

    sign_of = 1
    domain = ((-1.5, 1.5), (-1.5, 1.5))

    def partials(self, out: Any, h: Any, a: Any) -> tuple[Any, ...]:
        def in_h(t: Any) -> Any:
            density = exp(subtract(divide(square(h), -2), LOG_ROOT_TWO_PI))
            return multiply(t, multiply(multiply(density, erf(multiply(multiply(a, h), HALF_ROOT))), -0.5))

        def in_a(t: Any) -> Any:
            rest = add(square(a), 1)
            return multiply(t, divide(exp(divide(multiply(rest, square(h)), -2)), multiply(rest, 2 * math.pi)))

        return (in_h, in_a)
