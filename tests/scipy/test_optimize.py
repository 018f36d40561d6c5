"""rlx.scipy.optimize: minima that SciPy finds too, failures, transforms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import rlx
import rlx.numpy as jnp
from rlx import errors
from rlx.config import scoped
from rlx.scipy.optimize import OptimizeResults, minimize
from rlx.scipy.optimize.line_search import FOUND, INTERVAL_TOO_SMALL, TOO_MANY_STEPS, Point, division, search

METHODS = ("BFGS", "L-BFGS")


def rosenbrock(module: Any) -> Callable[[Any], Any]:
    return lambda x: module.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def himmelblau(module: Any) -> Callable[[Any], Any]:
    return lambda p: (p[0] ** 2 + p[1] - 11.0) ** 2 + (p[0] + p[1] ** 2 - 7.0) ** 2


def matyas(module: Any) -> Callable[[Any], Any]:
    return lambda p: 0.26 * (p[0] ** 2 + p[1] ** 2) - 0.48 * p[0] * p[1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("function", "start"),
    [(rosenbrock, np.zeros(4)), (himmelblau, np.array([92.0, 0.001])), (himmelblau, np.ones(2)), (matyas, np.ones(2))],
)
def test_minima(function: Any, start: np.ndarray, method: str) -> None:
    options = {"gtol": 1e-9, **({} if method == "BFGS" else {"ftol": 0.0})}
    expected = scipy.optimize.minimize(function(np), start, method="BFGS", options={"gtol": 1e-6})
    found = rlx.jit(lambda x: minimize(function(jnp), x, method=method, options=options))(start)
    if start[0] != 92 or method == "BFGS":  # from there L-BFGS finds another one of four equal minima
        np.testing.assert_allclose(found.x, expected.x, atol=2e-5)
    np.testing.assert_allclose(found.fun, expected.fun, atol=1e-10)
    np.testing.assert_allclose(found.fun, function(np)(np.asarray(found.x)), atol=1e-12)
    np.testing.assert_allclose(found.jac, rlx.grad(function(jnp))(found.x), atol=1e-12)
    assert found.success.item() and found.status.item() == 0
    assert np.abs(found.jac).max() < 1e-9
    assert 0 < found.nit.item() < found.nfev.item() == found.njev.item() < 400


def test_eager_is_jitted() -> None:
    for method in METHODS:
        run = partial(minimize, rosenbrock(jnp), method=method)
        first, second = run(np.zeros(2)), rlx.jit(run)(np.zeros(2))
        assert isinstance(first, OptimizeResults)
        np.testing.assert_allclose(first.x, second.x)
        assert first.nit.item() == second.nit.item()


def test_inverse_hessian() -> None:
    curvature = np.array([[3.0, 1.0], [1.0, 2.0]])
    found = minimize(lambda x: x @ curvature @ x / 2, np.array([1.0, -2.0]), method="BFGS", tol=1e-12)
    np.testing.assert_allclose(found.hess_inv, np.linalg.inv(curvature), rtol=1e-4)
    assert minimize(lambda x: x @ x, np.ones(2), method="l-bfgs").hess_inv is None


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.selected(1)
def test_arguments_and_dtypes(method: str, dtype: str) -> None:
    def distance(x: Any, centre: Any, weight: float) -> Any:
        return weight * jnp.sum((x - centre) ** 2)

    centre = np.array([1.0, -2.0], dtype)
    found = minimize(distance, np.zeros(2, dtype), (centre, 3.0), method=method)
    np.testing.assert_allclose(found.x, centre, rtol=1e-5)
    assert found.x.dtype == found.fun.dtype == found.jac.dtype == dtype
    assert minimize(distance, np.zeros(2, int), (1, 1.0), method=method).x.tolist() == [1.0, 1.0]
    already = minimize(distance, centre, (centre, 1.0), method=method)
    assert already.success.item() and already.nit.item() == 0


def test_complex_variables() -> None:
    centre = np.array([1.0, 2.0 - 3.0j, 4.0, -5.0j])

    def far(z: Any) -> Any:
        return jnp.sum(jnp.abs(z - centre) ** 4 + jnp.abs(z - centre) ** 2)

    found = minimize(far, np.zeros(4, "c16"), method="L-BFGS", options={"gtol": 1e-9, "ftol": 0.0})
    np.testing.assert_allclose(found.x, centre, atol=1e-8)
    with pytest.raises(errors.DtypeError, match="L-BFGS"):
        minimize(far, np.zeros(4, "c16"), method="BFGS")


def test_derivative_and_batch_of_a_minimum() -> None:
    def best(a: Any) -> Any:
        return minimize(lambda x: jnp.sum(x**4 + (x - a) ** 2), jnp.zeros(2), method="BFGS", tol=1e-12).x

    with scoped(default_float=np.dtype("f8")):
        a = np.array([1.0, 3.0])
        x = np.asarray(best(a))
        np.testing.assert_allclose(4 * x**3 + 2 * (x - a), 0, atol=1e-10)
        _, change = rlx.jvp(best, (a,), (np.ones(2),))
        np.testing.assert_allclose(change, 2 / (12 * x**2 + 2), rtol=1e-4)
        several = np.stack([a, 2 * a, -a])
        np.testing.assert_allclose(rlx.vmap(best)(several), [best(row) for row in several], atol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_reverse_mode_is_forward_mode(method: str) -> None:
    """Also in a batch, and where interpolations of the line search divide by zero."""

    def best(a: Any) -> Any:
        return minimize(lambda x: jnp.sum(x**4 + (x - a) ** 2), jnp.zeros_like(a), method=method, tol=1e-12).x.sum()

    a = np.array([1.0, 3.0])
    for point in (a, np.zeros(2)):
        gradient = np.asarray(rlx.jit(rlx.grad(best))(point))
        pushed = [rlx.jvp(best, (point,), (e,))[1] for e in np.eye(2)]
        np.testing.assert_allclose(gradient, pushed, rtol=1e-9, atol=1e-12)
    x = np.asarray(minimize(lambda x: jnp.sum(x**4 + (x - a) ** 2), np.zeros(2), method=method, tol=1e-12).x)
    np.testing.assert_allclose(rlx.grad(best)(a), 2 / (12 * x**2 + 2), rtol=1e-3)
    np.testing.assert_allclose(rlx.vmap(rlx.grad(best))(a[None])[0], rlx.grad(best)(a), rtol=1e-9)


# ------------------------------------------------------------------ ends that are no minima
def test_too_many_iterations() -> None:
    for method in METHODS:
        found = minimize(rosenbrock(jnp), np.zeros(4), method=method, options={"maxiter": 3})
        assert not found.success.item() and found.status.item() == 1
    limited = {"maxfun": 5}, {"maxgrad": 5}, {"ftol": 1e9}
    statuses = [minimize(rosenbrock(jnp), np.zeros(4), method="L-BFGS", options=o).status.item() for o in limited]
    assert statuses == [2, 3, 4]


def test_functions_without_a_minimum() -> None:
    for method, status in (("BFGS", 5), ("L-BFGS", 5)):
        found = minimize(lambda x: jnp.sum(x), np.zeros(2), method=method)
        assert not found.success.item() and found.status.item() == status
        assert found.fun.item() < 0  # the best point seen
        # NaN everywhere but at the start: nowhere to go, and the start is what comes back
        hole = minimize(lambda x: jnp.sum(x) + jnp.sqrt(-jnp.sum(x * x)), np.full(2, 0.0), method=method)
        assert not hole.success.item()


def test_a_step_into_nan_is_shortened() -> None:
    found = minimize(lambda x: jnp.sum(x - jnp.log(x)), np.full(2, 1e-3), method="BFGS", tol=1e-8)
    np.testing.assert_allclose(found.x, 1, rtol=1e-6)


# ------------------------------------------------------------------ line search
def look(function: Callable[[Any], Any], trial: float, maxiter: int = 20) -> Any:
    start = np.zeros(1)
    both = rlx.value_and_grad(lambda x: function(x[0]))
    value, gradient = both(jnp.asarray(start))
    return search(both, jnp.asarray(start), jnp.asarray(-np.sign(gradient)), value, gradient, trial, maxiter)


@pytest.mark.parametrize("trial", [1e-4, 0.1, 1.0, 30.0, 1e6])
def test_wolfe_conditions(trial: float) -> None:
    for function in (lambda t: (t - 1) ** 2, lambda t: t**4 - 3 * t, lambda t: -t / (t * t + 2), lambda t: -jnp.sin(t)):
        found = look(function, trial)
        slope = abs(rlx.grad(function)(0.0).item())
        assert found.status.item() == FOUND
        assert found.low.value.item() <= float(function(0.0)) - 1e-4 * found.low.step.item() * slope
        assert abs(found.low.slope.item()) <= 0.9 * slope


def test_failures_of_the_line_search() -> None:
    assert look(lambda t: -t, 1.0, 4).status.item() == TOO_MANY_STEPS
    assert look(lambda t: jnp.where(t > 0, jnp.nan, -t), 1.0).status.item() == INTERVAL_TOO_SMALL
    assert look(lambda t: jnp.where(t > 0, jnp.nan, -t), 1.0).low.step.item() == 0.0


@pytest.mark.parametrize("values", [np.zeros(8), np.array([0, 1, -1, 1, np.nan, 5, 2, 10.0]), np.arange(8.0)])
def test_the_derivative_of_a_division_is_finite(values: np.ndarray) -> None:
    """Where an interpolation divides zero by zero, or a value is not a number, the middle is taken."""

    def divided(v: Any) -> Any:
        low, high = (Point(v[i], v[i + 1], v[i + 2], v[:0]) for i in (0, 3))
        return division(low, high, (v[6], v[7]))

    assert np.isfinite(rlx.grad(divided)(values)).all()


def test_wrong_arguments() -> None:
    def square(x: Any) -> Any:
        return jnp.sum(x * x)

    with pytest.raises(errors.InputTypeError, match="must be a tuple"):
        minimize(square, np.ones(2), args=45, method="BFGS")
    with pytest.raises(ValueError, match="no method 'newton'"):
        minimize(square, np.ones(2), method="newton")
    with pytest.raises(errors.ShapeError, match="1-d array"):
        minimize(square, np.ones((2, 2)), method="BFGS")
    with pytest.raises(errors.ScalarOutputError):
        minimize(lambda x: x, np.ones(2), method="BFGS")
