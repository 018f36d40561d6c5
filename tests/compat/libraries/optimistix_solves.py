"""optimistix: roots, fixed points, least squares and minima, with implicit derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optimistix as optx


def run() -> Any:
    def curve(y: Any, a: Any) -> Any:
        return y**3 + a * y - 2.0

    def residuals(params: Any, data: Any) -> Any:
        t, y = data
        return params["a"] * jnp.exp(-params["b"] * t) - y

    t = jnp.linspace(0, 2, 15)
    data = (t, 1.5 * jnp.exp(-0.7 * t) + 0.01 * jnp.sin(9 * t))
    start = {"a": jnp.array(1.0), "b": jnp.array(0.1)}

    newton, repeated = optx.Newton(1e-6, 1e-6), optx.FixedPointIteration(1e-6, 1e-6)

    def root(a: Any, solver: Any = newton) -> Any:
        return optx.root_find(curve, solver, jnp.array(1.0), a).value

    def fit(scale: Any) -> Any:
        found = optx.least_squares(residuals, optx.LevenbergMarquardt(1e-6, 1e-6), start, (t, scale * data[1]))
        return found.value

    def rosenbrock(y: Any, _: Any) -> Any:
        return (1 - y[0]) ** 2 + 10 * (y[1] - y[0] ** 2) ** 2

    bounded = {"options": {"lower": 0.0, "upper": 3.0}}
    return {
        "newton": jax.value_and_grad(root)(1.0),
        "chord": root(1.0, optx.Chord(1e-6, 1e-6)),
        "bisection": optx.root_find(curve, optx.Bisection(1e-5, 1e-5), jnp.array(1.0), 1.0, **bounded).value,
        "roots": jax.vmap(root)(jnp.array([0.5, 1.0, 2.0])),
        "jitted": jax.jit(jax.jacfwd(root))(2.0),
        "fixed point": jax.value_and_grad(
            lambda a: optx.fixed_point(lambda y, a: jnp.cos(a * y), repeated, jnp.array(0.5), a).value
        )(1.0),
        "fit": fit(1.0), "sensitivity": jax.jacrev(fit)(1.0),
        "gauss newton": optx.least_squares(residuals, optx.GaussNewton(1e-6, 1e-6), start, data).value,
        "dogleg": optx.least_squares(residuals, optx.Dogleg(1e-6, 1e-6), start, data).value,
        "bfgs": optx.minimise(rosenbrock, optx.BFGS(1e-5, 1e-5), jnp.array([-0.5, 1.0])).value,
        "nelder mead": optx.minimise(rosenbrock, optx.NelderMead(1e-5, 1e-5), jnp.array([0.5, 1.0])).value,
        "recorded": jax.grad(
            lambda a: optx.root_find(
                curve, optx.Newton(1e-6, 1e-6), jnp.array(1.0), a, adjoint=optx.RecursiveCheckpointAdjoint()
            ).value
        )(1.0),
    }  # fmt: skip
