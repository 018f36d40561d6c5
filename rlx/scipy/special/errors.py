"""Error functions, and the functions of the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from rlx import lax
from rlx.array import Array
from rlx.ir.types import is_complex
from rlx.numpy.promotion import complex_dtype, convert_to, promote_inexact
from rlx.ops import probability, special, special_integrals
from rlx.scipy.special.common import real_operands

__all__ = ["dawsn", "erf", "erfc", "erfcx", "erfinv", "log_ndtr", "ndtr", "ndtri", "owens_t", "wofz"]


# ------------------------------------------------------------- error functions
def erf(x: Any) -> Array:
    """The error function: 2 / sqrt(pi) times the integral of exp(-t**2) from 0 to x.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.erf(1.0).item(), 4)
    0.8427
    """
    return special.erf(*real_operands("erf", x))


def erfc(x: Any) -> Array:
    """1 - erf(x), exact where erf is near 1.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.erfc(1.0).item(), 4)
    0.1573
    """
    return special.erfc(*real_operands("erfc", x))


def erfinv(x: Any) -> Array:
    """The inverse of erf.

    Args: x: real; NaN outside of -1..1. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.erfinv(0.5).item(), 4)
    0.4769
    """
    return special.erf_inv(*real_operands("erfinv", x))


def erfcx(x: Any) -> Array:
    """exp(x**2) erfc(x), without overflow for large x.

    Args: x: real or complex. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.erfcx(100.0).item(), 6)
    0.005642
    """
    (value,) = promote_inexact("erfcx", x)
    if is_complex(value.dtype):
        return special_integrals.faddeeva(lax.complex(-lax.imag(value), lax.real(value)))
    return special_integrals.erfcx(value)


def wofz(z: Any) -> Array:
    """Faddeeva's function exp(-z**2) erfc(-i z).

    Args: z: complex, or real and then made complex. Returns: a complex array of z's shape.

    >>> import rlx
    >>> rlx.scipy.special.wofz(0.0).item()
    (1+0j)
    """
    (value,) = promote_inexact("wofz", z)
    return special_integrals.faddeeva(convert_to(value, complex_dtype(value.dtype)))


def dawsn(x: Any) -> Array:
    """Dawson's integral: exp(-x**2) times the integral of exp(t**2) from 0 to x.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.dawsn(1.0).item(), 4)
    0.5381
    """
    return special_integrals.dawson(*real_operands("dawsn", x))


# ------------------------------------------------------------- the normal distribution
def ndtr(x: Any) -> Array:
    """The probability that a normal variable is below x.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> rlx.scipy.special.ndtr(0.0).item()
    0.5
    """
    (value,) = real_operands("ndtr", x)
    return 0.5 * special.erfc(value * -math.sqrt(0.5))


def ndtri(p: Any) -> Array:
    """The quantile function of the standard normal distribution: the inverse of ndtr.

    Args: p: real; NaN outside of 0..1. Returns: an array of p's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.ndtri(0.975).item(), 4)
    1.96
    """
    return probability.ndtri(*real_operands("ndtri", p))


def log_ndtr(x: Any, series_order: int = 3) -> Array:
    """log(ndtr(x)), exact in both tails.

    Args: x: real; series_order: accepted and not needed, an integer in 0..30. Returns: an array of x's
    shape. Raises: TypeError or ValueError for another series_order.

    >>> import rlx
    >>> round(rlx.scipy.special.log_ndtr(-10.0).item(), 4)
    -53.2313
    """
    if not isinstance(series_order, int):
        raise TypeError(f"log_ndtr got series_order = {series_order!r}: pass a Python integer.")
    if not 0 <= series_order <= 30:
        raise ValueError(f"log_ndtr got series_order = {series_order}: pass one in 0..30.")
    return probability.log_ndtr(*real_operands("log_ndtr", x))


def owens_t(h: Any, a: Any) -> Array:
    """Owen's T function: the probability that X > h and 0 < Y < a X for normal X and Y (Owen, 1956).

    Args: h, a: real, broadcast. Returns: an array of their common shape.

    >>> import rlx
    >>> rlx.scipy.special.owens_t(0.0, 1.0).item()
    0.125
    """
    return probability.owens_t(*real_operands("owens_t", h, a))
