"""Functions along axes: softmax, logsumexp, one_hot, and normalisations."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.config import config
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.scalar import neutral
from rlx.ir.types import is_float, is_inexact, is_integer
from rlx.lax.operands import as_dtype
from rlx.nn.batching import along_axes
from rlx.numpy.promotion import beside_arrays, canonical_axes, canonical_axis
from rlx.trace.flat import as_array
from rlx.trace.replay import block, replayed

__all__ = [
    "batch_norm",
    "layer_norm",
    "log_softmax",
    "logmeanexp",
    "logsumexp",
    "one_hot",
    "rms_norm",
    "softmax",
    "standardize",
]

Axis = int | Sequence[int] | None


def _inexact(x: Any) -> Array:
    value = as_array(x)
    return value if is_inexact(value.dtype) else jnp.asarray(value, float)


def _keep(reduced: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """A reduced array with its axes back, of size 1."""
    return lax.reshape(reduced, [1 if i in axes else d for i, d in enumerate(x.shape)])


# ------------------------------------------------------------- softmax
def _shifted(x: Array, axes: tuple[int, ...], where: Any) -> Array:
    """x less its maximum, which counts as a constant; -inf where not `where`."""
    safe = x if where is None else jnp.where(where, x, neutral("max", x.dtype))
    largest = _keep(lax.reduce_max(lax.stop_gradient(safe), axes), x, axes) if x.size else safe
    return safe - largest


@block(along_axes)
def softmax(x: Any, axis: Axis = -1, where: Any = None) -> Array:
    """exp(x) divided by its sum over an axis, without overflow.

    Args:
      where: bools; other elements count as -inf, and give 0.

    >>> import numpy as np, rlx
    >>> rlx.nn.softmax(np.array([0.0, 0.0], np.float32)).tolist()
    [0.5, 0.5]
    """
    value = _inexact(x)
    axes = canonical_axes(axis, value.ndim, "nn.softmax")
    exponentials = jnp.exp(_shifted(value, axes, where))
    result = exponentials / _keep(lax.reduce_sum(exponentials, axes), value, axes)
    return result if where is None else jnp.where(where, result, 0)


@block(along_axes)
def log_softmax(x: Any, axis: Axis = -1, where: Any = None) -> Array:
    """log(softmax(x)), without overflow.

    >>> import numpy as np, rlx
    >>> rlx.nn.log_softmax(np.array([0.0, 1000.0], np.float32)).tolist()
    [-1000.0, 0.0]
    """
    value = _inexact(x)
    axes = canonical_axes(axis, value.ndim, "nn.log_softmax")
    shifted = _shifted(value, axes, where)
    total = _keep(lax.reduce_sum(jnp.exp(shifted), axes), value, axes)
    result = shifted - jnp.log(total)
    return result if where is None else jnp.where(where, result, -math.inf)


@overload
def logsumexp(
    a: Any, axis: Axis = ..., b: Any = ..., keepdims: bool = ..., return_sign: Literal[False] = ..., where: Any = ...
) -> Array: ...
@overload
def logsumexp(
    a: Any, axis: Axis = ..., b: Any = ..., keepdims: bool = ..., return_sign: bool = ..., where: Any = ...
) -> Any: ...
@block(along_axes)
def logsumexp(
    a: Any,
    axis: Axis = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Any = None,
) -> Any:
    """log(sum(b * exp(a))) over axes, without overflow.

    Args:
      b: factors of the exponentials.
      return_sign: also return the sign of the sum, and the logarithm of its magnitude.
      where: which elements to include.

    >>> import numpy as np, rlx
    >>> round(rlx.nn.logsumexp(np.array([1000.0, 1000.0], np.float32)).item(), 3)
    1000.693
    """
    value = _inexact(a)
    if b is not None:
        factors = _inexact(beside_arrays(value, b)[1])
        value, factors = jnp.broadcast_arrays(value, factors)
        value = jnp.where(factors != 0, value, neutral("max", value.dtype))
    if where is not None:
        value = jnp.where(where, value, neutral("max", value.dtype))
    axes = canonical_axes(axis, value.ndim, "nn.logsumexp")
    magnitude = value if is_float(value.dtype) else lax.real(value)
    start = neutral("max", magnitude.dtype)
    largest = jnp.max(lax.stop_gradient(magnitude), axis=axes, keepdims=True, initial=start)
    largest = jnp.where(lax.is_finite(largest), largest, 0)
    terms = jnp.exp(value - largest)
    if b is not None:
        terms = terms * factors
    total = lax.reduce_sum(terms, axes)
    shape = largest.shape if keepdims else total.shape
    total, shift = lax.reshape(total, shape), lax.reshape(largest, shape)
    if not return_sign:
        return jnp.log(total) + shift
    return jnp.log(jnp.abs(total)) + shift, jnp.sign(total)


@replayed
def logmeanexp(x: Any, axis: Axis = None, where: Any = None, keepdims: bool = False) -> Array:
    """log(mean(exp(x))) over axes, without overflow.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.logmeanexp(jnp.array([1000.0, 1000.0])).item()
    1000.0
    """
    value = _inexact(x)
    axes = canonical_axes(axis, value.ndim, "nn.logmeanexp")
    total = logsumexp(value, axis=axes, where=where, keepdims=keepdims)
    if where is None:
        return total - math.log(math.prod(value.shape[i] for i in axes))
    chosen = jnp.broadcast_to(where, value.shape)
    count = lax.reduce_sum(lax.convert_element_type(chosen, value.dtype), axes)
    return total - jnp.log(lax.reshape(count, total.shape))


# ------------------------------------------------------------- one_hot
@replayed
def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: Any = -1) -> Array:
    """Ones where a new axis's position equals x, zeros elsewhere (everywhere, if x is outside).

    Args:
      axis: the position of the new axis, or the name of a mapped axis, where each member gets its own
        element.

    Warns with DeprecationWarning if x does not hold integers, as JAX does.

    >>> import numpy as np, rlx
    >>> rlx.nn.one_hot(np.array([1, 5]), 3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    value = jnp.asarray(x)
    if num_classes < 0:
        raise ShapeError(
            f"nn.one_hot got num_classes={num_classes} for x of shape {value.shape}.",
            "It is the size of the new axis, one more than the largest x: 0 or more.",
        )
    if not is_integer(value.dtype):
        warnings.warn(f"nn.one_hot got {value.dtype.name}; it takes integers.", DeprecationWarning, stacklevel=2)
    found = config.default_float if dtype is None else as_dtype(dtype)
    if not isinstance(axis, (int, np.integer)):
        if lax.axis_size(axis) != num_classes:
            raise ShapeError(
                f"nn.one_hot got num_classes={num_classes} for the axis {axis!r} of size {lax.axis_size(axis)}.",
                "They must be equal.",
            )
        return lax.convert_element_type(value == lax.axis_index(axis), found)
    at = canonical_axis(axis, value.ndim + 1, "nn.one_hot")
    classes = [1] * (value.ndim + 1)
    classes[at] = num_classes
    positions = lax.broadcasted_iota(value.dtype, classes, at)
    return lax.convert_element_type(lax.expand_dims(value, (at,)) == positions, found)


# ------------------------------------------------------------- normalisations
@replayed
def standardize(
    x: Any,
    axis: Axis = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Array:
    """(x - mean) / sqrt(variance + epsilon), with the mean and variance over an axis.

    Args:
      algorithm: "fast" takes the variance for mean(x**2) - mean(x)**2; "stable" for the mean squared
        distance from the mean.

    >>> from rlx import nn
    >>> import rlx.numpy as jnp
    >>> nn.standardize(jnp.array([1.0, 3.0]), epsilon=0.0).tolist()
    [-1.0, 1.0]
    """
    value = _inexact(x)
    _, mean, variance = beside_arrays(value, mean, variance)
    if mean is None:
        mean = jnp.mean(value, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "stable":
            variance = jnp.mean(jnp.square(value - mean), axis, keepdims=True, where=where)
        elif algorithm == "fast":
            squares = jnp.mean(jnp.square(value), axis, keepdims=True, where=where)
            variance = jnp.maximum(squares - jnp.square(mean), 0)
        else:
            raise UnsupportedError(f"nn.standardize has no algorithm {algorithm!r}.", "Use 'fast' or 'stable'.")
    return (value - mean) * lax.rsqrt(as_array(variance + epsilon))


@block(along_axes)
def layer_norm(x: Any, weight: Any = None, bias: Any = None, axis: Axis = -1, epsilon: float = 1e-5) -> Array:
    """x with mean 0 and variance 1 over an axis, then scaled and shifted.

    Computed in float32 at least. `weight` and `bias` broadcast to x.

    >>> import numpy as np, rlx
    >>> y = rlx.nn.layer_norm(np.array([1.0, 3.0], np.float32), epsilon=0.0)
    >>> y.tolist()
    [-1.0, 1.0]
    """
    value = _inexact(x)
    wide = _at_least_single(value)
    centred = wide - jnp.mean(wide, axis, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis, keepdims=True)
    return _affine(centred * lax.rsqrt(variance + epsilon), value.dtype, weight, bias)


@block(along_axes)
def rms_norm(x: Any, weight: Any = None, axis: Axis = -1, epsilon: float = 1e-6) -> Array:
    """x divided by the root of its mean square over an axis, then scaled.

    >>> import numpy as np, rlx
    >>> rlx.nn.rms_norm(np.array([3.0, -3.0], np.float32), epsilon=0.0).tolist()
    [1.0, -1.0]
    """
    value = _inexact(x)
    wide = _at_least_single(value)
    scale = lax.rsqrt(jnp.mean(jnp.square(wide), axis, keepdims=True) + epsilon)
    return _affine(wide * scale, value.dtype, weight, None)


@replayed
def batch_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    mean: Any = None,
    variance: Any = None,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> tuple[Array, tuple[Array, Array]]:
    """x normalised over all axes but one, and the mean and variance used.

    Args:
      weight, bias, mean, variance: vectors along `axis`. Given a mean and a variance (running ones,
        when a model is used), those are taken in place of x's own.
      axis: the axis of features.

    >>> import numpy as np, rlx
    >>> y, (mean, variance) = rlx.nn.batch_norm(np.array([[1.0], [3.0]], np.float32), epsilon=0.0)
    >>> y.tolist(), mean.tolist(), variance.tolist()
    ([[-1.0], [1.0]], [2.0], [1.0])
    """
    value = _inexact(x)
    wide = _at_least_single(value)
    feature = canonical_axis(axis, value.ndim, "nn.batch_norm")
    others = tuple(i for i in range(value.ndim) if i != feature)

    def along(vector: Any) -> Any:
        return (
            None
            if vector is None
            else lax.broadcast_in_dim(vector, [d if i == feature else 1 for i, d in enumerate(value.shape)], (feature,))
        )

    if mean is None:
        mean = jnp.mean(wide, others)
    centred = wide - along(mean)
    if variance is None:
        variance = jnp.mean(jnp.square(centred), others)
    result = centred * lax.rsqrt(along(variance) + epsilon)
    return _affine(result, value.dtype, along(weight), along(bias)), (mean, variance)


def _at_least_single(x: Array) -> Array:
    return x if x.dtype.itemsize >= 4 else lax.convert_element_type(x, np.float32)


def _affine(x: Array, dtype: np.dtype, weight: Any, bias: Any) -> Array:
    if weight is not None:
        x = x * weight
    if bias is not None:
        x = x + bias
    return x if x.dtype == dtype else lax.convert_element_type(x, dtype)
