"""Activation functions. At kinks, derivatives follow JAX: relu'(0) is 0."""

from __future__ import annotations

import math
from typing import Any

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ir.types import dtype_kind
from rlx.nn.batching import elementwise
from rlx.numpy.promotion import canonical_axis
from rlx.trace.flat import as_array
from rlx.trace.replay import block, replayed

__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "leaky_relu",
    "log1mexp",
    "log_sigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "swish",
    "tanh",
]


def _inexact(x: Any) -> Array:
    """An array of floats; integers become floats."""
    value = as_array(x)
    return value if dtype_kind(value.dtype) not in "biu" else jnp.asarray(value, float)


def identity(x: Any) -> Array:
    """x itself, as an array.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.identity(jnp.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return as_array(x)


# ------------------------------------------------------------- rectifiers
def _between(x: Array, inside: Array, clamped: Any) -> Array:
    """x where it is inside, with derivative 1; elsewhere a value with derivative 0."""
    return jnp.where(inside, x, lax.stop_gradient(clamped))


@replayed
def relu(x: Any) -> Array:
    """max(x, 0), with derivative 0 at 0 and at NaN.

    >>> import rlx
    >>> rlx.nn.relu(-1.5).item(), rlx.grad(rlx.nn.relu)(0.0).item()
    (0.0, 0.0)
    """
    value = as_array(x)
    return _between(value, value > 0, jnp.where(value <= 0, 0, value))


@replayed
def relu6(x: Any) -> Array:
    """x, limited to the range from 0 to 6; the derivative is 0 at both, and at NaN.

    >>> import rlx
    >>> rlx.nn.relu6(7.0).item()
    6.0
    """
    value = as_array(x)
    clamped = jnp.where(value <= 0, 0.0, jnp.where(value >= 6, 6.0, value))
    return _between(value, (value > 0) & (value < 6), clamped)


@replayed
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Array:
    """x where it is not negative, elsewhere negative_slope * x.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.leaky_relu(jnp.array([-2.0, 2.0]), 0.5).tolist()
    [-1.0, 2.0]
    """
    value = as_array(x)
    return jnp.where(value >= 0, value, negative_slope * value)


@replayed
def elu(x: Any, alpha: Any = 1.0) -> Array:
    """x where it is positive, elsewhere alpha * (exp(x) - 1).

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> print(nn.elu(jnp.array([-1.0, 2.0])).round(4))
    [-0.6321  2.    ]
    """
    value = as_array(x)
    positive = value > 0
    # where x is positive exp must not overflow: its derivative would be NaN
    return jnp.where(positive, value, alpha * jnp.expm1(jnp.where(positive, 0.0, value)))


@replayed
def celu(x: Any, alpha: Any = 1.0) -> Array:
    """max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1).

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> print(nn.celu(jnp.array([-1.0, 2.0])).round(4))
    [-0.6321  2.    ]
    """
    return jnp.maximum(x, 0.0) + alpha * jnp.expm1(jnp.minimum(x, 0.0) / alpha)


@replayed
def selu(x: Any) -> Array:
    """The scaled elu under which networks normalise themselves.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> print(nn.selu(jnp.array([-1.0, 1.0])).round(4))
    [-1.1113  1.0507]
    """
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


@replayed
def sparse_plus(x: Any) -> Array:
    """0 below -1, x above 1, and a parabola between.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.sparse_plus(jnp.array([-2.0, 0.0, 2.0])).tolist()
    [0.0, 0.25, 2.0]
    """
    value = as_array(x)
    middle = (value + 1.0) ** 2 / 4
    return jnp.where(value <= -1.0, 0.0, jnp.where(value >= 1.0, value, middle))


@replayed
def squareplus(x: Any, b: Any = 4) -> Array:
    """(x + sqrt(x**2 + b)) / 2: a smooth relu without exponentials.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.squareplus(jnp.array([0.0, 1.5])).tolist()
    [1.0, 2.0]
    """
    value = as_array(x)
    return (value + jnp.sqrt(jnp.square(value) + b)) / 2


@replayed
def softplus(x: Any) -> Array:
    """log(1 + exp(x)), for any x without overflow.

    >>> import rlx
    >>> rlx.nn.softplus(1000.0).item()
    1000.0
    """
    return jnp.logaddexp(x, 0)


# ------------------------------------------------------------- sigmoids
@replayed
def sigmoid(x: Any) -> Array:
    """1 / (1 + exp(-x)).

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.sigmoid(jnp.array([0.0, 100.0])).tolist()
    [0.5, 1.0]
    """
    return lax.logistic(_inexact(x))


@replayed
def log_sigmoid(x: Any) -> Array:
    """log(sigmoid(x)), for any x without overflow.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> print(nn.log_sigmoid(jnp.array([-9.0, 0.0])).round(4))
    [-9.0001 -0.6931]
    """
    return -softplus(-as_array(x))


@replayed
def silu(x: Any) -> Array:
    """x * sigmoid(x), also called swish.

    >>> import rlx
    >>> rlx.nn.silu(0.0).item()
    0.0
    """
    value = _inexact(x)
    return value * lax.logistic(value)


swish = silu


@replayed
def mish(x: Any) -> Array:
    """x * tanh(softplus(x)).

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> round(nn.mish(jnp.float32(1.0)).item(), 4)
    0.8651
    """
    value = as_array(x)
    return value * jnp.tanh(softplus(value))


def tanh(x: Any) -> Array:
    """The hyperbolic tangent.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> round(nn.tanh(jnp.float32(0.5)).item(), 4)
    0.4621
    """
    return jnp.tanh(x)


@replayed
def soft_sign(x: Any) -> Array:
    """x / (1 + abs(x)).

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.soft_sign(jnp.array([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """
    value = as_array(x)
    return value / (jnp.abs(value) + 1)


@replayed
def sparse_sigmoid(x: Any) -> Array:
    """A line from 0 at -1 to 1 at 1, constant outside.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.sparse_sigmoid(jnp.array([-2.0, 0.0, 2.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return 0.5 * jnp.clip(as_array(x) + 1.0, 0.0, 2.0)


@replayed
def hard_sigmoid(x: Any) -> Array:
    """relu6(x + 3) / 6.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.hard_sigmoid(jnp.array([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return relu6(as_array(x) + 3.0) / 6.0


@replayed
def hard_silu(x: Any) -> Array:
    """x * hard_sigmoid(x), also called hard_swish.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.hard_silu(jnp.array([3.0, 0.0, 4.0])).tolist()
    [3.0, 0.0, 4.0]
    """
    value = as_array(x)
    return value * hard_sigmoid(value)


hard_swish = hard_silu


@replayed
def hard_tanh(x: Any) -> Array:
    """x, limited to the range from -1 to 1.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.hard_tanh(jnp.array([-4.0, 0.5, 4.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    value = as_array(x)
    return jnp.where(value > 1, 1, jnp.where(value < -1, -1, value))


# ------------------------------------------------------------- gates and others
@block(elementwise)
def gelu(x: Any, approximate: bool = True) -> Array:
    """x times the normal distribution's probability of a smaller value.

    Args:
      approximate: through tanh; otherwise exactly, through erfc.

    >>> import rlx
    >>> round(rlx.nn.gelu(1.0, approximate=False).item(), 4)
    0.8413
    """
    value = _inexact(x)
    if approximate:
        inner = math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)
        return value * (0.5 * (1.0 + jnp.tanh(inner)))
    return 0.5 * value * lax.erfc(value * -math.sqrt(0.5))


@replayed
def glu(x: Any, axis: int = -1) -> Array:
    """The first half along an axis, times the sigmoid of the second.

    Args: x: (..., 2n, ...). Returns: half of the axis. Raises: ShapeError where the axis has an odd size.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.glu(jnp.array([3.0, 4.0, 0.0, 0.0])).tolist()
    [1.5, 2.0]
    """
    value = as_array(x)
    at = canonical_axis(axis, value.ndim, "nn.glu")
    size = value.shape[at]
    if size % 2:
        raise ShapeError(
            f"nn.glu got axis {axis} of size {size} in an array of shape {value.shape}.",
            "The axis is halved: its size must be even.",
        )
    first = lax.slice_in_dim(value, 0, size // 2, axis=at)
    return first * sigmoid(lax.slice_in_dim(value, size // 2, size, axis=at))


@replayed
def log1mexp(x: Any) -> Array:
    """log(1 - exp(-x)) for positive x, accurate near 0 and for large x.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> round(nn.log1mexp(jnp.float32(1.0)).item(), 4)
    -0.4587
    """
    value = _inexact(x)
    small = value < math.log(2.0)
    # each case is computed where it is accurate, so that derivatives stay finite
    near = jnp.where(small, value, 1.0)
    far = jnp.where(small, 1.0, value)
    return jnp.where(small, jnp.log(-jnp.expm1(-near)), jnp.log1p(-jnp.exp(-far)))
