"""diffrax: adaptive solvers, adjoints, events, controls, stochastic equations and a neural equation."""

from __future__ import annotations

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


def run() -> Any:
    def field(t: Any, y: Any, a: Any) -> Any:
        return -a * y + jnp.sin(t)

    y0 = jnp.array([1.0, 2.0])

    recorded, runge = dfx.RecursiveCheckpointAdjoint(), dfx.Tsit5()

    def solve(a: Any, adjoint: Any = recorded, solver: Any = runge, **options: Any) -> Any:
        return dfx.diffeqsolve(
            dfx.ODETerm(field), solver, 0.0, 2.0, 0.1, y0, a, adjoint=adjoint,
            stepsize_controller=dfx.PIDController(1e-5, 1e-6), **options,
        )  # fmt: skip

    def end(a: Any, adjoint: Any) -> Any:
        return solve(a, adjoint).ys.sum()

    saved = solve(1.0, saveat=dfx.SaveAt(ts=jnp.linspace(0, 2, 5)))
    dense = solve(1.0, saveat=dfx.SaveAt(dense=True))
    found = {
        "saved": saved.ys, "steps": saved.stats["num_steps"], "dense": dense.evaluate(0.77),
        "dopri8": solve(1.0, solver=dfx.Dopri8()).ys, "kvaerno": solve(1.0, solver=dfx.Kvaerno5()).ys,
        "heun": solve(1.0, solver=dfx.Heun()).ys,
        "recursive": jax.value_and_grad(end)(1.0, dfx.RecursiveCheckpointAdjoint()),
        "direct": jax.grad(end)(1.0, dfx.DirectAdjoint()),
        "backsolve": jax.grad(end)(1.0, dfx.BacksolveAdjoint()),
        "forward": jax.jvp(lambda a: end(a, dfx.ForwardMode()), (1.0,), (1.0,)),
        "batch": jax.vmap(lambda a: solve(a).ys)(jnp.array([0.5, 1.0, 4.0])),
    }  # fmt: skip

    event = dfx.Event(lambda t, y, *_, **__: y[0] - 0.5, optx_root())
    stopped = dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, _: -y), dfx.Tsit5(), 0.0, 5.0, 0.1, y0, event=event,
        stepsize_controller=dfx.PIDController(1e-5, 1e-6),
    )  # fmt: skip
    found["event"] = (stopped.ts, stopped.ys)

    brownian = dfx.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(2,), key=jax.random.PRNGKey(0))
    noisy = dfx.MultiTerm(
        dfx.ODETerm(lambda t, y, _: -y), dfx.ControlTerm(lambda t, y, _: dfx_diagonal(0.2 * y), brownian)
    )
    found["stochastic"] = dfx.diffeqsolve(
        noisy, dfx.Heun(), 0.0, 1.0, 0.05, y0, saveat=dfx.SaveAt(ts=jnp.linspace(0, 1, 4))
    ).ys
    ts = jnp.linspace(0.0, 1.0, 6)
    path = dfx.CubicInterpolation(ts, dfx.backward_hermite_coefficients(ts, jnp.stack([ts, jnp.sin(ts)], -1)))
    found["path"] = (path.evaluate(0.3), path.derivative(0.3))

    class Neural(eqx.Module):
        network: eqx.nn.MLP

        def __call__(self, t: Any, y: Any, args: Any) -> Any:
            return self.network(y)

    model = Neural(eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=jax.random.PRNGKey(1)))
    optimizer = optax.adam(1e-2)
    moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    targets = saved.ys

    @eqx.filter_jit
    def step(model: Any, moments: Any) -> Any:
        @eqx.filter_value_and_grad
        def loss(model: Any) -> Any:
            solution = dfx.diffeqsolve(
                dfx.ODETerm(model), dfx.Tsit5(), 0.0, 2.0, 0.1, y0, saveat=dfx.SaveAt(ts=jnp.linspace(0, 2, 5)),
                stepsize_controller=dfx.PIDController(1e-3, 1e-4),
            )  # fmt: skip
            return jnp.mean((solution.ys - targets) ** 2)

        value, grads = loss(model)
        updates, moments = optimizer.update(grads, moments)
        return eqx.apply_updates(model, updates), moments, value

    values = []
    for _ in range(6):
        model, moments, value = step(model, moments)
        values.append(value)
    found["neural"] = jnp.stack(values)
    return found


def optx_root() -> Any:
    """A root finder, which places the event between steps."""
    import optimistix as optx

    return optx.Newton(1e-5, 1e-5)


def dfx_diagonal(x: Any) -> Any:
    """Noise of each component alone."""
    import lineax as lx

    return lx.DiagonalLinearOperator(x)
