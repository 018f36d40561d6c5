"""Hamiltonian Monte Carlo samples a banana-shaped density: one compiled program runs all chains.

64 chains sample a bent two-dimensional density with known mean and variance, and the
sample's mean and variance agree with these. The leapfrog steps are a `fori_loop`, the samples a `scan`, the chains a
`vmap`, the force a `grad`, and `jit` compiles everything to one native loop.
"""

from functools import partial

import numpy as np

import rlx
import rlx.numpy as jnp

BEND, WIDTH = 0.5, 0.5
CHAINS, SAMPLES, WARMUP = 64, 1000, 100
STEP, LEAPS = 0.25, 8


def potential(position):
    """Minus log density: x is standard normal, y given x is normal around BEND * (x**2 - 1)."""
    x, y = position
    return 0.5 * x**2 + 0.5 * ((y - BEND * (x**2 - 1.0)) / WIDTH) ** 2


def leapfrog(position, momentum):
    """Follow the Hamiltonian flow for LEAPS steps."""
    force = rlx.grad(potential)

    def leap(_, state):
        position, momentum = state
        momentum = momentum - STEP / 2 * force(position)
        position = position + STEP * momentum
        return position, momentum - STEP / 2 * force(position)

    return rlx.lax.fori_loop(0, LEAPS, leap, (position, momentum))


def energy(position, momentum):
    """Potential and kinetic energy."""
    return potential(position) + 0.5 * momentum @ momentum


def transition(position, key):
    """One proposal, accepted or rejected (Metropolis)."""
    for_momentum, for_choice = rlx.random.split(key)
    momentum = rlx.random.normal(for_momentum, position.shape)
    proposal, final = leapfrog(position, momentum)
    gain = energy(position, momentum) - energy(proposal, final)
    accepted = jnp.log(rlx.random.uniform(for_choice)) < gain
    position = jnp.where(accepted, proposal, position)
    return position, (position, accepted)


@partial(rlx.jit, static_argnums=1)
def sample(key, count):
    """Samples of all chains, shape (chains, count, 2), and the acceptance rate."""

    def chain(key):
        first, *_ = keys = rlx.random.split(key, count + 1)
        start = rlx.random.normal(first, (2,))
        return rlx.lax.scan(transition, start, keys[1:])[1]

    positions, accepted = rlx.vmap(chain)(rlx.random.split(key, CHAINS))
    return positions, accepted.mean()


def main():
    """Sample, and compare mean and variance with the exact ones; returns the largest deviation."""
    positions, rate = sample(rlx.random.key(0), WARMUP + SAMPLES)
    drawn = np.asarray(positions)[:, WARMUP:].reshape(-1, 2)
    mean, variance = drawn.mean(axis=0), drawn.var(axis=0)
    exact = np.array([1.0, WIDTH**2 + 2.0 * BEND**2])
    print(f"{len(drawn)} samples, {100 * float(rate):.0f}% of the proposals accepted")
    print(f"mean {mean}, exactly [0 0]")
    print(f"variance {variance}, exactly {exact}")
    deviation = float(max(np.abs(mean).max(), np.abs(variance - exact).max()))
    assert float(rate) > 0.7, float(rate)
    assert deviation < 0.05, deviation
    return deviation


if __name__ == "__main__":
    main()
