"""rlx.scipy.ndimage against SciPy and JAX."""

from __future__ import annotations

from functools import partial

import jax.scipy.ndimage
import numpy as np
import pytest
import scipy.ndimage
from linalg_cases import agree, batch_is_a_loop, close, matrix

import rlx
from rlx import errors
from rlx.testing import check_grads

ours, theirs, model = (m.map_coordinates for m in (rlx.scipy.ndimage, jax.scipy.ndimage, scipy.ndimage))

MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("mode", MODES)
def test_values_inside_and_outside(mode: str, order: int) -> None:
    image = matrix(3, 4, 2)
    inside = [np.random.default_rng(i).uniform(0, n - 1, (2, 5)) for i, n in enumerate(image.shape)]
    outside = [4 * c - n for c, n in zip(inside, image.shape, strict=True)]
    close(ours(image, inside, order, mode, 0.5), model(image, inside, order=order, mode=mode, cval=0.5))
    for dtype in ("f4", "i4", "u1", "c16", "?"):
        pixels = (10 * image).astype(dtype)
        found = ours(pixels, np.stack(outside), order, mode, 3)
        np.testing.assert_allclose(found, theirs(pixels, np.stack(outside), order, mode, 3), rtol=1e-5, atol=1e-5)
        assert found.dtype == pixels.dtype


@pytest.mark.parametrize("mode", MODES)
def test_one_pixel(mode: str) -> None:
    coordinates = np.array([[-1.5, 0.0, 2.0]])
    expected = [3.0, 7.0, 3.0] if mode == "constant" else [7.0, 7.0, 7.0]
    np.testing.assert_array_equal(ours(np.array([7.0]), coordinates, 0, mode, 3.0), expected)


def test_coordinates_are_integers_or_halves() -> None:
    image = np.arange(-3, 3)
    halves = [np.array([0.5, 1.5, 2.5, 3.5])]
    for order in (0, 1):
        np.testing.assert_array_equal(ours(image, halves, order), model(image, halves, order=order))
        np.testing.assert_array_equal(ours(image, [np.arange(6)[::-1]], order), image[::-1])


@pytest.mark.parametrize("mode", ["constant", "reflect"])
@pytest.mark.selected(1)
def test_derivatives_are_those_of_jax(mode: str) -> None:
    image, coordinates = matrix(3, 4), np.array([[-0.7, 1.2, 2.4], [0.3, 4.6, 2.0]])
    agree(lambda x, c: ours(x, c, 1, mode), lambda x, c: theirs(x, list(c), 1, mode), image, coordinates, compiled=True)


def test_derivatives_and_batches() -> None:
    image, coordinates = matrix(4, 5), np.array([[0.3, 2.6], [1.2, 3.4]])
    check_grads(partial(ours, order=1, mode="mirror"), (image, coordinates), order=2)
    batch_is_a_loop(lambda x, c: ours(x, c, 1), (image, coordinates), (0, None))


def test_wrong_arguments() -> None:
    x, c = np.arange(5.0), [np.linspace(0, 5, 3)]
    with pytest.raises(errors.UnsupportedError, match="no order 2"):
        ours(x, c, order=2)
    with pytest.raises(errors.UnsupportedError, match="no mode 'grid-wrap'"):
        ours(x, c, order=1, mode="grid-wrap")
    with pytest.raises(errors.ShapeError, match="2 coordinates for an array of 1 axes"):
        ours(x, [c[0], c[0]], order=1)
