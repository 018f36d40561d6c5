"""The few largest elements of long rows, by blocks: values, positions, ties, NaN and zeros."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint8"])
@pytest.mark.parametrize(("shape", "k"), [((7, 2000), 10), ((300,), 3), ((4, 257), 32), ((2, 3, 999), 1)])
def test_as_by_sorting(shape, k, dtype):
    x = (RANDOM.standard_normal(shape) * 20).astype(np.int32)
    x = np.abs(x).astype(dtype) if dtype == "uint8" else x.astype(dtype)
    if dtype.startswith("float"):
        x.flat[::37], x.flat[5::41], x.flat[7::43] = np.nan, -np.inf, -0.0
    values, places = rlx.jit(lambda x: rlx.lax.top_k(x, k))(x)
    sortable = np.flip(x, -1)
    order = np.flip(np.argsort(sortable, axis=-1, kind="stable"), -1)[..., :k]
    expected = x.shape[-1] - 1 - order
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, -1))


def test_many_equal_elements_come_in_order():
    x = (RANDOM.integers(0, 3, (5, 1000))).astype(np.float32)
    _, places = rlx.jit(lambda x: rlx.lax.top_k(x, 50))(x)
    for row, found in zip(x, np.asarray(places), strict=True):
        expected = [i for value in (2, 1, 0) for i in np.flatnonzero(row == value)][:50]
        np.testing.assert_array_equal(found, expected)


def test_long_rows_are_not_sorted_whole():
    plan = rlx.inspect(lambda x: rlx.lax.top_k(x, 4))(np.zeros((10, 4096), np.float32)).plan
    assert max(k.length for k in plan.kernels if hasattr(k, "length")) < 400


def test_gradient():
    x = RANDOM.standard_normal((3, 500)).astype(np.float32)
    slope = rlx.jit(rlx.grad(lambda x: (rlx.lax.top_k(x, 5)[0] ** 2).sum()))(x)
    expected = np.zeros_like(x)
    order = np.argsort(-x, axis=-1)[:, :5]
    np.put_along_axis(expected, order, 2 * np.take_along_axis(x, order, -1), -1)
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert rnp.isfinite(slope).all()
