"""Sums of many rows: cut in parts that are added up apart, for speed and for accuracy."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp

rng = np.random.default_rng(8)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((16384, 32), 0),
        ((8, 32, 32, 32), (0, 1, 2)),
        ((100_000, 8), 0),
        ((99_991, 4), 0),
        ((100_000, 12), 0),
        ((70_000, 1), 0),
        ((1_000_003,), 0),
        ((300, 7, 333), (0, 2)),
        ((20_000, 3, 5), 0),
    ],
)
def test_error_of_float32_sums(shape, axes):
    x = (rng.normal(size=shape) + 1).astype(np.float32)
    exact = x.sum(axes, dtype=np.float64)
    result = rlx.jit(lambda x: x.sum(axes))(x)
    np.testing.assert_allclose(result, exact, rtol=6e-7)


@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod", "any"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64", "float16"])
def test_every_reducer(reduce, dtype):
    if dtype == "complex64" and reduce in ("max", "min"):
        return
    x = rng.integers(1, 3, (24_000, 6)).astype(dtype)
    if reduce == "prod":
        x[:] = 1
        x[::4000] = 2
    actual = rlx.jit(lambda x: getattr(jnp, reduce)(x, axis=0))(x)
    wide = x.astype(np.float32) if dtype == "float16" else x
    np.testing.assert_allclose(actual, getattr(np, reduce)(wide, axis=0).astype(actual.dtype), rtol=2e-3)


def test_what_is_summed_is_computed_in_the_same_kernel():
    x, scale = rng.normal(size=(50_000, 6)).astype(np.float32), rng.normal(size=6).astype(np.float32)
    function = rlx.jit(lambda x, scale: (jnp.sin(x) * scale).sum(0) + 1)
    plan = function.lower(x, scale).compile().plan
    assert all(buffer.size < x.size for buffer in plan.buffers if buffer.role == "temporary")
    np.testing.assert_allclose(function(x, scale), (np.sin(x) * scale).sum(0) + 1, rtol=1e-3)


def test_not_a_number_stays_one():
    x = np.ones((30_000, 5), np.float32)
    x[12_345, 2] = np.nan
    x[3, 4] = np.inf
    result = rlx.jit(lambda x: x.sum(0))(x)
    np.testing.assert_array_equal(result, [30_000, 30_000, np.nan, 30_000, np.inf])
