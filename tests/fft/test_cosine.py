"""Cosine transforms against SciPy: all types, norms and lengths, derivatives, vmap."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

import rlx
from rlx.errors import ShapeError
from rlx.scipy import fft
from rlx.testing import check_grads


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape)


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ["dct", "idct"])
def test_one_axis(kind, norm, name):
    for length in (1, 2, 3, 4, 5, 8, 9):
        if kind == 1 and length == 1:
            continue
        x = numbers(3, length)
        expected = getattr(scipy.fft, name)(x, kind, norm=norm)
        np.testing.assert_allclose(getattr(fft, name)(x, kind, norm=norm), expected, atol=1e-12)
        compiled = rlx.jit(lambda v: getattr(fft, name)(v, kind, norm=norm))
        np.testing.assert_allclose(compiled(x), expected, atol=1e-12)
    x = numbers(5, 4)
    for n in (3, 7):
        expected = getattr(scipy.fft, name)(x, kind, n, 0, norm)
        np.testing.assert_allclose(getattr(fft, name)(x, kind, n, 0, norm), expected, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"s": (3, 7)}, {"axes": (0, 2)}, {"axes": (0,), "s": (9,)}, {"axes": ()}], ids=str
)
@pytest.mark.parametrize("name", ["dctn", "idctn"])
def test_several_axes(options, name):
    x = numbers(4, 5, 6) + 1j * numbers(6, 5, 4).T
    np.testing.assert_allclose(getattr(fft, name)(x, **options), getattr(scipy.fft, name)(x, **options), atol=1e-12)


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_derivatives_and_inverses(kind):
    x = numbers(2, 6)
    check_grads(lambda v: fft.dct(v, kind, norm="ortho"), (x,), order=2)
    np.testing.assert_allclose(fft.idct(fft.dct(x, kind), kind), x, atol=1e-13)
    rows = rlx.vmap(lambda v: fft.dct(v, kind))(x)
    np.testing.assert_allclose(rows, scipy.fft.dct(x, kind), atol=1e-12)


def test_dtypes():
    assert fft.dct(np.ones(3, "f4")).dtype == np.float32
    assert fft.dct(np.ones(3, "f2")).dtype == np.float32
    assert fft.dct(rlx.numpy.arange(3)).dtype == np.float32
    assert fft.dct(np.ones(3, "c16")).dtype == np.complex128


def test_wrong_arguments():
    with pytest.raises(ValueError, match="types 1 to 4"):
        fft.dct(np.ones(3), 5)
    with pytest.raises(ValueError, match="norm"):
        fft.dct(np.ones(3), norm="none")
    with pytest.raises(ShapeError, match="two or more"):
        fft.dct(np.ones(1), 1)
    with pytest.raises(ShapeError, match="one point"):
        fft.dct(np.ones(3), n=0)
