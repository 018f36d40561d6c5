"""Exponential, sine, cosine and Fresnel integrals, the dilogarithm, and hypergeometric functions."""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.ops import hypergeometric, special_integrals
from rlx.scipy.special.common import real_operands

__all__ = ["exp1", "expi", "expn", "fresnel", "hyp1f1", "hyp2f1", "sici", "spence"]


def exp1(x: Any) -> Array:
    """The exponential integral E1: the integral of exp(-t) / t from x on.

    Args: x: real; NaN below 0. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.exp1(1.0).item(), 4)
    0.2194
    """
    return special_integrals.expint_one(*real_operands("exp1", x))


def expi(x: Any) -> Array:
    """The exponential integral Ei: the principal value of the integral of exp(t) / t up to x.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.expi(1.0).item(), 4)
    1.8951
    """
    return special_integrals.expint_i(*real_operands("expi", x))


def expn(n: Any, x: Any) -> Array:
    """The exponential integral En: the integral of exp(-x t) / t**n from 1 on.

    Args: n: whole numbers, not negative; x: real, not negative, broadcast with n. Returns: an array of
    their common shape; NaN outside. It has no derivative in n.

    >>> import rlx
    >>> round(rlx.scipy.special.expn(2, 1.0).item(), 4)
    0.1485
    """
    return special_integrals.expint_n(*real_operands("expn", n, x))


def sici(x: Any) -> tuple[Array, Array]:
    """The sine and the cosine integral.

    Args: x: real. Returns: two arrays of x's shape: the integral of sin(t) / t from 0 to x, and Euler's
    constant + log |x| + the integral of (cos(t) - 1) / t from 0 to x.

    >>> import rlx
    >>> [round(v.item(), 4) for v in rlx.scipy.special.sici(1.0)]
    [0.9461, 0.3374]
    """
    (value,) = real_operands("sici", x)
    return special_integrals.sine_integral(value), special_integrals.cosine_integral(value)


def fresnel(x: Any) -> tuple[Array, Array]:
    """The Fresnel integrals S and C.

    Args: x: real. Returns: two arrays of x's shape: the integrals of sin(pi t**2 / 2) and of
    cos(pi t**2 / 2) from 0 to x.

    >>> import rlx
    >>> [round(v.item(), 4) for v in rlx.scipy.special.fresnel(1.0)]
    [0.4383, 0.7799]
    """
    (value,) = real_operands("fresnel", x)
    return special_integrals.fresnel_sine(value), special_integrals.fresnel_cosine(value)


def spence(x: Any) -> Array:
    """Spence's function, the dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x.

    Args: x: real; NaN below 0. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.spence(0.0).item(), 4)
    1.6449
    """
    return special_integrals.spence(*real_operands("spence", x))


def hyp1f1(a: Any, b: Any, x: Any) -> Array:
    """Kummer's confluent hypergeometric function 1F1.

    Args: a, b, x: real, broadcast. Returns: an array of their common shape: the sum over k of
    (a)_k / (b)_k x**k / k!. It has derivatives in all three.

    >>> import rlx
    >>> round(rlx.scipy.special.hyp1f1(1.0, 1.0, 1.0).item(), 4)
    2.7183
    """
    return hypergeometric.confluent_hypergeometric(*real_operands("hyp1f1", a, b, x))


def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Array:
    """Gauss's hypergeometric function 2F1.

    Args: a, b, c, x: real, broadcast. Returns: an array of their common shape: the sum over k of
    (a)_k (b)_k / (c)_k x**k / k!, and its continuation. It has derivatives in all four.

    >>> import rlx
    >>> rlx.scipy.special.hyp2f1(1.0, 1.0, 1.0, 0.5).item()
    2.0
    """
    return hypergeometric.hypergeometric(*real_operands("hyp2f1", a, b, c, x))
