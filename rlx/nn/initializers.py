"""Initialisers: functions from a key, a shape and a dtype to initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from rlx import lax, random
from rlx import numpy as jnp
from rlx.array import Array, is_array_or_numpy
from rlx.config import config
from rlx.errors import InputTypeError, ShapeError, UnsupportedError, describe, entered
from rlx.ir.types import is_complex
from rlx.lax.operands import as_dtype
from rlx.numpy.promotion import canonical_axes, canonical_axis, canonical_shape
from rlx.offered_names import offer_names
from rlx.ops.conversion import float_dtype_of

__all__ = [
    "Initializer",
    "constant",
    "delta_orthogonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

offer_names(globals())

Axes = int | Sequence[int]


class Initializer(Protocol):
    """Makes an array of the given shape and dtype from a key.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> make: initializers.Initializer = initializers.he_normal()
    >>> make(rlx.random.key(0), (3, 4)).dtype
    dtype('float32')
    """

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = ..., /) -> Array:
        """The array."""


def _dtype(dtype: Any) -> np.dtype:
    return config.default_float if dtype is None else as_dtype(dtype)


def _times(samples: Array, factor: Any) -> Array:
    return lax.mul(samples, lax.full((), factor, samples.dtype))


# ------------------------------------------------------------- simple ones
def zeros(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
    """Zeros.

    >>> import rlx
    >>> rlx.nn.initializers.zeros(rlx.random.key(0), (2,)).tolist()
    [0.0, 0.0]
    """
    return lax.full(shape, 0, _dtype(dtype), sharding=out_sharding)


def ones(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
    """Ones.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> initializers.ones(rlx.random.key(0), (2,)).tolist()
    [1.0, 1.0]
    """
    return lax.full(shape, 1, _dtype(dtype), sharding=out_sharding)


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initialiser that fills with one value, or broadcasts an array.

    >>> import rlx
    >>> rlx.nn.initializers.constant(0.5)(rlx.random.key(0), (2,)).tolist()
    [0.5, 0.5]
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Array:
        return jnp.broadcast_to(lax.convert_element_type(value, _dtype(dtype)), tuple(shape))

    return init


def uniform(scale: Any = 0.01, dtype: Any = None) -> Initializer:
    """An initialiser that draws from 0 <= x < scale.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> bool(initializers.uniform(0.1)(rlx.random.key(0), (100,)).max() < 0.1)
    True
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Array:
        return _times(random.uniform(key, shape, _dtype(dtype)), scale)

    return init


def normal(stddev: Any = 0.01, dtype: Any = None) -> Initializer:
    """An initialiser that draws from a normal distribution.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> print(initializers.normal(0.1)(rlx.random.key(0), (100, 100)).std().round(2))
    0.1
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Array:
        return _times(random.normal(key, shape, _dtype(dtype)), stddev)

    return init


def truncated_normal(stddev: Any = 0.01, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """An initialiser that draws from a normal distribution cut off at lower and upper deviations.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> bool(abs(initializers.truncated_normal(1.0)(rlx.random.key(0), (100,))).max() <= 2)
    True
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Array:
        samples = random.truncated_normal(key, lower, upper, shape, _dtype(dtype))
        return _times(samples, stddev)

    return init


# ------------------------------------------------------------- scaled by the layer's size
def _product(shape: Sequence[int], axes: Axes) -> int:
    return math.prod(shape[i] for i in canonical_axes(axes, len(shape), "variance_scaling"))


