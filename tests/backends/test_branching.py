"""Functions as they are computed in loops that run one element at a time."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.numpy as rnp

POINTS = np.concatenate([
    np.linspace(-1e5, 1e5, 4001),
    np.linspace(-10, 10, 4001),
    np.arange(-200, 200) * (np.pi / 4),
    np.arange(-200, 200) * (np.pi / 2),
    np.geomspace(1e-40, 1e30, 500),
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-39, 3.4e38],
])  # fmt: skip


def in_a_loop(function, xs):
    def step(total, x):
        y = function(x)
        return total * 0.5 + y, y

    return rlx.jit(lambda xs: rlx.lax.scan(step, xs[0] * 0, xs)[1])(xs)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sine_and_cosine(name, dtype):
    xs = POINTS.astype(dtype)
    result = np.asarray(in_a_loop(getattr(rnp, name), xs))
    with np.errstate(invalid="ignore"):
        exact = getattr(np, name)(xs.astype(np.longdouble))
    finite = np.isfinite(xs)
    assert np.isnan(result[~finite]).all()
    error = np.abs(result[finite] - exact[finite])
    assert (error <= 1.5 * np.spacing(np.abs(exact[finite]).astype(dtype)) + np.finfo(dtype).smallest_subnormal).all()
    zeros = xs == 0
    np.testing.assert_array_equal(np.signbit(result[zeros]), np.signbit(exact[zeros]))
