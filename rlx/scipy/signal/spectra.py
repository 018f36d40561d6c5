"""Short-time Fourier transforms, their inverse, and spectral densities by Welch's method (Welch 1967)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ir.types import is_complex
from rlx.numpy.promotion import canonical_axis, complex_dtype, convert_to, float_of, promote_inexact
from rlx.scipy.signal.segments import Segmentation, cut, join, segmentation, window_of
from rlx.scipy.signal.trends import without_trend
from rlx.trace.flat import as_array

__all__ = ["csd", "istft", "stft", "welch"]

_TINY = 1e-10


# ------------------------------------------------------------------ segments and their spectra
def _extended(signal: Array, boundary: str | None, count: int) -> Array:
    """The signal with `count` more points on both sides."""
    widths = [(0, 0)] * (signal.ndim - 1) + [(count, count)]
    if boundary is None or count == 0:
        return signal
    if boundary == "zeros":
        return jnp.pad(signal, widths)
    if boundary == "constant":
        return jnp.pad(signal, widths, mode="edge")
    return jnp.pad(signal, widths, mode="reflect", reflect_type=boundary)


def _filled(signal: Array, size: int) -> Array:
    """The signal, padded with zeros to a length."""
    return jnp.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(0, size - signal.shape[-1])])


def _trend_remover(detrend: Any) -> Callable[[Array], Array]:
    if callable(detrend):
        return detrend
    if isinstance(detrend, str):
        return lambda segments: without_trend(segments, detrend)
    if detrend:
        raise ValueError(f"detrend is {detrend!r}: use 'constant', 'linear', False or a function of segments.")
    return lambda segments: segments


class _Analysis:
    """The parameters for signals of one length: window, segments, frequencies, and the scale of the results."""

    def __init__(
        self, size: int, dtype: np.dtype, fs: Any, window: Any, nperseg: int | None, noverlap: int | None,
        nfft: int | None, detrend: Any, onesided: bool,
    ) -> None:  # fmt: skip
        if nperseg is not None and int(nperseg) < 1:
            raise ValueError(f"nperseg is {nperseg}; a segment has one point or more.")
        self.window, length = window_of(window, None if nperseg is None else int(nperseg), size, dtype)
        self.parts: Segmentation = segmentation(length, noverlap, nfft)
        self.remove_trend = _trend_remover(detrend)
        self.onesided = onesided and not is_complex(dtype)
        if onesided and is_complex(dtype):
            warnings.warn("The signal is complex: its spectrum is two-sided.", stacklevel=4)
        self.fs = fs
        self.real = float_of(dtype)
        self.complex = complex_dtype(dtype)

    def frequencies(self) -> Array:
        """The frequencies of the spectra, in the unit of fs."""
        function = jnp.fft.rfftfreq if self.onesided else jnp.fft.fftfreq
        return convert_to(function(self.parts.transform, dtype=self.real) * self.fs, self.real)

    def times(self, size: int, extended: bool) -> Array:
        """The middle of each segment of a signal of `size` points."""
        half = self.parts.length / 2
        points = np.arange(half, size - half + 1, self.parts.step) - (half if extended else 0)
        return convert_to(as_array(points.astype(self.real)) / self.fs, self.real)

    def spectra(self, signal: Array) -> Array:
        """(..., points) as (..., segments, frequencies)."""
        segments = self.window * self.remove_trend(cut(signal, self.parts))
        if self.onesided:
            return convert_to(jnp.fft.rfft(segments, self.parts.transform), self.complex)
        return convert_to(jnp.fft.fft(segments, self.parts.transform), self.complex)

    def scale(self, scaling: str) -> Array:
        """The factor of squared amplitudes."""
        if scaling == "density":
            return 1 / (self.fs * jnp.sum(self.window * self.window))
        if scaling == "spectrum":
            return 1 / jnp.square(jnp.sum(self.window))
        raise ValueError(f"scaling is {scaling!r}: use 'density' or 'spectrum'.")


# ------------------------------------------------------------------ short-time Fourier transforms
def stft(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = 256, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = False, return_onesided: bool = True, boundary: str | None = "zeros",
    padded: bool = True, axis: int = -1,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The short-time Fourier transform: spectra of overlapping segments.

    Args:
      x: an array of signals along `axis`.
      fs: sampling frequency.
      window: weights of the points of a segment: a name or tuple of scipy.signal.get_window, or a 1-d array.
      nperseg: points of a segment; noverlap: points that neighbours share (None: half of them).
      nfft: length of the Fourier transforms (None: nperseg).
      detrend: "constant", "linear", a function of (..., segments, nperseg), or False.
      return_onesided: frequencies of 0 and more only; complex signals have two-sided spectra.
      boundary: the extension at both ends: "zeros", "even", "odd", "constant"; None: no extension.
      padded: fill the last segment with zeros instead of leaving it out.

    Returns: (frequencies, times, spectra) with the frequencies where `axis` was, and times last.

    >>> import rlx, rlx.numpy as jnp
    >>> frequencies, times, spectra = rlx.scipy.signal.stft(jnp.ones(8), nperseg=4)
    >>> frequencies, times.shape, spectra.shape
    (Array([0.  , 0.25, 0.5 ], dtype=float32), (5,), (3, 5))
    """
    if boundary not in ("zeros", "even", "odd", "constant", None):
        raise ValueError(f"boundary is {boundary!r}: use 'zeros', 'even', 'odd', 'constant' or None.")
    (signal,) = promote_inexact("stft", x)
    position = canonical_axis(axis, signal.ndim, "stft")
    if signal.size == 0:
        return _nothing(signal.shape, signal.dtype)
    signal = jnp.moveaxis(signal, position, -1)
    size = signal.shape[-1]
    analysis = _Analysis(size, signal.dtype, fs, window, nperseg, noverlap, nfft, detrend, return_onesided)
    parts = analysis.parts
    signal = _extended(signal, boundary, parts.length // 2)
    if padded:
        signal = _filled(signal, signal.shape[-1] + (parts.length - signal.shape[-1]) % parts.step % parts.length)
    spectra = convert_to(analysis.spectra(signal) * jnp.sqrt(analysis.scale("spectrum")), analysis.complex)
    times = analysis.times(signal.shape[-1], boundary is not None)
    return analysis.frequencies(), times, jnp.moveaxis(spectra, -1, position)


def _nothing(shape: tuple[int, ...], dtype: np.dtype) -> tuple[Array, Array, Array]:
    """The result for signals without points."""
    real = float_of(dtype)
    return jnp.zeros(shape, real), jnp.zeros(shape, real), jnp.zeros(shape, complex_dtype(dtype))


def istft(
    Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:  # fmt: skip
    """The signal of a short-time Fourier transform (Griffin and Lim 1984).

    Args:
      Zxx: spectra, frequencies along freq_axis, segments along time_axis.
      fs, window, nperseg, noverlap, nfft: as in `stft`; nperseg None: derived from the number of frequencies.
      input_onesided: the spectra have frequencies of 0 and more only; the signal is real.
      boundary: the signal was extended on both sides.

    Returns: (times, signal) with the signal's points where time_axis was; as many times as its first axis
    is long, as in SciPy. Raises: ShapeError for fewer than two axes.

    >>> import rlx, rlx.numpy as jnp
    >>> spectra = rlx.scipy.signal.stft(jnp.arange(6.0), nperseg=4)[2]
    >>> rlx.scipy.signal.istft(spectra)[1].round(3) + 0.0
    Array([0., 1., 2., 3., 4., 5.], dtype=float32)
    """
    (spectra,) = promote_inexact("istft", Zxx)
    if spectra.ndim < 2:
        raise ShapeError(f"istft got an array of shape {spectra.shape}.", "It takes frequencies along one axis,"
                         " segments along another one.")  # fmt: skip
    times_at = canonical_axis(time_axis, spectra.ndim, "istft")
    frequencies_at = canonical_axis(freq_axis, spectra.ndim, "istft")
    if times_at == frequencies_at:
        raise ShapeError(f"istft got the axis {times_at} both as time_axis and as freq_axis.", "Name two axes.")
    spectra = jnp.moveaxis(convert_to(spectra, complex_dtype(spectra.dtype)), (times_at, frequencies_at), (-2, -1))
    count = spectra.shape[-1]
    usual = 2 * (count - 1) if input_onesided else count
    length = usual if nperseg is None else int(nperseg)
    odd = input_onesided and length == usual + 1
    parts = segmentation(length, noverlap, nfft, usual + odd)
    inverse = jnp.fft.irfft if input_onesided else jnp.fft.ifft
    segments = inverse(spectra, parts.transform)[..., :length]
    weights, _ = window_of(window, length, None, segments.dtype)
    signal = join(segments * (weights * jnp.sum(weights)), parts)
    norm = join(jnp.broadcast_to(jnp.square(weights), segments.shape[-2:]), parts)
    half = length // 2
    if boundary and half:
        signal, norm = signal[..., half:-half], norm[half:-half]
    signal = signal / jnp.where(jnp.real(norm) > _TINY, norm, jnp.ones_like(norm))
    signal = jnp.moveaxis(signal, -1, times_at - (frequencies_at < times_at))
    real = float_of(signal.dtype)
    return convert_to(jnp.arange(signal.shape[0], dtype=real) / fs, real), signal


# ------------------------------------------------------------------ spectral densities
def _average(densities: Array, average: str) -> Array:
    """Of densities over the last axis."""
    count = densities.shape[-1]
    if average not in ("mean", "median"):
        raise ValueError(f"average is {average!r}: use 'mean' or 'median'.")
    if average == "mean":
        return jnp.mean(densities, axis=-1)
    even = np.arange(2.0, count, 2)
    bias = 1 + np.sum(1 / (even + 1) - 1 / even)  # of the median of exponentially distributed numbers
    if is_complex(densities.dtype):
        parts = [jnp.median(part, axis=-1) for part in (jnp.real(densities), jnp.imag(densities))]
        return convert_to((parts[0] + 1j * parts[1]) / bias, densities.dtype)
    return jnp.median(densities, axis=-1) / bias


def csd(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Array, Array]:  # fmt: skip
    """The cross spectral density of two signals, averaged over segments.

    Args:
      x, y: arrays of signals along `axis`; the shorter ones are filled with zeros. y None: x itself.
      fs, window, noverlap, nfft, return_onesided: as in `stft`.
      nperseg: points per segment (None: the length of the window, or of x).
      detrend: as in `stft`.
      scaling: "density": per unit of frequency, or "spectrum".
      average: over segments: "mean" or "median".

    Returns: (frequencies, densities), densities complex unless y is None.

    >>> import rlx, rlx.numpy as jnp
    >>> x = jnp.array([1.0, -1.0, 1.0, -1.0])
    >>> rlx.scipy.signal.csd(x, -x, window="boxcar")[1].real
    Array([ 0.,  0., -4.], dtype=float32)
    """
    first, second = promote_inexact("csd", x, x if y is None else y)
    if first.ndim != second.ndim:
        raise ShapeError(f"csd got arrays of shapes {first.shape} and {second.shape}.", "Pass two of equal rank.")
    position = canonical_axis(axis, first.ndim, "csd")
    signals = [jnp.moveaxis(v, position, -1) for v in (first, second)]
    if 0 in (first.size, second.size):
        outer = np.broadcast_shapes(*(v.shape[:-1] for v in signals))
        shape = (*outer[:position], min(v.shape[-1] for v in signals), *outer[position:])
        frequencies, _, densities = _nothing(shape, first.dtype)
        return frequencies, jnp.real(densities) if y is None else densities
    size = signals[0].shape[-1]
    analysis = _Analysis(size, first.dtype, fs, window, nperseg, noverlap, nfft, detrend, return_onesided)
    longest = max(v.shape[-1] for v in signals)
    spectra = [analysis.spectra(_filled(v, longest)) for v in signals[: 1 if y is None else 2]]
    densities = jnp.conj(spectra[0]) * spectra[-1] * analysis.scale(scaling)
    if analysis.onesided:  # the other half of the spectrum, but for the frequencies that are their own mirror images
        factors = np.full(densities.shape[-1], 2.0)
        factors[0] = 1
        if analysis.parts.transform % 2 == 0:
            factors[-1] = 1
        densities = densities * factors.astype(analysis.real)
    densities = convert_to(densities, analysis.complex) if y is not None else jnp.real(densities)
    averaged = _average(jnp.moveaxis(densities, -2, -1), average)
    return analysis.frequencies(), jnp.moveaxis(averaged, -1, position)


def welch(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Array, Array]:  # fmt: skip
    """The power spectral density of a signal, averaged over segments.

    Args: as `csd`, which has a second signal. Returns: (frequencies, densities), densities real.

    >>> import rlx, rlx.numpy as jnp
    >>> rlx.scipy.signal.welch(jnp.array([1.0, -1.0, 1.0, -1.0]), window="boxcar")[1]
    Array([0., 0., 4.], dtype=float32)
    """
    return csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)
