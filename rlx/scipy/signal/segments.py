"""Overlapping segments of signals: their windows, how they are cut out, and how they are put together again."""

from __future__ import annotations

import warnings
from math import prod
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ops.window import overlap_add, windows
from rlx.trace.flat import as_array

__all__ = ["Segmentation", "cut", "join", "segmentation", "window_of"]


class Segmentation(NamedTuple):
    """How long segments are, by how much they overlap, and the length of their Fourier transforms."""

    length: int
    overlap: int
    transform: int

    @property
    def step(self) -> int:
        """The distance between the starts of two segments."""
        return self.length - self.overlap


def segmentation(length: int, noverlap: int | None, nfft: int | None, default_nfft: int | None = None) -> Segmentation:
    """The segmentation of checked lengths; without others, segments overlap by half."""
    if length < 1:
        raise ValueError(f"nperseg is {length}; a segment has one point or more.")
    overlap = length // 2 if noverlap is None else int(noverlap)
    if not 0 <= overlap < length:
        raise ValueError(f"noverlap is {overlap}; it must be at least 0 and less than nperseg, {length}.")
    transform = int(nfft) if nfft is not None else (default_nfft or length)
    if transform < length:
        raise ValueError(f"nfft is {transform}; it must be at least nperseg, {length}.")
    return Segmentation(length, overlap, transform)


# ------------------------------------------------------------------ windows
def _named_window(window: str | tuple[Any, ...], length: int) -> np.ndarray:
    if window == "hann":
        return np.sin(np.pi * np.arange(length) / length) ** 2 if length > 1 else np.ones(1)
    from scipy.signal import get_window  # slow to import, and seldom needed

    return get_window(window, length)


def window_of(window: Any, length: int | None, size: int | None, dtype: np.dtype) -> tuple[Array, int]:
    """A window as an array, and the length of segments.

    window: a name or a tuple as scipy.signal.get_window takes them, or an array; length: of the
    segments, None for the length of the array or the signal; size: of the signal, None for any size.
    """
    if isinstance(window, (str, tuple)):
        if length is not None and size is not None and length > size:
            warnings.warn(f"nperseg={length} is longer than the signal, {size}: it becomes {size}.", stacklevel=4)
            length = size
        points = size if length is None else length
        if points is None or points < 1:
            raise ValueError(f"nperseg is {points}; a segment has one point or more.")
        return as_array(_named_window(window, points).astype(dtype)), points
    values = jnp.asarray(window, dtype)
    if values.ndim != 1 or (length is not None and values.shape[0] != length):
        wanted = "nperseg" if length is None else length
        raise ShapeError(f"The window has shape {values.shape}.", f"Pass a 1-d array of {wanted} points.")
    if size is not None and values.shape[0] > size:
        raise ShapeError(f"The window has {values.shape[0]} points, the signal {size}.", "Pass a shorter window.")
    return values, values.shape[0]


# ------------------------------------------------------------------ cutting and joining
def cut(signal: Array, parts: Segmentation) -> Array:
    """(..., points) as (..., segments, length)."""
    *outer, size = signal.shape
    rows = jnp.reshape(signal, (prod(outer), size))
    segments = windows(rows, window=(1, parts.length), strides=(1, parts.step), dilation=(1, 1))
    return jnp.reshape(segments, (*outer, segments.shape[1], parts.length))


def join(segments: Array, parts: Segmentation) -> Array:
    """(..., segments, length) added up as (..., points), each where `cut` takes it from."""
    *outer, count, length = segments.shape
    size = length + (count - 1) * parts.step
    rows = jnp.reshape(segments, (prod(outer), count, 1, length))
    joined = overlap_add(rows, shape=(prod(outer), size), strides=(1, parts.step), dilation=(1, 1))
    return jnp.reshape(joined, (*outer, size))
