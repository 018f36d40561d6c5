"""The three parameters of the Lorenz system, found from a noisy recording.

A trajectory is integrated with the fourth-order Runge-Kutta method in a `scan`, noise is added, and
gradient descent through the integrator finds sigma, rho and beta to within a percent, starting from 40% errors. Long
trajectories of a chaotic system cannot be fitted from their start, so the recording is split into segments that are
integrated in parallel with `vmap`.
"""

import numpy as np

import rlx
import rlx.numpy as jnp

TRUTH = np.array([10.0, 28.0, 8.0 / 3.0], np.float32)
GUESS = TRUTH * np.array([1.4, 0.7, 0.6], np.float32)
STEP, LENGTH, SEGMENT = 0.01, 2000, 25


def field(state, parameters):
    """Time derivative of the state."""
    x, y, z = state
    sigma, rho, beta = parameters
    return jnp.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def trajectory(start, parameters, length):
    """States after 1..length steps of Runge-Kutta."""

    def advance(state, _):
        one = field(state, parameters)
        two = field(state + STEP / 2 * one, parameters)
        three = field(state + STEP / 2 * two, parameters)
        four = field(state + STEP * three, parameters)
        state = state + STEP / 6 * (one + 2 * two + 2 * three + four)
        return state, state

    return rlx.lax.scan(advance, start, None, length=length)[1]


def loss(scale, starts, targets):
    """Mean squared distance of all segments, for parameters as multiples of the first guess."""
    parameters = scale * GUESS
    paths = rlx.vmap(lambda start: trajectory(start, parameters, SEGMENT))(starts)
    return jnp.mean((paths - targets) ** 2)


@rlx.jit
def step(scale, velocity, rate, starts, targets):
    """One step of normalised gradient descent with momentum."""
    value, gradient = rlx.value_and_grad(loss)(scale, starts, targets)
    velocity = 0.8 * velocity - rate * gradient / (jnp.sqrt(value) + jnp.sqrt(gradient @ gradient))
    return scale + velocity, velocity, value


def main(steps=200):
    """Record, fit, compare; returns the largest relative error of a parameter."""
    recorded = rlx.jit(trajectory, static_argnums=2)(np.ones(3, np.float32), TRUTH, LENGTH)
    noise = 0.02 * rlx.random.normal(rlx.random.key(0), recorded.shape)
    segments = (recorded + noise)[1 : LENGTH - (LENGTH - 1) % SEGMENT].reshape(-1, SEGMENT, 3)
    # each segment starts where the one before it ended
    starts, targets = segments[:-1, -1], segments[1:]
    scale, velocity = jnp.ones(3), jnp.zeros(3)
    values = []
    for count in range(steps):
        rate = np.float32(0.01 * (1.0 - count / steps))
        scale, velocity, value = step(scale, velocity, rate, starts, targets)
        values.append(float(value))
        if count % 50 == 0:
            print(f"step {count:3d}   loss {values[-1]:9.5f}   parameters {np.asarray(scale) * GUESS}")
    found = np.asarray(scale) * GUESS
    error = float(np.abs(found / TRUTH - 1.0).max())
    print(f"found {found}, truth {TRUTH}: off by at most {100 * error:.2f}%")
    print(f"the loss fell {values[0] / values[-1]:.0f} times")
    assert values[0] / values[-1] > 1000.0, values[-1]
    assert error < 0.01, found
    return error


if __name__ == "__main__":
    main()
