"""Special functions: error functions, gamma functions, Bessel functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ir.types import is_float
from rlx.ops.arithmetic import (
    absolute,
    add,
    complex,
    convert,
    divide,
    imag,
    minimum,
    multiply,
    negative,
    real,
    round,
    select,
    sign,
    square,
    subtract,
)
from rlx.ops.comparison import greater, less_equal
from rlx.ops.differences import slope, widened
from rlx.ops.families import Elementwise, scalar_like
from rlx.ops.gamma_slope import gamma_sample_slope, gamma_slope
from rlx.ops.special_family import ComplexSpecial, Special, unsupported
from rlx.ops.transcendental import exp, log, sqrt
from rlx.trace.primitive import primitive, type_of

__all__ = [
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "bessel_j",
    "binomial",
    "complex_digamma",
    "complex_gamma",
    "complex_loggamma",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "gamma",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "lgamma",
    "pochhammer",
    "polygamma",
    "random_gamma_grad",
    "zeta",
]

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


class ErrorFunction(Elementwise):
    """An error function: the scalar operation with the primitive's name."""

    kinds = "f"
    scipy_name: str

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """SciPy's function in float64, rounded to the operand's dtype."""
        import scipy.special

        (x,) = arrays
        return np.asarray(getattr(scipy.special, self.scipy_name)(x.astype(np.float64))).astype(x.dtype)

    def scalar(self, s: Any, x: Any) -> Any:
        return getattr(s, self.name)(x)


# ------------------------------------------------------------- error functions
@primitive
class erf(ErrorFunction):
    """The error function."""

    scipy_name = "erf"

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(exp(negative(square(x))), TWO_OVER_ROOT_PI)),)


@primitive
class erfc(ErrorFunction):
    """1 - erf(x), exact for large x."""

    scipy_name = "erfc"

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(exp(negative(square(x))), -TWO_OVER_ROOT_PI)),)


@primitive
class erf_inv(ErrorFunction):
    """The inverse of the error function, on -1..1."""

    scipy_name = "erfinv"
    domain = (-0.8, 0.8)

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """SciPy's function, which has 0. at -0."""
        return np.copysign(super().reference(*arrays), arrays[0])

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(exp(square(out)), 1 / TWO_OVER_ROOT_PI)),)


# ------------------------------------------------------------- the gamma function
@primitive
class lgamma(Special):
    """log |gamma(x)|, infinite at both infinities."""

    domain = (0.5, 4.0)

    def reference(self, x: np.ndarray) -> Any:
        """SciPy's function, which is -inf at -inf."""
        return super().reference(np.where(x == -np.inf, x.dtype.type(np.inf), x))

    def scalar(self, s: Any, x: Any) -> Any:
        return s.special("lgamma", s.select(s.eq(x, -math.inf), math.inf, x))

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, digamma(x)),)


@primitive
class digamma(Special):
    """The derivative of lgamma."""

    domain = (0.5, 4.0)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, polygamma(1, x)),)


@primitive
class polygamma(Special):
    """The m-th derivative of digamma at x, operands in the order m, x."""

    domain = ((1, 1), (0.8, 4.0))

    def partials(self, out: Any, m: Any, x: Any) -> tuple[Any, ...]:
        return (
            unsupported("polygamma", "its order m"),
            lambda t: multiply(t, polygamma(add(m, 1), x)),
        )


@primitive
class zeta(Special):
    """Hurwitz's zeta function: the sum over k >= 0 of (q + k) ** -x."""

    domain = ((2.0, 4.0), (0.8, 3.0))

    def partials(self, out: Any, x: Any, q: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, _zeta_slope(x, q)),
            lambda t: multiply(t, multiply(negative(x), zeta(add(x, 1), q))),
        )


