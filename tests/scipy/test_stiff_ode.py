"""odeint(method="bdf"): closed forms, SciPy, derivatives, batches, sparse systems, failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.experimental.backward_differentiation import BackwardDifferentiation
from rlx.experimental.ode import odeint

TIMES = np.array([0.0, 0.4, 4.0, 40.0])
START = np.array([1.0, 0.0, 0.0])


def robertson(module: Any) -> Any:
    def rate(y: Any, t: Any, slow: Any = 0.04) -> Any:
        loss, back, fast = slow * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
        return module.stack([back - loss, loss - back - fast, fast])

    return rate


def solved(slow: Any = 0.04, start: Any = START, times: Any = TIMES, tolerance: float = 1e-9) -> Any:
    return odeint(robertson(jnp), start, times, slow, rtol=tolerance, atol=tolerance / 1e3, method="bdf")


def diffusion(u: Any, t: Any, speed: Any = 100.0) -> Any:
    v = jnp.pad(u, 1)
    return speed * (v[2:] - 2 * u + v[:-2]) + jnp.sin(t) - u**3


def decayed(rate: Any) -> Any:
    return odeint(lambda y, t: -rate * y, np.array(2.0), np.array([0.0, 1.7]), rtol=1e-8, method="bdf")[-1]


def test_a_stiff_reaction_is_scipys() -> None:
    expected = scipy.integrate.solve_ivp(
        lambda t, y: robertson(np)(y, t), (0, 40), START, "Radau", t_eval=TIMES, rtol=1e-10, atol=1e-13
    ).y.T
    np.testing.assert_allclose(rlx.jit(solved)(), expected, rtol=1e-6, atol=1e-11)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_closed_forms(dtype: str) -> None:
    times = np.array([0.0, 0.0, 0.3, 1.0, 1.7])
    tree = {"a": np.array(2.0, dtype), "b": np.ones((2, 2), dtype)}
    found = odeint(lambda y, t: rlx.tree.map(lambda x: -x, y), tree, times, method="bdf", rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found["a"], 2 * np.exp(-times), rtol=1e-4 if dtype == "f4" else 1e-6)
    assert found["b"].shape == (5, 2, 2) and found["b"].dtype == dtype
    turning = odeint(lambda y, t: 1j * jnp.conj(y) * jnp.conj(y) ** -1 * y, np.ones(2, complex), times, method="bdf")
    np.testing.assert_allclose(turning[:, 0], np.exp(1j * times), rtol=1e-6)
    assert odeint(lambda y, t: y, np.ones(2, dtype), times[:1], method="bdf").tolist() == [[1.0, 1.0]]
    assert odeint(lambda y, t: y, np.ones(0, dtype), times, method="bdf").shape == (5, 0)


@pytest.mark.thorough
def test_steps_are_as_many_as_scipys() -> None:
    """Attempts, counted by how many are needed to reach the end."""
    steps = scipy.integrate.solve_ivp(
        lambda t, y: robertson(np)(y, t), (0, 40), START, "BDF", rtol=1e-6, atol=1e-9
    ).t.size
    reach = lambda n: odeint(robertson(jnp), START, TIMES[[0, 3]], rtol=1e-6, atol=1e-9, mxstep=n, method="bdf")  # noqa: E731
    run = rlx.jit(lambda n: jnp.isfinite(reach(n)[-1, 0]))
    assert bool(run(2 * steps)) and not bool(run(steps // 2))


@pytest.mark.thorough
def test_derivatives_are_those_of_the_solution() -> None:
    def last(slow: Any, start: Any, end: Any) -> Any:
        times = jnp.concatenate([jnp.zeros(1), jnp.stack([end / 3, end])])
        return solved(slow, start, times)[-1]

    point = (np.float64(0.04), START + np.array([0, 1e-5, 0.1]), np.float64(10.0))

    def true(slow: Any, start: Any, end: Any) -> np.ndarray:
        options = {"rtol": 1e-12, "atol": 1e-15}
        rate = robertson(np)
        found = scipy.integrate.solve_ivp(lambda t, y: rate(y, t, slow), (0, end), start, "Radau", **options)
        return found.y[:, -1]

    for number, scale in enumerate((1e-4, 5e-7, 1e-2)):
        forward = rlx.jit(rlx.jacfwd(last, number))(*point)
        np.testing.assert_allclose(rlx.jit(rlx.jacrev(last, number))(*point), forward, rtol=1e-8, atol=1e-12)
        columns = np.reshape(forward, (3, -1))
        for k, direction in enumerate(np.eye(columns.shape[1])):
            ends = []
            for sign in (1, -1):
                moved = list(point)
                moved[number] = point[number] + sign * scale * direction.reshape(np.shape(point[number]))
                ends.append(true(*moved))
            np.testing.assert_allclose(columns[:, k], (ends[0] - ends[1]) / (2 * scale), rtol=1e-3, atol=1e-6)


@pytest.mark.thorough
def test_a_derivative_in_both_modes() -> None:
    """Of exponential decay, whose derivative is known; the values are captured."""
    for derivative in (rlx.jit(rlx.grad(decayed)), rlx.jit(rlx.jacfwd(decayed))):
        np.testing.assert_allclose(derivative(np.float64(0.5)), -1.7 * 2 * np.exp(-0.85), rtol=1e-6)


@pytest.mark.thorough
def test_a_second_derivative() -> None:
    found = rlx.jit(rlx.grad(lambda rate: rlx.jvp(decayed, (rate,), (1.0,))[1]))(np.float64(0.5))
    np.testing.assert_allclose(found, 1.7**2 * 2 * np.exp(-0.85), rtol=1e-5)


@pytest.mark.thorough
def test_batches() -> None:
    rates = np.array([0.1, 5.0, 1e3])
    run, slope = rlx.jit(decayed), rlx.jit(rlx.grad(decayed))
    np.testing.assert_allclose(rlx.jit(rlx.vmap(decayed))(rates), [run(r) for r in rates], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(rlx.jit(rlx.vmap(rlx.grad(decayed)))(rates), [slope(r) for r in rates], atol=1e-8)


@pytest.mark.thorough
def test_sparse_systems() -> None:
    """Values, derivatives in both modes and batches are those of the dense Jacobian and of SciPy."""
    start, times = np.linspace(1, 2, 80), np.array([0.0, 0.05, 0.2])

    class Tolerance:
        rtol, atol, hmax = 1e-8, 1e-8, np.inf

    method = BackwardDifferentiation(diffusion, jnp.asarray(start), jnp.asarray(0.0), Tolerance)
    assert method.coloring is not None and method.coloring.colors == 3

    def run(start: Any, speed: Any) -> Any:
        return odeint(diffusion, start, times, speed, rtol=1e-9, atol=1e-10, method="bdf")

    def plain(t: float, u: np.ndarray) -> np.ndarray:
        v = np.pad(u, 1)
        return 100.0 * (v[2:] - 2 * u + v[:-2]) + np.sin(t) - u**3

    expected = scipy.integrate.solve_ivp(plain, (0, 0.2), start, "Radau", t_eval=times, rtol=1e-10, atol=1e-11).y.T
    found = rlx.jit(run)(start, 100.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    total = lambda start, speed: (run(start, speed)[-1] ** 2).sum()  # noqa: E731
    gradient, slope = rlx.jit(rlx.grad(total, argnums=(0, 1)))(start, np.float64(100.0))
    direction = np.sin(np.arange(80.0))
    pushed = rlx.jvp(total, (start, np.float64(100.0)), (direction, np.float64(0.0)))[1]
    np.testing.assert_allclose(gradient @ direction, pushed, rtol=1e-7)
    difference = [total(start, 100.0 + d) for d in (0.5, -0.5)]
    np.testing.assert_allclose(slope, difference[0] - difference[1], rtol=1e-4)
    several = rlx.jit(rlx.vmap(run))(np.stack([start, 2 * start]), np.array([100.0, 50.0]))
    np.testing.assert_allclose(several[0], found, rtol=1e-7)
    np.testing.assert_allclose(several[1], run(2 * start, 50.0), rtol=1e-7)


@pytest.mark.thorough
def test_ends_that_are_not_reached_are_nan() -> None:
    def decay(y: Any, t: Any) -> Any:
        return -y

    assert np.isnan(odeint(decay, np.array(1.0), TIMES, mxstep=1, method="bdf")[1:]).all()
    assert np.isnan(odeint(lambda y, t: y * jnp.nan, np.array(1.0), TIMES, method="bdf"))[1:].all()
    assert np.isnan(odeint(decay, np.array(1.0), TIMES[::-1], method="bdf"))[1:].all()
    explodes = odeint(lambda y, t: y**2, np.array(1.0), np.array([0.0, 0.5, 2.0]), method="bdf")
    assert np.isfinite(explodes[1]) and np.isnan(explodes[2])


def test_wrong_arguments() -> None:
    with pytest.raises(errors.OptionError, match="no method 'rk4'"):
        odeint(lambda y, t: y, 1.0, TIMES, method="rk4")
    with pytest.raises(errors.ShapeError, match="tree like the state"):
        odeint(lambda y, t: jnp.ones(3), np.ones(2), TIMES, method="bdf")
