"""A stiff reaction with diffusion, by backward differentiation with sparse Jacobians.

The Brusselator on a periodic grid: two fields that react and diffuse, y' = f(y). `rlx.scipy.integrate.solve_ivp` runs
SciPy's BDF on the host; `odeint(method="bdf")` is one compiled loop. Both find the sparsity pattern of the Jacobian in
the program of f, compute the Jacobian by ten products instead of one for each unknown, and solve with sparse factors.
The two results are compared, and the derivative of the second one with a finite difference.
"""

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx.experimental.ode import odeint
from rlx.scipy.integrate import solve_ivp

FEED, DECAY, DIFFUSION = 1.0, 3.4, 0.002


def reaction(y, size, feed=FEED):
    """The time derivative of both fields on a grid of size by size points."""
    u, v = y.reshape(2, size, size)

    def laplacian(w):
        return (jnp.roll(w, 1, 0) + jnp.roll(w, -1, 0) + jnp.roll(w, 1, 1) + jnp.roll(w, -1, 1) - 4.0 * w) * size**2

    exchange = u**2 * v
    du = feed + exchange - (DECAY + 1.0) * u + DIFFUSION * laplacian(u)
    dv = DECAY * u - exchange + DIFFUSION * laplacian(v)
    return jnp.concatenate([du.ravel(), dv.ravel()])


def initial(size):
    """Smooth waves around the steady state."""
    x = np.arange(size) / size
    u = 1.0 + 0.5 * np.cos(2 * np.pi * x)[:, None] * np.ones(size)
    v = DECAY + 0.5 * np.sin(2 * np.pi * x)[None, :] * np.ones((size, 1))
    return np.concatenate([u.ravel(), v.ravel()])


def main(size=20, end=2.0, tolerance=1e-5):
    """Integrate in two ways, differentiate, and print the differences."""
    y, times = initial(size), np.array([0.0, end])
    pattern = rlx.sparsity(lambda y: reaction(y, size))(y)
    print(f"{y.size} unknowns, {pattern.nnz} elements of the Jacobian, {rlx.color(pattern).colors} products")
    tolerances = {"rtol": tolerance, "atol": tolerance}

    on_host = solve_ivp(lambda t, y: reaction(y, size), (0.0, end), y, method="BDF", **tolerances)
    print(f"solve_ivp: {on_host.t.size - 1} steps, {on_host.njev} Jacobians, {on_host.nlu} factors")

    @rlx.jit
    def final(feed):
        return odeint(lambda y, t: reaction(y, size, feed), y, times, **tolerances, method="bdf")[-1]

    compiled = final(FEED)
    difference = float(np.abs(np.asarray(compiled) - on_host.y[:, -1]).max())
    print(f"odeint: largest difference {difference:.1e}, mean u {compiled[: size**2].mean():.6f}")

    mean = rlx.jit(lambda feed: final(feed)[: size**2].mean())
    slope = float(rlx.jvp(mean, (np.float64(FEED),), (np.float64(1.0),))[1])
    quotient = float(mean(FEED + 0.01) - mean(FEED - 0.01)) / 0.02
    print(f"derivative of mean u by the feed {slope:.5f}, finite difference {quotient:.5f}")
    assert pattern.nnz == 6 * y.size and not pattern.assumptions
    assert difference < 100 * tolerance, difference
    assert abs(slope - quotient) < 1e-2 * abs(quotient), (slope, quotient)
    return difference


if __name__ == "__main__":
    main()
