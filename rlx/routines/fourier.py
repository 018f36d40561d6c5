"""Discrete Fourier transforms on the host: NumPy's pocketfft."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx.routines.common import Arrays, Attributes

__all__ = ["fft"]


def fft(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The transform over the last axes."""
    (signal,) = inputs
    kind, lengths = attributes["kind"], tuple(attributes["lengths"])
    axes = tuple(range(signal.ndim - len(lengths), signal.ndim))
    if signal.size == 0 or 0 in lengths:
        return (_empty_transform(signal, kind, lengths),)
    functions: dict[str, Callable[..., np.ndarray]] = {
        "fft": np.fft.fftn,
        "ifft": np.fft.ifftn,
        "rfft": np.fft.rfftn,
        "irfft": np.fft.irfftn,
    }
    return (np.ascontiguousarray(functions[kind](signal, s=lengths, axes=axes)),)


def _empty_transform(signal: np.ndarray, kind: str, lengths: tuple[int, ...]) -> np.ndarray:
    """Zeros: the transform of an empty signal, for which NumPy raises an error."""
    single = signal.dtype in (np.float32, np.complex64)
    last = lengths[-1] // 2 + 1 if kind == "rfft" else lengths[-1]
    real, complex_ = (np.float32, np.complex64) if single else (np.float64, np.complex128)
    dtype = real if kind == "irfft" else complex_
    return np.zeros((*signal.shape[: signal.ndim - len(lengths)], *lengths[:-1], last), dtype)
