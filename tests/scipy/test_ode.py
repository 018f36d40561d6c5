"""rlx.experimental.ode against SciPy, closed forms and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.experimental.ode import odeint
from rlx.testing import check_grads

TIMES = np.array([0.0, 0.3, 1.0, 1.7])


def pendulum(module: Any) -> Any:
    return lambda y, t, mass: module.stack([y[1], -mass * y[1] * t - 9.8 * module.sin(y[0])])


def test_pendulum_is_scipys() -> None:
    start = np.array([3.0, 0.1])
    expected = scipy.integrate.odeint(pendulum(np), start, TIMES, (0.25,), rtol=1e-10, atol=1e-10)
    for run in (odeint, rlx.jit(odeint, static_argnums=0)):
        np.testing.assert_allclose(run(pendulum(jnp), start, TIMES, 0.25), expected, atol=1e-6)


@pytest.mark.thorough
def test_closed_forms() -> None:
    tree = {"a": 2.0, "b": np.ones((2, 2)), "n": 3}
    found = odeint(lambda y, t: rlx.tree.map(lambda x: -x, y), tree, TIMES)
    np.testing.assert_allclose(found["a"], 2 * np.exp(-TIMES), rtol=1e-6)
    np.testing.assert_allclose(found["b"], np.exp(-TIMES)[:, None, None] * np.ones((2, 2)), rtol=1e-6)
    assert found["n"].dtype == np.float32
    turning = odeint(lambda y, t: 1j * y, np.array(1 + 0j), TIMES)
    np.testing.assert_allclose(turning, np.exp(1j * TIMES), rtol=1e-7)
    steps = odeint(lambda y, t: jnp.where(t < 2, 1.0, 0.0), np.array(0.0), np.array([0.0, 5.0]), hmax=1.0)
    np.testing.assert_allclose(steps, [0, 2], atol=1e-4)
    assert odeint(lambda y, t: y, np.ones(2), TIMES[:1]).tolist() == [[1.0, 1.0]]


@pytest.mark.thorough
def test_derivatives() -> None:
    start = np.array([1.0, 0.1])
    check_grads(lambda y, t, m: odeint(pendulum(jnp), y, t, m), (start, TIMES[:3], np.array(0.25)), 1, modes=["rev"])
    closed = rlx.grad(lambda rate: odeint(lambda y, t: -rate * y, np.array(2.0), TIMES)[-1])(np.array(0.5))
    np.testing.assert_allclose(closed, -1.7 * 2 * np.exp(-0.85), rtol=1e-6)
    curved = rlx.grad(rlx.grad(lambda rate: odeint(lambda y, t: -rate * y, np.array(2.0), TIMES[:2])[-1]))(
        np.array(0.5)
    )
    np.testing.assert_allclose(curved, 0.09 * 2 * np.exp(-0.15), rtol=1e-5)


def test_batch() -> None:
    rates = np.array([0.1, 0.5, 2.0])
    found = rlx.vmap(lambda rate: odeint(lambda y, t: -rate * y, np.array(1.0), TIMES))(rates)
    np.testing.assert_allclose(found, np.exp(-rates[:, None] * TIMES), rtol=1e-6)


def test_what_was_not_reached_is_nan() -> None:
    def decay(y: Any, t: Any) -> Any:
        return -y

    assert np.isnan(odeint(decay, np.array(1.0), TIMES, mxstep=1)).tolist() == [False, True, True, True]
    assert np.isnan(odeint(decay, np.array(1.0), TIMES[::-1]))[1:].all()
    assert np.isnan(odeint(lambda y, t: y * jnp.nan, np.array(1.0), TIMES))[1:].all()


def test_wrong_arguments() -> None:
    with pytest.raises(errors.DtypeError, match="as floats"):
        odeint(lambda y, t: y, 1.0, np.arange(3))
    with pytest.raises(errors.ShapeError, match="1-d array"):
        odeint(lambda y, t: y, 1.0, np.ones((2, 2)))
    with pytest.raises(errors.ShapeError, match="tree like the state"):
        odeint(lambda y, t: jnp.ones(3), np.ones(2), TIMES)