def _fans(shape: Sequence[int], in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """How many inputs an output has, and how many outputs an input."""
    if in_axis == -2 and len(shape) <= 1:
        raise ShapeError(
            f"variance_scaling got shape {tuple(shape)}, which has no input axis.",
            "Weights have at least two axes; otherwise say which is in_axis.",
        )
    inputs, outputs = _product(shape, in_axis), _product(shape, out_axis)
    window = math.prod(shape) / inputs / outputs / _product(shape, batch_axis)
    return inputs * window, outputs * window


_DENOMINATORS: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda inputs, outputs: inputs,
    "fan_out": lambda inputs, outputs: outputs,
    "fan_avg": lambda inputs, outputs: (inputs + outputs) / 2,
    "fan_geo_avg": lambda inputs, outputs: math.sqrt(inputs * outputs),
}
# standard deviations of a normal distribution, and of a complex one, cut off at 2
_TRUNCATED_DEVIATION = 0.87962566103423978
_COMPLEX_TRUNCATED_DEVIATION = 0.95311164380491208


def variance_scaling(
    scale: Any,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: Any = None,
) -> Initializer:
    """An initialiser whose variance is scale divided by the size of the layer.

    Args:
      mode: "fan_in", "fan_out", "fan_avg" or "fan_geo_avg": which size.
      distribution: "truncated_normal", "normal" or "uniform".
      in_axis, out_axis, batch_axis: axes of the weights.

    >>> import rlx
    >>> init = rlx.nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    >>> init(rlx.random.key(0), (4, 8)).shape
    (4, 8)
    """
    if is_array_or_numpy(in_axis):
        raise InputTypeError(
            f"An initialiser's in_axis is an axis number or several, got {describe(in_axis)}.",
            f"Make the initialiser first: rlx.nn.initializers.{entered()}()(key, shape).",
        )
    if mode not in _DENOMINATORS:
        raise UnsupportedError(f"variance_scaling has no mode {mode!r}.", f"Use one of {tuple(_DENOMINATORS)}.")
    if distribution not in ("truncated_normal", "normal", "uniform"):
        raise UnsupportedError(
            f"variance_scaling has no distribution {distribution!r}.",
            "Use 'truncated_normal', 'normal' or 'uniform'.",
        )

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Array:
        sizes, found = canonical_shape(shape, "variance_scaling"), _dtype(dtype)
        denominator = _DENOMINATORS[mode](*_fans(sizes, in_axis, out_axis, batch_axis))
        variance = lax.full((), scale / denominator, found)
        if is_complex(found):
            return _complex_samples(key, sizes, found, distribution, variance)
        if distribution == "truncated_normal":
            samples = random.truncated_normal(key, -2, 2, sizes, found)
            return samples * (lax.sqrt(variance) / lax.full((), _TRUNCATED_DEVIATION, found))
        if distribution == "normal":
            return random.normal(key, sizes, found) * lax.sqrt(variance)
        return random.uniform(key, sizes, found, -1) * lax.sqrt(3 * variance)

    return init


def _complex_samples(key: Any, shape: tuple[int, ...], dtype: np.dtype, distribution: str, variance: Array) -> Array:
    """Samples whose angle is uniform, and whose squared radius is uniform or exponential."""
    if distribution == "normal":
        return random.normal(key, shape, dtype) * lax.sqrt(variance)
    key_radius, key_angle = random.split(key)
    real = float_dtype_of(dtype)
    drawn = random.uniform(key_radius, shape, real)
    if distribution == "uniform":
        radius, deviation = lax.sqrt(2 * drawn), lax.sqrt(variance)
    else:
        radius = lax.sqrt(-lax.log(1 - (1 - math.exp(-4)) * drawn))
        deviation = lax.sqrt(variance) / lax.full((), _COMPLEX_TRUNCATED_DEVIATION, dtype)
    angle = 2 * math.pi * random.uniform(key_angle, shape, real)
    return lax.complex(radius * lax.cos(angle), radius * lax.sin(angle)) * deviation


