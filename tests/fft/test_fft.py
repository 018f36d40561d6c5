"""rlx.numpy.fft and rlx.lax.fft against NumPy and JAX."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "linalg"))
from linalg_cases import agree, batch_is_a_loop, close, matrix, second_order_agrees

import rlx
import rlx.numpy as jnp
from rlx import errors, lax

ours, theirs = jnp.fft, jax.numpy.fft

COMPLEX = ("fft", "ifft", "hfft", "irfft")
REAL = ("rfft", "ihfft", "fft")


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", [*COMPLEX, "rfft", "ihfft"])
@pytest.mark.selected(1)
def test_along_one_axis(name: str, norm: str | None) -> None:
    dtype = "f8" if name in ("rfft", "ihfft") else "c16"
    for axis in (-1, 0):
        for n in (None, 3, 6):
            options: dict[str, Any] = {"n": n, "axis": axis, "norm": norm}
            x = matrix(4, 5, dtype=dtype)
            wanted = getattr(np.fft, name)(x, **options)
            close(getattr(ours, name)(x, **options), wanted)
    agree(partial(getattr(ours, name), **options), partial(getattr(theirs, name), **options), x)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
@pytest.mark.selected(1)
def test_over_axes(name: str) -> None:
    x = matrix(3, 4, 5, dtype="f8" if name[0] == "r" else "c16")
    choices: list[dict[str, Any]] = [
        {},
        {"s": (2, 6)},
        {"axes": (0, 1)},
        {"s": (5, 3), "axes": (2, 0), "norm": "ortho"},
    ]
    for options in choices:
        if "s" in options and "axes" not in options and name[-1] == "n":
            options["axes"] = (-2, -1)
        close(getattr(ours, name)(x, **options), getattr(np.fft, name)(x, **options))
    agree(partial(getattr(ours, name), **choices[-1]), partial(getattr(theirs, name), **choices[-1]), x)


def test_dtypes() -> None:
    for dtype, result in (("f4", "c8"), ("f8", "c16"), ("c8", "c8"), ("i4", "c8"), ("f2", "c8"), ("?", "c8")):
        out = ours.fft(np.ones(4, dtype))
        assert out.dtype == np.dtype(result)
        close(out, np.array([4, 0, 0, 0], result))
    assert ours.irfft(np.ones(3, "c8")).dtype == np.float32


def test_derivatives_and_batches() -> None:
    second_order_agrees(
        lambda x: jnp.abs(ours.rfft(x)) ** 2, lambda x: jax.numpy.abs(theirs.rfft(x)) ** 2, matrix(3, 4)
    )
    for axes in ((0,), (1,), (2,)):
        batch_is_a_loop(partial(ours.rfft, axis=0), [matrix(4, 3)], axes)
        batch_is_a_loop(rlx.grad(lambda x: jnp.sum(jnp.abs(ours.fft2(x)) ** 2)), [matrix(4, 3)], axes)


def test_frequencies_and_shifts() -> None:
    for n in (1, 4, 5):
        with rlx.scoped(default_float=np.dtype("f8")):
            close(ours.fftfreq(n, 0.5), np.fft.fftfreq(n, 0.5))
            close(ours.rfftfreq(n, 0.5), np.fft.rfftfreq(n, 0.5))
    x = matrix(4, 5)
    for axes in (None, 0, (0, 1)):
        close(ours.fftshift(x, axes), np.fft.fftshift(x, axes))
        close(ours.ifftshift(x, axes), np.fft.ifftshift(x, axes))


def test_empty_batches_and_mistakes() -> None:
    close(rlx.jit(ours.fft)(np.zeros((0, 4))), np.zeros((0, 4), "c16"))
    with pytest.raises(errors.ShapeError, match="one point"):
        ours.fft(np.zeros((2, 3)), n=0)
    assert ours.fft(np.zeros((2, 0))).shape == (2, 0)
    with pytest.raises(ValueError, match="norm"):
        ours.fft(np.ones(3), norm="other")
    with pytest.raises(ValueError, match="real numbers"):
        ours.rfft(np.ones(3, complex))
    with pytest.raises(errors.ShapeError, match="test_fft.py"):
        ours.fft(np.ones(3), axis=1)


def test_lax() -> None:
    x = matrix(3, 4, 5)
    for kind, value, lengths in (
        ("FFT", x.astype("c16"), (4, 5)),
        ("IFFT", x.astype("c16"), (5,)),
        ("RFFT", x, (4, 5)),
        ("IRFFT", x.astype("c16"), (4, 8)),
    ):
        ours_type, their_type = lax.FftType[kind], getattr(jax.lax.FftType, kind)
        agree(
            partial(lax.fft, fft_type=ours_type, fft_lengths=lengths),
            partial(jax.lax.fft, fft_type=their_type, fft_lengths=lengths),
            value,
        )
        close(lax.fft(value, kind, lengths), jax.lax.fft(value, kind, lengths))