def _zeta_slope(x: Any, q: Any) -> Any:
    """The derivative of zeta in x; it has a pole at x = 1 and falls as q ** -x."""
    wide_x, wide_q = widened(x), widened(q)
    distance = subtract(wide_x, 1)
    step = divide(multiply(distance, 0.01), add(multiply(distance, absolute(log(absolute(wide_q)))), 1))
    return convert(slope(zeta, (wide_x, wide_q), 0, step), dtype=type_of(x).dtype)


@primitive
class gamma(Special):
    """The gamma function."""

    domain = (0.5, 4.0)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(out, digamma(x))),)


@primitive
class pochhammer(Special):
    """gamma(z + m) / gamma(z)."""

    domain = ((0.5, 4.0), (0.5, 3.0))

    def partials(self, out: Any, z: Any, m: Any) -> tuple[Any, ...]:
        end = digamma(add(z, m))
        return (
            lambda t: multiply(t, multiply(out, subtract(end, digamma(z)))),
            lambda t: multiply(t, multiply(out, end)),
        )


@primitive
class binomial(Special):
    """gamma(n + 1) / (gamma(k + 1) gamma(n - k + 1))."""

    domain = ((4.0, 6.0), (0.5, 3.0))

    def partials(self, out: Any, n: Any, k: Any) -> tuple[Any, ...]:
        rest = digamma(add(subtract(n, k), 1))
        return (
            lambda t: multiply(t, multiply(out, subtract(digamma(add(n, 1)), rest))),
            lambda t: multiply(t, multiply(out, subtract(rest, digamma(add(k, 1))))),
        )


# ------------------------------------------------------------- complex functions
@primitive
class complex_gamma(ComplexSpecial):
    """The gamma function of complex numbers."""

    domain = (0.5, 3.0)

    def partials(self, out: Any, z: Any) -> tuple[Any, ...]:
        return (multiply(out, complex_digamma(z)),)


@primitive
class complex_loggamma(ComplexSpecial):
    """The logarithm of gamma, continued from the positive numbers: cut along the negative ones."""

    domain = (0.5, 3.0)

    def partials(self, out: Any, z: Any) -> tuple[Any, ...]:
        return (complex_digamma(z),)


@primitive
class complex_digamma(ComplexSpecial):
    """The derivative of complex_loggamma."""

    domain = (0.5, 3.0)

    def partials(self, out: Any, z: Any) -> tuple[Any, ...]:
        wide = widened(z)
        pole = minimum(round(real(wide), mode="even"), 0)
        distance = absolute(complex(subtract(real(wide), pole), imag(wide)))
        step = complex(multiply(distance, 0.01), multiply(distance, 0))
        return (convert(slope(complex_digamma, (wide,), 0, step), dtype=type_of(z).dtype),)


# ------------------------------------------------------------- incomplete functions
def _gamma_density(a: Any, x: Any) -> Any:
    """The density of the gamma distribution: the derivative of igamma(a, x) in x."""
    return exp(subtract(subtract(multiply(subtract(a, 1), log(x)), x), lgamma(a)))


@primitive
class igamma(Special):
    """The regularised lower incomplete gamma function of a and x."""

    domain = ((0.5, 3.0), (0.3, 4.0))

    def partials(self, out: Any, a: Any, x: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, igamma_grad_a(a, x)),
            lambda t: multiply(t, _gamma_density(a, x)),
        )


@primitive
class igammac(Special):
    """1 - igamma(a, x), exact for large x."""

    domain = ((0.5, 3.0), (0.3, 4.0))

    def partials(self, out: Any, a: Any, x: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, negative(igamma_grad_a(a, x))),
            lambda t: multiply(t, negative(_gamma_density(a, x))),
        )


