"""Fourier transforms in native code: lengths with all kinds of factors, panels, several axes, NaN."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.ops.fourier import fft

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 20, 25, 27, 30, 35, 49, 60, 64, 97, 100, 128, 243, 1000, 1009)


def signal(dtype: str, *shape: int) -> np.ndarray:
    generator = np.random.default_rng(shape)
    values = generator.normal(size=shape) + (1j * generator.normal(size=shape) if dtype[0] == "c" else 0)
    return np.asarray(values).astype(dtype)


def close(result: object, expected: np.ndarray, single: bool) -> None:
    found = np.asarray(result)
    assert found.shape == expected.shape
    scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=3e-6 if single else 2e-14)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("single", [True, False])
def test_lengths(length, single):
    complex_, real = ("c8", "f4") if single else ("c16", "f8")
    for rows in (1, 3, 8, 17):
        z, x = signal(complex_, rows, length), signal(real, rows, length)
        half = signal(complex_, rows, length // 2 + 1)
        close(rlx.jit(jnp.fft.fft)(z), np.fft.fft(z.astype("c16")), single)
        close(rlx.jit(jnp.fft.ifft)(z), np.fft.ifft(z.astype("c16")), single)
        close(rlx.jit(jnp.fft.rfft)(x), np.fft.rfft(x.astype("f8")), single)
        inverse = rlx.jit(lambda v: jnp.fft.irfft(v, length))(half)
        close(inverse, np.fft.irfft(half.astype("c16"), length), single)


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 5), (16, 12, 10), (3, 20, 9), (1, 8, 1)], ids=str)
@pytest.mark.parametrize("single", [True, False])
def test_several_axes(shape, single):
    complex_, real = ("c8", "f4") if single else ("c16", "f8")
    for name, dtype in (("fftn", complex_), ("ifftn", complex_), ("rfftn", real)):
        x = signal(dtype, *shape)
        close(
            rlx.jit(getattr(jnp.fft, name))(x),
            getattr(np.fft, name)(x.astype(dtype[0] + ("16" if dtype[0] == "c" else "8"))),
            single,
        )
    x = signal(complex_, *shape)
    lengths = (*shape[:-1], 2 * shape[-1] - 1)
    if min(lengths) > 0:
        result = rlx.jit(lambda v: jnp.fft.irfftn(v, lengths))(x)
        close(result, np.fft.irfftn(x.astype("c16"), lengths, axes=range(len(shape))), single)


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize("length", [8, 15, 14])
def test_a_row_with_nan_or_large_numbers_spoils_no_other(kind, length):
    given = length // 2 + 1 if kind == "irfft" else length
    x = signal("f4" if kind == "rfft" else "c8", 20, given)
    x[3] = np.nan
    x[4] *= 1e20
    x[5, 2] = np.inf
    result = np.asarray(rlx.jit(lambda v: fft(v, kind=kind, lengths=(length,)))(x))
    with np.errstate(all="ignore"):
        expected = fft.reference(x, kind=kind, lengths=(length,))
    assert np.isnan(result[3]).all()
    assert not np.isfinite(result[5]).all()
    rows = [n for n in range(20) if n not in (3, 5)]
    for row in rows:
        close(result[row], expected[row], True)


def test_long_transforms_run_in_numpy():
    x = signal("c16", 10_000)
    close(rlx.jit(jnp.fft.fft)(x), np.fft.fft(x), False)


def test_constant_and_impulse_are_exact():
    np.testing.assert_array_equal(rlx.jit(jnp.fft.fft)(np.ones(16, "c8")), [16, *[0] * 15])
    impulse = np.eye(1, 32, dtype="c16")[0]
    np.testing.assert_array_equal(rlx.jit(jnp.fft.fft)(impulse), np.ones(32))


def test_views_and_empty_batches():
    x = signal("c8", 12, 9)
    close(rlx.jit(lambda v: jnp.fft.fft(v[::-2, ::2].T))(x), np.fft.fft(x[::-2, ::2].T.astype("c16")), True)
    assert rlx.jit(jnp.fft.fft)(np.zeros((0, 4), "c8")).shape == (0, 4)
    assert jnp.fft.fft(np.zeros((0,), "c8")).shape == (0,)
