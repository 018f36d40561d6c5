"""rlx.scipy.signal: convolutions, trends and spectra, differentiable and compiled."""

from rlx.offered_names import offer_names
from rlx.scipy.signal.convolution import convolve, convolve2d, correlate, correlate2d, fftconvolve
from rlx.scipy.signal.spectra import csd, istft, stft, welch
from rlx.scipy.signal.trends import detrend

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]

offer_names(globals())
