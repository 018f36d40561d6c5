"""rlx.scipy.signal against SciPy and JAX: values, derivatives, batches."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import jax.scipy.signal
import numpy as np
import pytest
import scipy.signal
from linalg_cases import agree, batch_is_a_loop, close, matrix, second_order_agrees

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.testing import check_grads

ours, theirs, model = rlx.scipy.signal, jax.scipy.signal, scipy.signal

MODES = ("full", "same", "valid")
SHAPES = {
    1: [(5,), (2,), (1,), (4,)],
    2: [(4, 3), (2, 2), (1, 3), (5, 4)],
    3: [(3, 3, 2), (2, 2, 2), (3, 2, 1)],
}


# ------------------------------------------------------------------ convolutions
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve"])
@pytest.mark.parametrize("rank", SHAPES)
def test_convolutions_of_any_rank(rank: int, name: str, dtype: str, mode: str) -> None:
    for first, second in itertools.product(SHAPES[rank], repeat=2):
        x, y = matrix(*first, dtype=dtype), matrix(*second, dtype=dtype, seed=1)
        try:
            expected = getattr(model, name.removeprefix("fft"))(x, y, mode=mode)
        except ValueError:  # neither lies within the other
            with pytest.raises(errors.ShapeError):
                getattr(ours, name)(x, y, mode=mode)
            continue
        close(getattr(ours, name)(x, y, mode=mode), expected, what=f"{first} {second}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
def test_convolutions_of_matrices(name: str, mode: str) -> None:
    for first, second in itertools.product([(4, 3), (2, 2), (2, 1), (5, 4)], repeat=2):
        x, y = matrix(*first, dtype="c16"), matrix(*second, dtype="c16", seed=1)
        close(getattr(ours, name)(x, y, mode), getattr(model, name)(x, y, mode), what=f"{first} {second}")


@pytest.mark.parametrize("method", ["direct", "fft"])
@pytest.mark.selected(1)
def test_derivatives_of_convolutions(method: str) -> None:
    x, y = matrix(5, 3), matrix(2, 2, seed=1)
    for name, mode in (("convolve", "same"), ("correlate", "full")):
        options = {"mode": mode, "method": method}
        agree(partial(getattr(ours, name), **options), partial(getattr(theirs, name), **options), x, y, compiled=True)
    second_order_agrees(
        lambda v: ours.convolve(v, v * v, method=method), lambda v: theirs.convolve(v, v * v, method=method), x
    )
    batch_is_a_loop(partial(ours.convolve, method=method), (x, y), (0, None))


def test_fourier_convolution_over_some_axes() -> None:
    x, y = matrix(3, 5, 2), matrix(3, 4, 2, seed=1)
    for mode in MODES:
        close(ours.fftconvolve(x, y, mode, axes=1), model.fftconvolve(x, y, mode, axes=1))
        close(ours.fftconvolve(x, y, mode, axes=(-2,)), model.fftconvolve(x, y, mode, axes=1))
    assert ours.fftconvolve(x.astype("f4"), y.astype("f4"), axes=1).dtype == np.float32
    assert ours.fftconvolve(x.astype("f2"), y.astype("f2"), axes=1).dtype == np.float16
    with pytest.raises(errors.ShapeError, match="equal lengths"):
        ours.fftconvolve(x, y, axes=0)


def test_wrong_convolutions() -> None:
    x = np.ones((2, 2))
    with pytest.raises(errors.ShapeError, match="empty"):
        ours.convolve(x, np.ones((0, 2)))
    with pytest.raises(errors.ShapeError, match="equal rank"):
        ours.correlate(x, np.ones(2))
    with pytest.raises(errors.ShapeError, match="rank 2"):
        ours.convolve2d(np.ones(2), np.ones(2))
    with pytest.raises(errors.UnsupportedError, match=r"rlx\.numpy\.pad"):
        ours.correlate2d(x, x, boundary="wrap")
    with pytest.raises(errors.UnsupportedError, match="zeros"):
        ours.convolve2d(x, x, fillvalue=1)
    with pytest.raises(ValueError, match="no mode 'most'"):
        ours.convolve(x, x, mode="most")
    with pytest.raises(ValueError, match="no method 'slow'"):
        ours.correlate(x, x, method="slow")


# ------------------------------------------------------------------ trends
@pytest.mark.parametrize("axis", [0, -1])
def test_detrend(axis: int) -> None:
    x = matrix(7, 6)
    for options in ({"type": "constant"}, {}, {"bp": [0, 1, 3]}, {"bp": 6 if axis == -1 else 7}):
        close(ours.detrend(x, axis=axis, **options), model.detrend(x, axis=axis, **options), what=str(options))
    check_grads(rlx.jit(partial(ours.detrend, axis=axis, bp=2)), (x,), order=1)


def test_wrong_trends() -> None:
    x = np.ones(4)
    with pytest.raises(ValueError, match="between 0 and 4"):
        ours.detrend(x, bp=5)
    with pytest.raises(ValueError, match="no type 'cubic'"):
        ours.detrend(x, type="cubic")
    with pytest.raises(errors.UnsupportedError, match="immutable"):
        ours.detrend(x, overwrite_data=True)
    assert ours.detrend(np.zeros((2, 0))).shape == (2, 0)


# ------------------------------------------------------------------ spectra
def spectra_agree(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        close(a, np.asarray(b))


@pytest.mark.parametrize(
    "options",
    [
        {"nperseg": 7},
        {"nperseg": 7, "noverlap": 5, "nfft": 9, "window": "hamming", "detrend": "constant", "boundary": "even"},
        {"nperseg": 8, "noverlap": 0, "boundary": "odd", "padded": False, "detrend": "linear"},
        {"nperseg": 6, "boundary": "constant", "window": ("kaiser", 2.0), "fs": 40.0},
        {"nperseg": 1, "noverlap": 0, "boundary": None, "axis": 0},
        {"window": np.hanning(6), "nperseg": 6, "return_onesided": False, "axis": 0},
    ],
    ids=lambda options: " ".join(options),
)
def test_stft(options: dict[str, Any]) -> None:
    x = matrix(13, 17)
    spectra_agree(ours.stft(x, **options), model.stft(x, **options))


def test_compiled_spectra() -> None:
    x = matrix(3, 40)
    for name in ("stft", "welch"):
        found = rlx.jit(partial(getattr(ours, name), nperseg=8))(x)
        spectra_agree(found, getattr(model, name)(x, nperseg=8))


def test_the_whole_signal_is_one_segment_by_default() -> None:
    x = matrix(15)
    spectra_agree(ours.welch(x), model.welch(x, nperseg=15))


def test_complex_signals_have_two_sided_spectra() -> None:
    x = matrix(20, dtype="c16")
    with pytest.warns(UserWarning, match="two-sided"):
        found = ours.stft(x, nperseg=8)
    spectra_agree(found, model.stft(x, nperseg=8, return_onesided=False))


@pytest.mark.parametrize(
    "options",
    [
        {"nperseg": 15},
        {"nperseg": 5, "noverlap": 4, "fs": 3.0},
        {"nperseg": 6, "scaling": "spectrum", "detrend": False, "average": "median"},
        {"nperseg": 4, "nfft": 7, "return_onesided": False, "detrend": "linear", "axis": 0},
    ],
    ids=lambda options: " ".join(options),
)
def test_densities(options: dict[str, Any]) -> None:
    x, y = matrix(12, 15), matrix(12, 15, seed=1)
    spectra_agree(ours.welch(x, **options), model.welch(x, **options))
    if options.get("average") != "median":  # SciPy's median of complex numbers is another one
        spectra_agree(ours.csd(x, y, **options), model.csd(x, y, **options))
        short = y[:9] if options.get("axis") == 0 else y[:, :9]
        spectra_agree(ours.csd(x, short, **options), model.csd(x, short, **options))


def test_median_of_cross_densities() -> None:
    x = matrix(40)
    options = {"nperseg": 8, "average": "median"}
    density = model.welch(x, **options)[1]
    close(ours.csd(x, x, **options)[1], density + 0j)
    close(ours.csd(x, -2 * x, **options)[1], -2 * density + 0j)


@pytest.mark.parametrize(
    "options",
    [{"nperseg": 8}, {"nperseg": 7, "noverlap": 5}, {"nperseg": 6, "boundary": None, "window": "hamming"}],
    ids=lambda options: " ".join(options),
)
def test_istft_undoes_stft(options: dict[str, Any]) -> None:
    x = matrix(3, 24)
    spectra = ours.stft(x, **options)[2]
    back = {"boundary": options.pop("boundary", True) is not None, **options}
    found, expected = ours.istft(spectra, **back)[1], model.istft(np.asarray(spectra), **back)[1]
    close(found, expected)
    if back["boundary"]:
        close(found[:, :24], x)


def test_istft_along_other_axes() -> None:
    spectra = matrix(9, 4, 5, dtype="c16")
    for options in ({"time_axis": 0, "freq_axis": 1}, {"time_axis": 0, "freq_axis": 2, "input_onesided": False}):
        given = {"boundary": False, "window": "boxcar", **options}
        spectra_agree(ours.istft(spectra, **given), model.istft(spectra, **given))


def test_derivatives_of_spectra() -> None:
    x = matrix(20)

    def there_and_back(v: Any) -> Any:
        spectra = ours.stft(v, nperseg=6)[2]
        return ours.istft(spectra * spectra, nperseg=6)[1]

    check_grads(there_and_back, (x,), order=2)
    check_grads(rlx.jit(lambda v: ours.welch(v, nperseg=6)[1]), (x,), order=1)
    batch_is_a_loop(lambda v: ours.welch(v, nperseg=6), (x,), (0,))
    # the sampling frequency may be traced
    check_grads(lambda fs: ours.welch(x, fs, nperseg=6)[1], (np.array(3.0),), order=1)


def test_spectra_of_nothing_and_wrong_arguments() -> None:
    for found, expected in zip(ours.stft(np.zeros((2, 0))), model.stft(np.zeros((2, 0))), strict=True):
        assert found.shape == expected.shape
    assert ours.csd(np.zeros((2, 0)), np.zeros((2, 0)))[1].shape == (2, 0)
    x = np.arange(9.0)
    with pytest.warns(UserWarning, match="longer than the signal"):
        assert ours.welch(x, nperseg=20)[0].shape == (5,)
    for options, message in (
        ({"nperseg": 0}, "nperseg is 0"),
        ({"nperseg": 4, "noverlap": 4}, "noverlap is 4"),
        ({"nperseg": 4, "nfft": 3}, "nfft is 3"),
        ({"nperseg": 4, "boundary": "wrap"}, "boundary is 'wrap'"),
        ({"nperseg": 4, "detrend": True}, "detrend is True"),
        ({"nperseg": 4, "window": np.ones(3)}, "4 points"),
        ({"window": np.ones(12), "nperseg": None}, "shorter window"),
    ):
        with pytest.raises(ValueError, match=message):
            ours.stft(x, **options)
    with pytest.raises(errors.ShapeError, match="frequencies"):
        ours.istft(x)
    with pytest.raises(ValueError, match="both as time_axis"):
        ours.istft(np.ones((3, 3)), time_axis=0, freq_axis=0)
    with pytest.raises(ValueError, match="average is 'mode'"):
        ours.welch(x, average="mode")
    with pytest.raises(ValueError, match="scaling is 'log'"):
        ours.welch(x, scaling="log")
    with pytest.raises(errors.ShapeError, match="equal rank"):
        ours.csd(x, jnp.ones((2, 9)))
