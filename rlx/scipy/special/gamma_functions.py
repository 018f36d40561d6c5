"""Gamma, beta and zeta functions, and combinatorial functions."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.config import config
from rlx.errors import UnsupportedError, describe
from rlx.ir.types import is_complex, is_integer
from rlx.numpy.promotion import promote_inexact
from rlx.ops import beta as beta_functions
from rlx.ops import special
from rlx.scipy.special.common import real_operands
from rlx.trace.flat import as_array

__all__ = [
    "bernoulli",
    "beta",
    "betainc",
    "betaln",
    "comb",
    "digamma",
    "factorial",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "loggamma",
    "multigammaln",
    "poch",
    "polygamma",
    "zeta",
]


# ------------------------------------------------------------- gamma
def gamma(x: Any) -> Array:
    """The gamma function, which at the integers is gamma(n + 1) = n!.

    Args: x: real or complex. Returns: an array of x's shape: at 0 an infinity of its sign, at negative
    integers NaN.

    >>> import rlx
    >>> rlx.scipy.special.gamma(5.0).item()
    24.0
    """
    (value,) = promote_inexact("gamma", x)
    return special.complex_gamma(value) if is_complex(value.dtype) else special.gamma(value)


def gammaln(x: Any) -> Array:
    """log |gamma(x)|.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.gammaln(5.0).item(), 4)
    3.1781
    """
    return special.lgamma(*real_operands("gammaln", x))


def loggamma(x: Any) -> Array:
    """The logarithm of gamma, continued from the positive numbers, with a cut along the negative ones.

    Args: x: real or complex. Returns: an array of x's shape; of negative real numbers NaN.

    >>> import rlx
    >>> round(rlx.scipy.special.loggamma(5.0).item(), 4)
    3.1781
    """
    (value,) = promote_inexact("loggamma", x)
    if is_complex(value.dtype):
        return special.complex_loggamma(value)
    return jnp.where(value >= 0, special.lgamma(value), jnp.nan)


def gammasgn(x: Any) -> Array:
    """The sign of gamma(x): NaN where gamma has none, at the negative integers and -infinity.

    Args: x: real. Returns: an array of x's shape of 1, -1 and NaN.

    >>> import numpy as np, rlx
    >>> rlx.scipy.special.gammasgn(np.array([1.5, -0.5, -1.5, -2.0])).tolist()
    [1.0, -1.0, 1.0, nan]
    """
    (value,) = real_operands("gammasgn", x)
    whole = jnp.floor(value)
    is_pole = (value < 0) & (value == whole)
    is_odd = (value < 0) & (jnp.mod(whole, 2) != 0)
    is_negative = is_odd | ((value == 0) & jnp.signbit(value))
    return jnp.where(is_pole | jnp.isnan(value), jnp.nan, jnp.where(is_negative, -1, jnp.ones_like(value)))


def digamma(x: Any) -> Array:
    """The derivative of gammaln.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.digamma(1.0).item(), 4)
    -0.5772
    """
    return special.digamma(*real_operands("digamma", x))


def polygamma(n: Any, x: Any) -> Array:
    """The n-th derivative of digamma at x.

    Args: n: integers, not negative; x: real, broadcast with n. Returns: an array of their common shape.
    Raises: ValueError if n is not of an integer dtype. It has no derivative in n.

    >>> import rlx
    >>> round(rlx.scipy.special.polygamma(1, 1.0).item(), 4)
    1.6449
    """
    if not is_integer(as_array(n).dtype):
        raise ValueError(f"polygamma got orders of {describe(as_array(n))}: pass integers.")
    return special.polygamma(*real_operands("polygamma", n, x))


def gammainc(a: Any, x: Any) -> Array:
    """The regularised lower incomplete gamma function: the gamma distribution's probability below x.

    Args: a: real, not negative; x: real, not negative, broadcast with a. Returns: an array of their
    common shape; NaN outside.

    >>> import rlx
    >>> round(rlx.scipy.special.gammainc(1.0, 1.0).item(), 4)
    0.6321
    """
    return special.igamma(*real_operands("gammainc", a, x))


def gammaincc(a: Any, x: Any) -> Array:
    """1 - gammainc(a, x), exact where gammainc is near 1.

    Args: a: real, not negative; x: real, not negative, broadcast with a. Returns: an array of their
    common shape; NaN outside.

    >>> import rlx
    >>> round(rlx.scipy.special.gammaincc(1.0, 1.0).item(), 4)
    0.3679
    """
    return special.igammac(*real_operands("gammaincc", a, x))


def multigammaln(a: Any, d: Any) -> Array:
    """The logarithm of the gamma function of `d` dimensions.

    Args: a: real, greater than (d - 1) / 2; d: a Python integer. Returns: an array of a's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.multigammaln(2.0, 2).item(), 4)
    0.4516
    """
    dimensions = operator.index(d)
    (value,) = real_operands("multigammaln", a)
    halves = jnp.arange(dimensions, dtype=value.dtype) / 2
    halves = jnp.reshape(halves, (1,) * value.ndim + (dimensions,))
    terms = special.lgamma(jnp.expand_dims(value, -1) - halves)
    return jnp.sum(terms, axis=-1) + 0.25 * dimensions * (dimensions - 1) * math.log(math.pi)


def poch(z: Any, m: Any) -> Array:
    """The rising factorial gamma(z + m) / gamma(z) (Pochhammer's symbol).

    Args: z, m: real, broadcast. Returns: an array of their common shape.

    >>> import rlx
    >>> rlx.scipy.special.poch(3.0, 2.0).item()
    12.0
    """
    return special.pochhammer(*real_operands("poch", z, m))


# ------------------------------------------------------------- beta
def beta(a: Any, b: Any) -> Array:
    """The beta function gamma(a) gamma(b) / gamma(a + b).

    Args: a, b: real, broadcast. Returns: an array of their common shape.

    >>> import rlx
    >>> rlx.scipy.special.beta(2.0, 1.0).item()
    0.5
    """
    first, second = real_operands("beta", a, b)
    return beta_functions.beta(first, second)


def betaln(a: Any, b: Any) -> Array:
    """log |beta(a, b)|.

    Args: a, b: real, broadcast. Returns: an array of their common shape.

    >>> import rlx
    >>> round(rlx.scipy.special.betaln(2.0, 1.0).item(), 4)
    -0.6931
    """
    return beta_functions.log_beta(*real_operands("betaln", a, b))


def betainc(a: Any, b: Any, x: Any) -> Array:
    """The regularised incomplete beta function: the beta distribution's probability below x.

    Args: a, b: real, positive; x: real, in 0..1; all broadcast. Returns: an array of their common
    shape; NaN outside. It has derivatives in all three.

    >>> import rlx
    >>> round(rlx.scipy.special.betainc(2.0, 1.0, 0.5).item(), 4)
    0.25
    """
    return beta_functions.betainc(*real_operands("betainc", a, b, x))


# ------------------------------------------------------------- counts and series
def factorial(n: Any, exact: bool = False) -> Array:
    """n!, as gamma(n + 1); 0 for negative n.

    Args: n: real; exact: only False. Returns: a floating array of n's shape. Raises: UnsupportedError
    for exact=True.

    >>> import rlx
    >>> rlx.scipy.special.factorial(5).item()
    120.0
    """
    if exact:
        raise UnsupportedError(
            "factorial(exact=True) needs integers of any length.", "Use math.factorial, or leave exact=False."
        )
    (value,) = real_operands("factorial", n)
    is_negative = value < 0
    return jnp.where(is_negative, 0, special.gamma(jnp.where(is_negative, 0, value) + 1))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Array:
    """The number of combinations of N things taken k at a time.

    Args: N, k: real, broadcast; repetition: whether a thing may be taken again. Returns: a floating
    array of their common shape; 0 where N or k is negative, and for k > N without repetition.

    >>> import rlx
    >>> rlx.scipy.special.comb(5, 2).item(), rlx.scipy.special.comb(5, 2, repetition=True).item()
    (10.0, 15.0)
    """
    things, taken = real_operands("comb", N, k)
    if repetition:
        nothing = (taken == 0) & (things >= 0)
        return jnp.where(nothing, 1, comb(things + taken - 1, taken))
    possible = (taken <= things) & (things >= 0) & (taken >= 0)
    ways = special.binomial(jnp.where(possible, things, 0), jnp.where(possible, taken, 0))
    return jnp.where(possible, ways, 0)


def zeta(x: Any, q: Any = None) -> Array:
    """Hurwitz's zeta function: the sum over k >= 0 of (k + q) ** -x.

    Args: x: real, greater than 1; q: real, positive, broadcast with x (1 for Riemann's function). Returns:
    an array of their common shape. Raises: UnsupportedError without q: the continuation of Riemann's
    function below 1 is not there.

    >>> import rlx
    >>> round(rlx.scipy.special.zeta(2.0, 1.0).item(), 4)
    1.6449
    """
    if q is None:
        raise UnsupportedError(
            "zeta(x) without q, the continued function of Riemann, is not there.",
            "Write zeta(x, 1), which is the same for x > 1.",
        )
    return special.zeta(*real_operands("zeta", x, q))


def bernoulli(n: int) -> Array:
    """The Bernoulli numbers B0 to Bn, with B1 = -1/2.

    Args: n: a Python integer, not negative. Returns: an array of n + 1 numbers of the default float.
    Raises: ValueError for a negative n.

    >>> import rlx
    >>> rlx.scipy.special.bernoulli(4).tolist()[::2]
    [1.0, 0.1666666716337204, -0.03333333507180214]
    """
    import scipy.special

    count = operator.index(n)
    if count < 0:
        raise ValueError(f"bernoulli got n = {count}: pass 0 or more.")
    return jnp.asarray(np.asarray(scipy.special.bernoulli(count)), dtype=config.default_float)