class GammaSlope(Elementwise):
    """A derivative of the incomplete gamma function in a."""

    kinds = "f"
    domain = ((0.5, 3.0), (0.3, 4.0))

    def slope_in_a(self, a: Any, x: Any) -> Any:
        """Its derivative in a, by differences over a part of the width of the distribution."""
        wide_a, wide_x = widened(a), widened(x)
        scale = add(divide(1, minimum(sqrt(wide_a), wide_a)), absolute(log(divide(wide_x, wide_a))))
        return convert(slope(self, (wide_a, wide_x), 0, divide(0.02, scale)), dtype=type_of(a).dtype)


@primitive
class igamma_grad_a(GammaSlope):
    """The derivative of igamma(a, x) in a."""

    def compute(self, a: np.ndarray, x: np.ndarray) -> Any:
        return gamma_slope.array(a, x)

    def scalar(self, s: Any, a: Any, x: Any) -> Any:
        return gamma_slope.scalar(s, a, x)

    def partials(self, out: Any, a: Any, x: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, self.slope_in_a(a, x)),
            lambda t: multiply(t, multiply(_gamma_density(a, x), subtract(log(x), digamma(a)))),
        )


@primitive
class random_gamma_grad(GammaSlope):
    """The derivative in a of a sample x of the gamma distribution, at a fixed quantile."""

    def compute(self, a: np.ndarray, x: np.ndarray) -> Any:
        return gamma_sample_slope.array(a, x)

    def scalar(self, s: Any, a: Any, x: Any) -> Any:
        return gamma_sample_slope.scalar(s, a, x)

    def partials(self, out: Any, a: Any, x: Any) -> tuple[Any, ...]:
        def in_x(t: Any) -> Any:
            # out = -(dP/da) / p with p = dP/dx, whose logarithm is known
            of_density = subtract(divide(subtract(a, 1), x), 1)
            return multiply(t, subtract(subtract(digamma(a), log(x)), multiply(out, of_density)))

        return (lambda t: multiply(t, self.slope_in_a(a, x)), in_x)


# ------------------------------------------------------------- Bessel functions
@primitive
class bessel_i0(Special):
    """The modified Bessel function of order 0."""

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, bessel_i1(x)),)


@primitive
class bessel_i1(Special):
    """The modified Bessel function of order 1."""

    sign_of = 0

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        def in_x(t: Any) -> Any:
            # the limit 1/2 of out / x has the derivative 0
            tiny = _epsilon(type_of(x).dtype)
            is_small = less_equal(absolute(x), tiny)
            safe = select(is_small, scalar_like(x, tiny), x)
            ratio = select(is_small, scalar_like(x, 0.5), divide(out, safe))
            return multiply(t, subtract(bessel_i0(x), ratio))

        return (in_x,)


@primitive
class bessel_i0e(Special):
    """exp(-|x|) times the modified Bessel function of order 0."""

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, subtract(bessel_i1e(x), multiply(sign(x), out))),)


@primitive
class bessel_i1e(Special):
    """exp(-|x|) times the modified Bessel function of order 1."""

    sign_of = 0

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        def in_x(t: Any) -> Any:
            tiny = _epsilon(type_of(x).dtype)
            is_large = greater(absolute(x), tiny)
            safe = select(is_large, x, scalar_like(x, tiny))
            slope = subtract(bessel_i0e(safe), multiply(out, add(sign(safe), divide(1, safe))))
            return multiply(t, select(is_large, slope, 0.5))

        return (in_x,)


@primitive
class bessel_j(Special):
    """The Bessel function of the first kind, operands in the order: order, x."""

    domain = ((2, 2), (0.5, 3.0))

    def partials(self, out: Any, order: Any, x: Any) -> tuple[Any, ...]:
        def in_x(t: Any) -> Any:
            difference = subtract(bessel_j(subtract(order, 1), x), bessel_j(add(order, 1), x))
            return multiply(t, multiply(difference, 0.5))

        return (unsupported("bessel_j", "its order"), in_x)


def _epsilon(dtype: np.dtype) -> float:
    assert is_float(dtype)
    return float(np.finfo(np.float64 if dtype.itemsize == 8 else np.float32).eps)
