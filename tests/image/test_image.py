"""rlx.image against jax.image: values, first and second derivatives, batches."""

from __future__ import annotations

from typing import Any

import jax
import jax.image
import numpy as np
import pytest

import rlx
from rlx.testing import check_grads

METHODS = ["nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5"]
SHAPES = [((4, 5), (8, 3)), ((7, 6), (3, 6)), ((2, 5, 1), (2, 9, 4)), ((5, 5), (5, 0)), ((1, 3), (4, 3))]


def image(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(("before", "after"), SHAPES)
def test_resize(method: str, antialias: bool, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    x = image(before)
    expected = np.asarray(jax.image.resize(x, after, method, antialias))
    ours = lambda v: rlx.image.resize(v, after, method, antialias)  # noqa: E731
    for found in (ours(x), rlx.jit(ours)(x)):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-5, atol=2e-5)
    batch = np.stack([x, 2 * x])
    np.testing.assert_allclose(np.asarray(rlx.vmap(ours)(batch))[1], 2 * expected, rtol=4e-5, atol=4e-5)


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.selected(1)
def test_scale_and_translate(method: str) -> None:
    x, scale, move = image((6, 4)), np.array([1.7, 0.6], np.float32), np.array([-0.8, 1.3], np.float32)
    expected = jax.image.scale_and_translate(x, (9, 4), (0, 1), scale, move, method)
    found = rlx.image.scale_and_translate(x, (9, 4), (0, -1), scale, move, method)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=5e-5, atol=5e-5)


def test_derivatives() -> None:
    x = image((3, 4), np.float64)
    check_grads(lambda v: rlx.image.resize(v, (5, 2), "cubic"), (x,), order=2)
    where = np.array([1.3, 0.8]), np.array([0.21, -0.13])
    check_grads(lambda v, s, t: rlx.image.scale_and_translate(v, (4, 4), (0, 1), s, t, "cubic"), (x, *where), order=1)


def test_area_is_the_mean_of_what_a_pixel_covers() -> None:
    x = image((6, 4), np.float64)
    found = np.asarray(rlx.image.resize(x, (2, 2), "area"))
    np.testing.assert_allclose(found, x.reshape(2, 3, 2, 2).mean((1, 3)), rtol=1e-6)


def test_dtypes_and_bad_input() -> None:
    counts = np.arange(4, dtype=np.int32)
    assert rlx.image.resize(counts, (2,), "nearest").dtype == np.int32
    assert rlx.image.resize(counts, (2,), "linear").dtype == np.float32
    assert rlx.image.resize(counts, (2,), rlx.image.ResizeMethod.LINEAR).tolist() == pytest.approx([0.714286, 2.285714])
    with pytest.raises(rlx.errors.ShapeError):
        rlx.image.resize(counts, (2, 2), "linear")
    with pytest.raises(rlx.errors.UnsupportedError, match="no resize method"):
        rlx.image.resize(counts, (2,), "quintic")
    with pytest.raises(rlx.errors.UnsupportedError, match="nearest"):
        rlx.image.scale_and_translate(counts, (2,), (0,), np.ones(1), np.ones(1), "nearest")
    with pytest.raises(rlx.errors.ShapeError):
        rlx.image.scale_and_translate(counts, (2,), (0,), np.ones(2), np.ones(1), "linear")
