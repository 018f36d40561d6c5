"""Integrals without a closed form: exponential, sine, Fresnel, Dawson's, Spence's, and scaled error functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ops.arithmetic import add, divide, multiply, negative, select, square, subtract
from rlx.ops.comparison import equal, greater_equal
from rlx.ops.special_family import ComplexSpecial, Special, unsupported
from rlx.ops.transcendental import cos, exp, log, sin
from rlx.trace.primitive import primitive

__all__ = [
    "cosine_integral",
    "dawson",
    "erfcx",
    "expint_i",
    "expint_n",
    "expint_one",
    "faddeeva",
    "fresnel_cosine",
    "fresnel_sine",
    "sine_integral",
    "spence",
]

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
LARGEST_ORDER = 2.0**31  # its inverse is 0 in the narrow dtypes, all of whose numbers are smaller


# ------------------------------------------------------------- scaled error functions
@primitive
class erfcx(Special):
    """exp(x**2) erfc(x)."""

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, subtract(multiply(multiply(x, out), 2), TWO_OVER_ROOT_PI)),)


@primitive
class faddeeva(ComplexSpecial):
    """exp(-z**2) erfc(-i z) of complex z."""

    domain = (0.2, 1.5)

    def partials(self, out: Any, z: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(
                t, subtract(np.asarray(1j * TWO_OVER_ROOT_PI, out.dtype), multiply(multiply(z, out), 2))
            ),
        )


@primitive
class dawson(Special):
    """exp(-x**2) times the integral of exp(t**2) from 0 to x."""

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, subtract(1, multiply(multiply(x, out), 2))),)


# ------------------------------------------------------------- exponential integrals
@primitive
class expint_i(Special):
    """The principal value of the integral of exp(t) / t up to x."""

    domain = (0.3, 3.0)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, divide(exp(x), x)),)


@primitive
class expint_one(Special):
    """The integral of exp(-t) / t from x on."""

    domain = (0.3, 3.0)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, negative(divide(exp(negative(x)), x))),)


@primitive
class expint_n(Special):
    """The integral of exp(-x t) / t**n from 1 on, operands in the order n, x; n counts as an integer."""

    domain = ((2, 2), (0.3, 3.0))

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """SciPy's function, which warns about orders that are not whole or exceed an integer."""
        n, x = arrays
        return super().reference(
            np.where(np.abs(n) * n.dtype.type(1 / LARGEST_ORDER) < 1, np.trunc(n), n.dtype.type(np.nan)), x
        )

    def scalar(self, s: Any, n: Any, x: Any) -> Any:
        return s.special(self.name, s.select(s.abs(n) * (1 / LARGEST_ORDER) < 1.0, s.trunc(n), np.nan), x)

    def partials(self, out: Any, n: Any, x: Any) -> tuple[Any, ...]:
        def in_x(t: Any) -> Any:
            has_lower = greater_equal(n, 1)
            lower = expint_n(select(has_lower, subtract(n, 1), n), x)
            of_order_zero = multiply(lower, add(divide(1, x), 1))
            return multiply(t, negative(select(has_lower, lower, of_order_zero)))

        return (unsupported("expint_n", "its order n"), in_x)


# ------------------------------------------------------------- integrals of waves
@primitive
class sine_integral(Special):
    """The integral of sin(t) / t from 0 to x."""

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        is_zero = equal(x, 0)
        safe = select(is_zero, 1, x)
        return (lambda t: multiply(t, select(is_zero, 1, divide(sin(safe), safe))),)


@primitive
class cosine_integral(Special):
    """Euler's constant + log |x| + the integral of (cos(t) - 1) / t from 0 to x."""

    domain = (0.3, 3.0)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, divide(cos(x), x)),)


@primitive
class fresnel_sine(Special):
    """The integral of sin(pi t**2 / 2) from 0 to x."""

    sign_of = 0

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, sin(multiply(square(x), math.pi / 2))),)


@primitive
class fresnel_cosine(Special):
    """The integral of cos(pi t**2 / 2) from 0 to x."""

    sign_of = 0

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, cos(multiply(square(x), math.pi / 2))),)


@primitive
class spence(Special):
    """The dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x."""

    domain = (0.3, 0.8)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        is_one = equal(x, 1)
        excess = subtract(x, 1)
        safe = select(is_one, 2, x)
        # at 1 the first terms of the series, which also give the next derivative
        limit = subtract(divide(excess, 2), 1)
        return (lambda t: multiply(t, select(is_one, limit, divide(log(safe), subtract(1, safe)))),)
