"""Special functions: SciPy's, computed in float64 and rounded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.types import is_float
from rlx.ops.arithmetic import (
    absolute,
    add,
    divide,
    multiply,
    negative,
    select,
    sign,
    square,
    subtract,
)
from rlx.ops.comparison import greater
from rlx.ops.families import Elementwise, scalar_like
from rlx.ops.gamma_slope import gamma_sample_slope, gamma_slope
from rlx.ops.transcendental import exp, log, log1p
from rlx.trace.primitive import primitive, type_of

__all__ = [
    "bessel_i0e",
    "bessel_i1e",
    "betainc",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "lgamma",
    "polygamma",
    "random_gamma_grad",
    "zeta",
]

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


class Special(Elementwise):
    """A function of `scipy.special`, by its name there."""

    kinds = "f"
    scipy_name: str

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """SciPy's function in float64, rounded to the operands' dtype."""
        import scipy.special

        wide = [a.astype(np.float64) for a in arrays]
        return np.asarray(getattr(scipy.special, self.scipy_name)(*wide)).astype(arrays[0].dtype)


def unsupported(name: str, operand: str) -> Any:
    """A partial derivative that raises when a tangent asks for it."""

    def refuse(tangent: Any) -> Any:
        raise UnsupportedError(
            f"{name} has no derivative with respect to {operand}.",
            "Wrap that operand in stop_gradient, or give the function a custom_jvp.",
        )

    return refuse


# ------------------------------------------------------------- error functions
@primitive
class erf(Special):
    """The error function."""

    scipy_name = "erf"

    def scalar(self, s: Any, x: Any) -> Any:
        return s.erf(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(exp(negative(square(x))), TWO_OVER_ROOT_PI)),)


@primitive
class erfc(Special):
    """1 - erf(x), exact for large x."""

    scipy_name = "erfc"

    def scalar(self, s: Any, x: Any) -> Any:
        return s.erfc(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(exp(negative(square(x))), -TWO_OVER_ROOT_PI)),)


@primitive
class erf_inv(Special):
    """The inverse of the error function, on -1..1."""

    scipy_name = "erfinv"
    domain = (-0.8, 0.8)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.erf_inv(x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, multiply(exp(square(out)), 1 / TWO_OVER_ROOT_PI)),)


# ------------------------------------------------------------- the gamma function
@primitive
class lgamma(Special):
    """log |gamma(x)|."""

    scipy_name = "gammaln"
    domain = (0.5, 4.0)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.special("lgamma", x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, digamma(x)),)


@primitive
class digamma(Special):
    """The derivative of lgamma."""

    scipy_name = "digamma"
    domain = (0.5, 4.0)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.special("digamma", x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, polygamma(1, x)),)


@primitive
class polygamma(Special):
    """The m-th derivative of digamma at x, operands in the order m, x."""

    scipy_name = "polygamma"
    domain = ((1, 1), (0.8, 4.0))

    def scalar(self, s: Any, m: Any, x: Any) -> Any:
        return s.special("polygamma", m, x)

    def partials(self, out: Any, m: Any, x: Any) -> tuple[Any, ...]:
        return (
            unsupported("polygamma", "its order m"),
            lambda t: multiply(t, polygamma(add(m, 1), x)),
        )


@primitive
class zeta(Special):
    """Hurwitz's zeta function: the sum over k >= 0 of (q + k) ** -x."""

    scipy_name = "zeta"
    domain = ((2.0, 4.0), (0.8, 3.0))

    def scalar(self, s: Any, x: Any, q: Any) -> Any:
        return s.special("zeta", x, q)

    def partials(self, out: Any, x: Any, q: Any) -> tuple[Any, ...]:
        return (
            unsupported("zeta", "its exponent x"),
            lambda t: multiply(t, multiply(negative(x), zeta(add(x, 1), q))),
        )


# ------------------------------------------------------------- incomplete functions
def _gamma_density(a: Any, x: Any) -> Any:
    """The density of the gamma distribution: the derivative of igamma(a, x) in x."""
    return exp(subtract(subtract(multiply(subtract(a, 1), log(x)), x), lgamma(a)))


