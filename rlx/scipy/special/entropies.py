"""Products with logarithms, entropies, logits, power transforms and functions along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.nn import normalisation
from rlx.nn.normalisation import logsumexp
from rlx.numpy.promotion import promote_inexact
from rlx.ops import probability, transcendental
from rlx.scipy.special.common import real_operands

__all__ = [
    "boxcox",
    "boxcox1p",
    "entr",
    "expit",
    "kl_div",
    "log_softmax",
    "logit",
    "logsumexp",
    "rel_entr",
    "softmax",
    "xlog1py",
    "xlogy",
]


# ------------------------------------------------------------- products with logarithms
def xlogy(x: Any, y: Any) -> Array:
    """x log(y), which is 0 where x is 0, unless y is NaN. The derivative in x is log(y) there too.

    Args: x, y: real or complex, broadcast. Returns: an array of their common shape.

    >>> import rlx
    >>> rlx.scipy.special.xlogy(0.0, 0.0).item()
    0.0
    """
    return probability.xlogy(*promote_inexact("xlogy", x, y))


def xlog1py(x: Any, y: Any) -> Array:
    """x log(1 + y), which is 0 where x is 0, unless y is NaN. The derivative in x is log(1 + y) there too.

    Args: x, y: real or complex, broadcast. Returns: an array of their common shape.

    >>> import rlx
    >>> rlx.scipy.special.xlog1py(0.0, -1.0).item()
    0.0
    """
    return probability.xlog1py(*promote_inexact("xlog1py", x, y))


def entr(x: Any) -> Array:
    """-x log(x), which is 0 at 0 and -inf below.

    Args: x: real. Returns: an array of x's shape.

    >>> import rlx
    >>> round(rlx.scipy.special.entr(0.5).item(), 4)
    0.3466
    """
    return probability.entr(*real_operands("entr", x))


def rel_entr(p: Any, q: Any) -> Array:
    """p log(p / q) for positive p and q, 0 for p = 0 and q >= 0, infinity elsewhere.

    Args: p, q: real, broadcast. Returns: an array of their common shape.

    >>> import rlx
    >>> round(rlx.scipy.special.rel_entr(2.0, 1.0).item(), 4)
    1.3863
    """
    left, right = real_operands("rel_entr", p, q)
    both = (left > 0) & (right > 0)
    # an unused logarithm is computed at 1, where its derivative is finite
    safe_p, safe_q = jnp.where(both, left, 1), jnp.where(both, right, 1)
    ratio = safe_p / safe_q
    is_normal = (ratio > 0) & jnp.isfinite(ratio)
    logarithm = jnp.where(is_normal, jnp.log(jnp.where(is_normal, ratio, 1)), jnp.log(safe_p) - jnp.log(safe_q))
    missing = jnp.where(jnp.isnan(left) | jnp.isnan(right), jnp.nan, jnp.inf)
    return jnp.where(both, safe_p * logarithm, jnp.where((left == 0) & (right >= 0), 0, missing))


def kl_div(p: Any, q: Any) -> Array:
    """p log(p / q) - p + q for positive p and q, q for p = 0 and q >= 0, infinity elsewhere.

    Args: p, q: real, broadcast. Returns: an array of their common shape.

    >>> import rlx
    >>> round(rlx.scipy.special.kl_div(2.0, 1.0).item(), 4)
    0.3863
    """
    left, right = real_operands("kl_div", p, q)
    relative = rel_entr(left, right)
    return jnp.where(jnp.isposinf(left) & (right <= 0), jnp.inf, relative - left + right)


# ------------------------------------------------------------- logits and powers
def logit(x: Any) -> Array:
    """log(x / (1 - x)), the inverse of expit.

    Args: x: real; NaN outside of 0..1. Returns: an array of x's shape.

    >>> import rlx
    >>> rlx.scipy.special.logit(0.5).item()
    0.0
    """
    return probability.logit(*real_operands("logit", x))


def expit(x: Any) -> Array:
    """1 / (1 + exp(-x)), without overflow.

    Args: x: real or complex. Returns: an array of x's shape.

    >>> import rlx
    >>> rlx.scipy.special.expit(0.0).item()
    0.5
    """
    return transcendental.logistic(*promote_inexact("expit", x))


def boxcox(x: Any, lmbda: Any) -> Array:
    """(x ** lmbda - 1) / lmbda, and log(x) for lmbda = 0 (Box and Cox, 1964).

    Args: x: real, positive; lmbda: real, broadcast with x. Returns: an array of their common shape.

    >>> import rlx
    >>> round(rlx.scipy.special.boxcox(4.0, 0.5).item(), 4)
    2.0
    """
    value, power = real_operands("boxcox", x, lmbda)
    return _power_of_logarithm(jnp.log(value), power)


def boxcox1p(x: Any, lmbda: Any) -> Array:
    """boxcox(1 + x, lmbda), accurate for small x.

    Args: x: real, greater than -1; lmbda: real, broadcast with x. Returns: an array of their common shape.

    >>> import rlx
    >>> round(rlx.scipy.special.boxcox1p(3.0, 0.5).item(), 4)
    2.0
    """
    value, power = real_operands("boxcox1p", x, lmbda)
    return _power_of_logarithm(jnp.log1p(value), power)


def _power_of_logarithm(logarithm: Array, power: Array) -> Array:
    is_zero = power == 0
    safe = jnp.where(is_zero, 1, power)
    return jnp.where(is_zero, logarithm, jnp.expm1(safe * logarithm) / safe)


# ------------------------------------------------------------- along axes
def softmax(x: Any, /, *, axis: int | Sequence[int] | None = None) -> Array:
    """exp(x) divided by its sum over axes (None: all of them), without overflow.

    Args: x: real; axis: int or ints. Returns: an array of x's shape.

    >>> import numpy as np, rlx
    >>> rlx.scipy.special.softmax(np.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    return normalisation.softmax(x, axis=axis)


def log_softmax(x: Any, /, *, axis: int | Sequence[int] | None = None) -> Array:
    """log(softmax(x)) over axes (None: all of them), without overflow.

    Args: x: real; axis: int or ints. Returns: an array of x's shape.

    >>> import numpy as np, rlx
    >>> rlx.scipy.special.log_softmax(np.array([0.0, 1000.0])).tolist()
    [-1000.0, 0.0]
    """
    return normalisation.log_softmax(x, axis=axis)
