"""Loops over three or four elements become straight-line code."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp
from rlx.ir.kernels import Loops

RANDOM = np.random.default_rng(1)


def pairwise(power):
    def energy(q):
        d = q[:, None] - q[None]
        return (((d**2).sum(-1) + 0.5) ** power).sum()

    return energy


def kernels_of(f, *args):
    return [k for k in rlx.inspect(f)(*args).plan.kernels if isinstance(k, Loops)]


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("points", [3, 40, 700])
def test_forces_between_points(points, size):
    q = RANDOM.standard_normal((points, size)).astype(np.float32)
    result = np.asarray(rlx.jit(rlx.grad(pairwise(-0.5)))(q))
    expected = np.asarray(rlx.grad(pairwise(-0.5))(q.astype(np.float64)))
    np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())


def test_the_loop_over_coordinates_is_gone():
    kernel = kernels_of(rlx.grad(pairwise(-0.5)), np.zeros((700, 3), np.float32))[0]
    assert kernel.sizes == (700, 700)
    assert kernel.chunks > 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x[:, None] * y[None, :],
        lambda x, y: (x[:, None] * y[None, :]).sum(1),
        lambda x, y: (x[:, None] + y[None, :]).sum((0, 2)),
        lambda x, y: (x[:, None] + y[None, :]).sum(0),
        lambda x, y: (x[:, None] - y[None, :]).sum(2),
        lambda x, y: (x[:, None] - y[None, :]).sum(),
        lambda x, y: ((x - x.mean(-1, keepdims=True))[:, None] * y[None]).sum(1),
        lambda x, y: rnp.cumsum(x[:, None] * y[None, :], -1),
        lambda x, y: (x[:, None] * y[None, :])[..., ::-1].transpose(1, 0, 2),
    ],
)
def test_all_ways_to_use_the_elements(f, dtype):
    x = (RANDOM.standard_normal((33, 3)) * 4).astype(dtype)
    y = (RANDOM.standard_normal((47, 3)) * 4).astype(dtype)
    expected = np.asarray(f(rnp.asarray(x), rnp.asarray(y)))
    result = np.asarray(rlx.jit(f)(x, y))
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-2 if dtype != "float64" else 1e-9)
