"""The hypergeometric functions 1F1 and 2F1, with derivatives in their parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ops.arithmetic import absolute, add, convert, divide, minimum, multiply, round, subtract
from rlx.ops.differences import slope, widened
from rlx.ops.formulas import Formula
from rlx.ops.special_family import Special
from rlx.ops.transcendental import log1p, sqrt
from rlx.trace.primitive import primitive, type_of

__all__ = ["confluent_hypergeometric", "hypergeometric"]


# from here on two terms of the asymptotic series are exact; SciPy's function may not terminate there
FAR = 1e8


def _confluent(s: Any, a: Any, b: Any, x: Any) -> Any:
    """1F1: SciPy's, or far from 0 its asymptotic series (NIST DLMF 13.2.4 and 13.2.23)."""
    is_far = s.abs(x) > FAR
    near = s.special("confluent_hypergeometric", a, b, s.select(is_far, 0.0, x))
    size = s.select(is_far, s.abs(x), FAR)
    falling = s.special("pochhammer", b - a, a) * s.pow(size, -a) * (1 - a * (1 + a - b) / s.copysign(size, x))
    growth = s.special("pochhammer", a, b - a)
    # a polynomial of degree -a if a is a negative integer: the exponential term is 0
    polynomial = s.select(s.eq(s.rem(a, 2.0), 0.0), falling, -falling)
    rising = s.select(s.eq(growth, 0.0), polynomial, s.copysign(math.inf, growth))
    return s.select(is_far, s.select(x > 0, rising, falling), near)


def _hypergeometric(s: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    """2F1: SciPy's, which may not terminate if x is NaN."""
    is_number = s.eq(a, a) & s.eq(b, b) & s.eq(c, c) & s.eq(x, x)
    return s.select(is_number, s.special("hypergeometric", a, b, c, s.select(is_number, x, 0.0)), math.nan)


confluent_formula = Formula(_confluent)
hypergeometric_formula = Formula(_hypergeometric)


def _upper_step(parameter: Any, growth: Any) -> Any:
    """A small part of the scale on which the functions, entire in an upper parameter, vary."""
    return divide(multiply(sqrt(add(absolute(parameter), 1)), 0.01), add(growth, 1))


def _lower_step(parameter: Any) -> Any:
    """A small part of the distance to the next pole, at 0, -1, -2..."""
    pole = minimum(round(parameter, mode="even"), 0)
    return multiply(absolute(subtract(parameter, pole)), 0.01)


class Hypergeometric(Special):
    """A series in x whose coefficients are ratios of products over the parameters before x."""

    upper: int  # the number of parameters in the numerator; the next one is in the denominator

    def partials(self, out: Any, *operands: Any) -> tuple[Any, ...]:
        def partial(moved: int) -> Any:
            return lambda t: multiply(t, self.slope_in(moved, operands))

        return tuple(partial(n) for n in range(len(operands)))

    def growth(self, x: Any) -> Any:
        """A bound of the function's relative growth per unit of an upper parameter."""
        raise NotImplementedError(self.name)

    def slope_in(self, moved: int, operands: tuple[Any, ...]) -> Any:
        """The derivative in one operand."""
        if moved == len(operands) - 1:
            return self.slope_in_x(*operands)
        wide = [widened(v) for v in operands]
        shape = wide[moved]
        step = _upper_step(shape, self.growth(wide[-1])) if moved < self.upper else _lower_step(shape)
        return convert(slope(self, wide, moved, step), dtype=type_of(operands[moved]).dtype)

    def slope_in_x(self, *operands: Any) -> Any:
        """The derivative in x: the same function with all parameters raised by 1."""
        *parameters, x = operands
        *upper, lower = parameters
        factor = divide(1, lower)
        for parameter in upper:
            factor = multiply(factor, parameter)
        return multiply(factor, self(*[add(p, 1) for p in parameters], x))


@primitive
class confluent_hypergeometric(Hypergeometric):
    """1F1, operands in the order a, b, x."""

    upper = 1
    domain = ((0.5, 3.0), (0.5, 3.0), (-1.0, 2.0))

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """The formula for arrays, rounded to the operands' dtype."""
        return confluent_formula.array(*arrays)

    def scalar(self, s: Any, a: Any, b: Any, x: Any) -> Any:
        return confluent_formula.scalar(s, a, b, x)

    def growth(self, x: Any) -> Any:
        return log1p(absolute(x))


@primitive
class hypergeometric(Hypergeometric):
    """2F1, operands in the order a, b, c, x."""

    upper = 2
    domain = ((0.5, 2.0), (0.5, 2.0), (0.5, 2.0), (0.1, 0.6))

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """The formula for arrays, rounded to the operands' dtype."""
        return hypergeometric_formula.array(*arrays)

    def scalar(self, s: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
        return hypergeometric_formula.scalar(s, a, b, c, x)

    def growth(self, x: Any) -> Any:
        return absolute(log1p(multiply(x, -1)))