def glorot_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Uniform, scaled by the mean of inputs and outputs; also called xavier_uniform.

    Args: in_axis, out_axis, batch_axis: axes of the shape that count inputs, outputs and neither.
    Returns: an Initializer.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> print(initializers.glorot_uniform()(rlx.random.key(0), (300, 500)).std().round(2))
    0.05
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Truncated normal, scaled by the mean of inputs and outputs; also called xavier_normal.

    Args: in_axis, out_axis, batch_axis: axes of the shape that count inputs, outputs and neither.
    Returns: an Initializer.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> print(initializers.glorot_normal()(rlx.random.key(0), (300, 500)).std().round(2))
    0.05
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Uniform, scaled by the number of inputs.

    Args: in_axis, out_axis, batch_axis: axes of the shape that count inputs, outputs and neither.
    Returns: an Initializer.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> print(initializers.lecun_uniform()(rlx.random.key(0), (100, 500)).std().round(2))
    0.1
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Truncated normal, scaled by the number of inputs.

    Args: in_axis, out_axis, batch_axis: axes of the shape that count inputs, outputs and neither.
    Returns: an Initializer.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> print(initializers.lecun_normal()(rlx.random.key(0), (100, 500)).std().round(2))
    0.1
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Uniform, with twice the variance of lecun_uniform; also called kaiming_uniform.

    Args: in_axis, out_axis, batch_axis: axes of the shape that count inputs, outputs and neither.
    Returns: an Initializer.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> print(initializers.he_uniform()(rlx.random.key(0), (200, 500)).std().round(2))
    0.1
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
    """Truncated normal, with twice the variance of lecun_normal; also called kaiming_normal.

    Args: in_axis, out_axis, batch_axis: axes of the shape that count inputs, outputs and neither.
    Returns: an Initializer.

    >>> import rlx
    >>> from rlx.nn import initializers
    >>> print(initializers.he_normal()(rlx.random.key(0), (200, 500)).std().round(2))
    0.1
    """
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Orthogonal matrices times `scale`: columns along `column_axis`, the other axes are the rows.

    With fewer rows than columns the rows are orthonormal, else the columns. The initializer raises ShapeError for fewer
    than two axes. Saxe, McClelland and Ganguli, https://arxiv.org/abs/1312.6120.

    >>> import numpy as np, rlx
    >>> w = rlx.nn.initializers.orthogonal()(rlx.random.key(0), (3, 3))
    >>> bool(np.allclose(w.T @ w, np.eye(3), atol=1e-5))
    True
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Array:
        sizes, found = canonical_shape(shape, "orthogonal"), _dtype(dtype)
        if len(sizes) < 2:
            raise ShapeError(f"orthogonal got shape {sizes}.", "It makes matrices: give two axes or more.")
        if 0 in sizes:
            return jnp.zeros(sizes, found)
        axis = canonical_axis(column_axis, len(sizes), "orthogonal")
        rest = sizes[:axis] + sizes[axis + 1 :]
        matrix = random.orthogonal(key, math.prod(rest), (), found, sizes[axis])
        return _times(jnp.moveaxis(matrix.reshape((*rest, sizes[axis])), -1, axis), scale)

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Convolution kernels that are an orthogonal matrix at the centre and 0 elsewhere.

    The shape is (*window, inputs, outputs) with one to three window axes. The initializer raises ShapeError for
    another, or for more inputs than outputs. Xiao et al., https://arxiv.org/abs/1806.05393.

    >>> import rlx
    >>> w = rlx.nn.initializers.delta_orthogonal()(rlx.random.key(0), (3, 2, 2))
    >>> rlx.numpy.abs(w).sum((1, 2)).tolist()[::2]
    [0.0, 0.0]
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Array:
        sizes, found = canonical_shape(shape, "delta_orthogonal"), _dtype(dtype)
        if len(sizes) not in (3, 4, 5) or sizes[-1] < sizes[-2]:
            raise ShapeError(
                f"delta_orthogonal got shape {sizes}.",
                "It makes (*window, inputs, outputs) with one to three window axes and no more inputs than outputs.",
            )
        matrix = orthogonal(scale, column_axis, found)(key, sizes[-2:])
        center = tuple((n - 1) // 2 for n in sizes[:-2])
        return jnp.zeros(sizes, found).at[center].set(matrix)

    return init


xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal
