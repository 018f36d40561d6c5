"""Convolution, correlation and window functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.array import Array, wrap
from rlx.config import config
from rlx.errors import ShapeError
from rlx.numpy.floats import conj
from rlx.numpy.manipulation import flip
from rlx.numpy.placement import placed
from rlx.numpy.powers import i0
from rlx.numpy.promotion import canonical_size, convert_to, promote_inexact, to_dtype
from rlx.ops import arithmetic
from rlx.ops import shape as shapes
from rlx.ops.convolution import ConvDimensionNumbers, conv_general_dilated
from rlx.ops.precision import tf32_param
from rlx.trace.replay import replayed

__all__ = ["bartlett", "blackman", "convolve", "correlate", "hamming", "hanning", "kaiser"]


def _slide(name: str, x: Any, y: Any, mode: str, precision: Any, preferred: Any) -> Any:
    """Products of x with y slid along it, for x not shorter than y."""
    size, length = x.shape[0], y.shape[0]
    padding = {
        "full": (length - 1, length - 1),
        "same": (length // 2, length - 1 - length // 2),
        "valid": (0, 0),
    }
    if mode not in padding:
        raise ValueError(f"{name} has no mode {mode!r}: use 'full', 'same' or 'valid'.")
    if preferred is not None:
        x, y = [convert_to(v, to_dtype(preferred)) for v in (x, y)]
    if size == 1 and length == 1:
        return arithmetic.multiply(x, y)
    result = conv_general_dilated(
        shapes.reshape(x, shape=(1, 1, size)),
        shapes.reshape(y, shape=(1, 1, length)),
        window_strides=(1,),
        padding=(padding[mode],),
        lhs_dilation=(1,),
        rhs_dilation=(1,),
        dimension_numbers=ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2)),
        feature_group_count=1,
        batch_group_count=1,
        **tf32_param(precision, x.dtype),
    )
    return shapes.reshape(result, shape=result.shape[2:])


def _vectors(name: str, x: Any, y: Any) -> list[Any]:
    operands = promote_inexact(name, x, y)
    if any(v.ndim != 1 or v.size == 0 for v in operands):
        raise ShapeError(
            f"{name} got operands of shapes {operands[0].shape} and {operands[1].shape}.",
            "It takes 1-d arrays that are not empty; see rlx.lax.conv_general_dilated for more.",
        )
    return operands


@replayed
def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The convolution of two sequences.

    Args: a, v: 1-d arrays; mode: "full", "same" (size of the longer one) or "valid" (only where both
    overlap); preferred_element_type: dtype of the result.
    Returns: a floating 1-d array. Raises: ShapeError unless both are 1-d and not empty.

    >>> import rlx.numpy as jnp
    >>> jnp.convolve(jnp.array([1, 2]), jnp.array([1, 1]))
    Array([1., 3., 2.], dtype=float32)
    """
    x, y = _vectors("convolve", a, v)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    return _slide("convolve", x, flip(y), mode, precision, preferred_element_type)


@replayed
def correlate(
    a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """The correlation of two sequences, the second conjugated.

    Args: as `convolve`. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.correlate(jnp.array([1, 2, 3]), jnp.array([1, 1]))
    Array([3., 5.], dtype=float32)
    """
    x, y = _vectors("correlate", a, v)
    y = conj(y)
    if x.shape[0] >= y.shape[0]:
        return _slide("correlate", x, y, mode, precision, preferred_element_type)
    return flip(_slide("correlate", y, x, mode, precision, preferred_element_type))


# ------------------------------------------------------------------ windows
def _cosines(name: str, M: int, weights: tuple[float, ...]) -> Array:
    count = canonical_size(M, name)
    dtype = config.default_float
    if count <= 1:
        return placed(wrap(np.ones(max(count, 0), dtype)))
    angle = 2 * math.pi * np.arange(count) / (count - 1)
    return placed(wrap(np.sum([w * np.cos(k * angle) for k, w in enumerate(weights)], axis=0).astype(dtype)))


def blackman(M: int) -> Array:
    """The Blackman window.

    Args: M: number of points. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.blackman(3).round(3)
    Array([-0.,  1., -0.], dtype=float32)
    """
    return _cosines("blackman", M, (0.42, -0.5, 0.08))


def hamming(M: int) -> Array:
    """The Hamming window.

    Args: M: number of points. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.hamming(3).round(3)
    Array([0.08, 1.  , 0.08], dtype=float32)
    """
    return _cosines("hamming", M, (0.54, -0.46))


def hanning(M: int) -> Array:
    """The Hann window.

    Args: M: number of points. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.hanning(3)
    Array([0., 1., 0.], dtype=float32)
    """
    return _cosines("hanning", M, (0.5, -0.5))


def bartlett(M: int) -> Array:
    """The triangular window with zero ends.

    Args: M: number of points. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.bartlett(3)
    Array([0., 1., 0.], dtype=float32)
    """
    return placed(wrap(np.bartlett(canonical_size(M, "bartlett")).astype(config.default_float)))


def kaiser(M: int, beta: Any) -> Array:
    """The Kaiser window.

    Args: M: number of points; beta: shape, may be traced. Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.kaiser(3, 0.0)
    Array([1., 1., 1.], dtype=float32)
    """
    count = canonical_size(M, "kaiser")
    dtype = config.default_float
    if count <= 1:
        return placed(wrap(np.ones(max(count, 0), dtype)))
    half = (count - 1) / 2
    shape = wrap(np.sqrt(np.maximum(0, 1 - ((np.arange(count) - half) / half) ** 2)).astype(dtype))
    width = convert_to(beta, dtype)
    return arithmetic.divide(i0(arithmetic.multiply(shape, width)), i0(width))
