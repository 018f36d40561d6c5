"""Overlapping windows added up: shifted reads for small windows, look-ups for large ones."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import lax
from rlx.ir.kernels import Loops
from rlx.ops import overlap
from rlx.passes.pipeline import executables

rng = np.random.default_rng(4)


@pytest.mark.parametrize("window", [(3, 3), (2, 5), (1, 4)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_gradient_of_max_pooling(window, strides, padding):
    def loss(x):
        y = lax.reduce_window(x, -np.inf, lax.max, (1, *window, 1), (1, *strides, 1), padding)
        return (y * y).sum()

    x = rng.normal(size=(2, 11, 10, 3)).astype(np.float32)
    gradient = rlx.grad(loss)
    np.testing.assert_allclose(rlx.jit(gradient)(x), gradient(x), rtol=1e-5, atol=1e-6)


def test_small_windows_need_no_computed_addresses():
    def loss(x):
        return (lax.reduce_window(x, -np.inf, lax.max, (3, 3), (2, 2), "SAME") ** 2).sum()

    plan = rlx.jit(rlx.grad(loss)).lower(np.ones((20, 20), np.float32)).compile().plan
    loads = [i for k in plan.kernels if isinstance(k, Loops) for i in k.instructions if i.op == "load"]
    assert loads and not any(load.args for load in loads)


@pytest.mark.parametrize("most", [0, 49])
def test_both_ways_agree(monkeypatch, most):
    monkeypatch.setattr(overlap, "_MOST_TERMS", most)
    x = rng.normal(size=(4, 3, 3, 4)).astype(np.float32)

    def spread(x):
        return overlap.overlap_add(x, shape=(15, 9), strides=(3, 2), dilation=(2, 1))

    expected = overlap.overlap_add.reference(x, shape=(15, 9), strides=(3, 2), dilation=(2, 1))
    executables.clear()
    np.testing.assert_allclose(rlx.jit(spread)(x), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "int4", "uint8"])
def test_windows_of_every_dtype_eagerly(dtype):
    """Among them float8_e5m2, whose letter NumPy's strided views do not know."""
    x = rlx.numpy.ones(6, dtype)
    found = rlx.lax.reduce_window(x, rlx.numpy.zeros((), dtype), rlx.lax.max, (2,), (1,), "SAME")
    assert found.dtype == x.dtype and (np.asarray(found, "float32") == 1).all()