@primitive
class igamma(Special):
    """The regularised lower incomplete gamma function of a and x."""

    scipy_name = "gammainc"
    domain = ((0.5, 3.0), (0.3, 4.0))

    def scalar(self, s: Any, a: Any, x: Any) -> Any:
        return s.special("igamma", a, x)

    def partials(self, out: Any, a: Any, x: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, igamma_grad_a(a, x)),
            lambda t: multiply(t, _gamma_density(a, x)),
        )


@primitive
class igammac(Special):
    """1 - igamma(a, x), exact for large x."""

    scipy_name = "gammaincc"
    domain = ((0.5, 3.0), (0.3, 4.0))

    def scalar(self, s: Any, a: Any, x: Any) -> Any:
        return s.special("igammac", a, x)

    def partials(self, out: Any, a: Any, x: Any) -> tuple[Any, ...]:
        return (
            lambda t: multiply(t, negative(igamma_grad_a(a, x))),
            lambda t: multiply(t, negative(_gamma_density(a, x))),
        )


class GammaSlope(Elementwise):
    """A derivative of the incomplete gamma function in a, which has no further derivative."""

    kinds = "f"
    domain = ((0.5, 3.0), (0.3, 4.0))

    def partials(self, out: Any, a: Any, x: Any) -> tuple[Any, ...]:
        return (unsupported(self.name, "a"), unsupported(self.name, "x"))


@primitive
class igamma_grad_a(GammaSlope):
    """The derivative of igamma(a, x) in a."""

    def compute(self, a: np.ndarray, x: np.ndarray) -> Any:
        return gamma_slope.array(a, x)

    def scalar(self, s: Any, a: Any, x: Any) -> Any:
        return gamma_slope.scalar(s, a, x)


@primitive
class random_gamma_grad(GammaSlope):
    """The derivative in a of a sample x of the gamma distribution, at a fixed quantile."""

    def compute(self, a: np.ndarray, x: np.ndarray) -> Any:
        return gamma_sample_slope.array(a, x)

    def scalar(self, s: Any, a: Any, x: Any) -> Any:
        return gamma_sample_slope.scalar(s, a, x)


@primitive
class betainc(Special):
    """The regularised incomplete beta function of a, b and x."""

    scipy_name = "betainc"
    domain = ((0.8, 3.0), (0.8, 3.0), (0.2, 0.8))

    def scalar(self, s: Any, a: Any, b: Any, x: Any) -> Any:
        return s.special("betainc", a, b, x)

    def partials(self, out: Any, a: Any, b: Any, x: Any) -> tuple[Any, ...]:
        def in_x(t: Any) -> Any:
            log_beta = subtract(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
            left, right = multiply(subtract(a, 1), log(x)), multiply(subtract(b, 1), _log_rest(x))
            return multiply(t, exp(subtract(add(left, right), log_beta)))

        return (unsupported("betainc", "a"), unsupported("betainc", "b"), in_x)


def _log_rest(x: Any) -> Any:
    return log1p(negative(x))


# ------------------------------------------------------------- Bessel functions
@primitive
class bessel_i0e(Special):
    """exp(-|x|) times the modified Bessel function of order 0."""

    scipy_name = "i0e"

    def scalar(self, s: Any, x: Any) -> Any:
        return s.special("bessel_i0e", x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        return (lambda t: multiply(t, subtract(bessel_i1e(x), multiply(sign(x), out))),)


@primitive
class bessel_i1e(Special):
    """exp(-|x|) times the modified Bessel function of order 1."""

    scipy_name = "i1e"

    def scalar(self, s: Any, x: Any) -> Any:
        return s.special("bessel_i1e", x)

    def partials(self, out: Any, x: Any) -> tuple[Any, ...]:
        def in_x(t: Any) -> Any:
            tiny = _epsilon(type_of(x).dtype)
            is_large = greater(absolute(x), tiny)
            safe = select(is_large, x, scalar_like(x, tiny))
            slope = subtract(bessel_i0e(safe), multiply(out, add(sign(safe), divide(1, safe))))
            return multiply(t, select(is_large, slope, 0.5))

        return (in_x,)


def _epsilon(dtype: np.dtype) -> float:
    assert is_float(dtype)
    return float(np.finfo(np.float64 if dtype.itemsize == 8 else np.float32).eps)
