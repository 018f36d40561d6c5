"""blackjax: HMC and NUTS with window adaptation, random walks, sequential Monte Carlo, variational inference."""

from __future__ import annotations

from functools import partial
from typing import Any

import blackjax
import blackjax.smc.resampling as resampling
import jax
import jax.numpy as jnp

TOLERANCE = (0.1, 0.12)  # moments of chains, which rounding errors lead apart
PRECISION = jnp.array([[2.0, 0.8], [0.8, 1.0]])


def density(x: Any) -> Any:
    return -0.5 * (x - 1.0) @ PRECISION @ (x - 1.0)


def chain(key: Any, kernel: Any, state: Any, count: int) -> Any:
    def step(state: Any, key: Any) -> Any:
        state, info = kernel(key, state)
        return state, state.position

    return jax.lax.scan(step, state, jax.random.split(key, count))[1]


def run() -> Any:
    key = jax.random.key(0)
    start = jnp.zeros(2)
    found = {}
    adapted, _ = blackjax.window_adaptation(blackjax.nuts, density).run(key, start, 400)
    nuts = blackjax.nuts(density, **adapted.parameters)
    xs = chain(jax.random.key(1), jax.jit(nuts.step), adapted.state, 4000)
    found["nuts"] = (xs.mean(0), jnp.cov(xs.T))
    hmc = blackjax.hmc(density, 0.4, jnp.ones(2), 6)
    xs = chain(jax.random.key(2), hmc.step, hmc.init(start), 6000)
    found["hmc"] = (xs.mean(0), jnp.cov(xs.T))
    # a few steps from one state are the same numbers
    few = chain(jax.random.key(3), hmc.step, hmc.init(start), 3)
    found["first steps"] = few
    walk = blackjax.rmh(density, blackjax.mcmc.random_walk.normal(jnp.eye(2)))
    xs = chain(jax.random.key(4), walk.step, walk.init(start), 20000)
    found["walk"] = xs.mean(0)
    mala = blackjax.mala(density, 0.5)
    found["mala"] = chain(jax.random.key(5), mala.step, mala.init(start), 8000).mean(0)

    parameters = {"step_size": jnp.full(1, 0.3), "inverse_mass_matrix": jnp.ones((1, 2))}
    parameters["num_integration_steps"] = jnp.full(1, 5)
    smc = blackjax.adaptive_tempered_smc(
        lambda x: -0.5 * jnp.sum(x**2), lambda x: density(x), blackjax.hmc.build_kernel(), blackjax.hmc.init,
        parameters, resampling.systematic, 0.5, num_mcmc_steps=5,
    )  # fmt: skip
    state = smc.init(jax.random.normal(jax.random.key(6), (1500, 2)))
    step = jax.jit(smc.step)
    for number in range(20):
        if state.tempering_param >= 1:
            break
        state, _ = step(jax.random.fold_in(jax.random.key(7), number), state)
    found["smc"] = state.particles.mean(0)
    fitted, _ = blackjax.pathfinder.approximate(jax.random.key(8), density, start, maxiter=20, ftol=1e-4)
    found["pathfinder"] = fitted.position
    found["ess"] = partial(blackjax.ess, chain_axis=0, sample_axis=1)(jnp.stack([xs[:1000], xs[1000:2000]])) > 10
    return found
