"""Trends taken off signals."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import UnsupportedError
from rlx.numpy.promotion import canonical_axis, promote_inexact

__all__ = ["detrend", "without_mean", "without_trend"]


def without_mean(signal: Array) -> Array:
    """Signals along the last axis minus their means."""
    return signal - jnp.mean(signal, axis=-1, keepdims=True)


def _without_line(signal: Array) -> Array:
    """Signals along the last axis minus the lines that fit them best."""
    size = signal.shape[-1]
    centred = np.arange(size) - (size - 1) / 2
    direction = (centred / (np.linalg.norm(centred) or 1.0)).astype(signal.dtype)
    level = without_mean(signal)
    return level - jnp.sum(level * direction, axis=-1, keepdims=True) * direction


def without_trend(signal: Array, type: str, breaks: Sequence[int] = ()) -> Array:
    """Signals along the last axis minus a constant, or a line between each two breaks."""
    if type not in ("linear", "constant"):
        raise ValueError(f"detrend has no type {type!r}: use 'linear' or 'constant'.")
    if type == "constant":
        return without_mean(signal)
    size = signal.shape[-1]
    ends = sorted({0, *breaks, size})
    if ends[0] < 0 or ends[-1] > size:
        raise ValueError(f"detrend got breakpoints {list(breaks)}: they must be between 0 and {size}.")
    pieces = [_without_line(signal[..., a:b]) for a, b in zip(ends, ends[1:], strict=False)]
    return jnp.concatenate(pieces, axis=-1) if pieces else signal


def detrend(
    data: Any, axis: int = -1, type: str = "linear", bp: int | Sequence[int] = 0, overwrite_data: None = None
) -> Array:
    """Signals minus their trends: the best fitting constants or lines.

    Args:
      data: an array of signals along `axis`.
      axis: an int.
      type: "linear" or "constant".
      bp: with "linear", where one line ends and the next one begins: an int or several.
      overwrite_data: None: arrays are immutable.

    Returns: a floating array of the same shape. Raises: ValueError for breakpoints outside of the signal.

    >>> import rlx, rlx.numpy as jnp
    >>> rlx.scipy.signal.detrend(jnp.array([1.0, 2.0, 3.0, 5.0]), type="constant")
    Array([-1.75, -0.75,  0.25,  2.25], dtype=float32)
    """
    if overwrite_data is not None:
        raise UnsupportedError("detrend got overwrite_data; arrays are immutable.", "Leave it out.")
    (signal,) = promote_inexact("detrend", data)
    position = canonical_axis(axis, signal.ndim, "detrend")
    breaks = [operator.index(b) for b in np.ravel(bp)]
    return jnp.moveaxis(without_trend(jnp.moveaxis(signal, position, -1), type, breaks), -1, position)
