"""A stiff reaction with diffusion, by an implicit method whose Newton steps use sparse Jacobians.

The Brusselator on a periodic grid: two fields that react and diffuse, y' = f(y). The second-order backward
differentiation formula with variable steps (BDF2) solves a nonlinear system for each step. `rlx.jacobian` with
sparse=True finds the sparsity pattern of the system in its program, and computes the Jacobian by ten products
instead of one for each unknown. `rlx.sparse.spsolve` solves with it. The whole integration is one compiled loop. The
result is compared with the result for a tolerance that is ten times smaller.
"""

import numpy as np

import rlx
import rlx.numpy as jnp

FEED, DECAY, DIFFUSION = 1.0, 3.4, 0.002
NEWTON_STEPS = 3


def reaction(y, size):
    """The time derivative of both fields on a grid of size by size points."""
    u, v = y.reshape(2, size, size)

    def laplacian(w):
        return (jnp.roll(w, 1, 0) + jnp.roll(w, -1, 0) + jnp.roll(w, 1, 1) + jnp.roll(w, -1, 1) - 4.0 * w) * size**2

    exchange = u**2 * v
    du = FEED + exchange - (DECAY + 1.0) * u + DIFFUSION * laplacian(u)
    dv = DECAY * u - exchange + DIFFUSION * laplacian(v)
    return jnp.concatenate([du.ravel(), dv.ravel()])


def solve_step(function, guess, scale, right, linear_solve):
    """y with y - scale * function(y) = right, by Newton's method."""

    def residual(y):
        return y - scale * function(y) - right

    def newton(_, y):
        return y - linear_solve(residual, y)

    return rlx.lax.fori_loop(0, NEWTON_STEPS, newton, guess)


def sparse_solve(residual, y):
    """The Newton step: the Jacobian has as many elements as the grid has neighbours."""
    return rlx.sparse.spsolve(rlx.jacobian(residual, sparse=True)(y), residual(y))


def dense_solve(residual, y):
    """The same with a dense matrix."""
    return jnp.linalg.solve(rlx.jacfwd(residual)(y), residual(y))


def bdf2(function, y, end, tolerance, linear_solve=sparse_solve, first=1e-4, most=100_000):
    """y at the time `end`, and the number of accepted and rejected steps."""

    def unfinished(carry):
        return (carry["time"] < end) & (carry["accepted"] + carry["rejected"] < most)

    def step(carry):
        h = jnp.minimum(carry["h"], end - carry["time"])
        ratio = h / carry["last"]
        y, before = carry["y"], carry["before"]
        predicted = y + h * (1 + ratio) * carry["slope"] - ratio**2 * (y - before)
        weight = 1.0 / (1 + 2 * ratio)
        right = (1 + ratio) ** 2 * weight * y - ratio**2 * weight * before
        found = solve_step(function, predicted, h * (1 + ratio) * weight, right, linear_solve)
        error = 0.3 * jnp.sqrt(jnp.mean(((found - predicted) / (tolerance * (1 + jnp.abs(found)))) ** 2))
        accept = error <= 1.0
        factor = jnp.clip(0.85 * error ** (-1 / 3), 0.3, 1.7)

        def chosen(new, old):
            return jnp.where(accept, new, old)

        return {
            "time": chosen(carry["time"] + h, carry["time"]),
            "h": h * factor,
            "last": chosen(h, carry["last"]),
            "y": chosen(found, y),
            "before": chosen(y, before),
            "slope": chosen((found - right) / (h * (1 + ratio) * weight), carry["slope"]),
            "accepted": carry["accepted"] + accept,
            "rejected": carry["rejected"] + ~accept,
        }

    slope = function(y)
    start = {"time": jnp.zeros((), y.dtype), "h": jnp.asarray(first, y.dtype), "last": jnp.asarray(first, y.dtype)}
    start |= {"y": y, "before": y - first * slope, "slope": slope, "accepted": 0, "rejected": 0}
    final = rlx.lax.while_loop(unfinished, step, start)
    return final["y"], final["accepted"], final["rejected"]


def initial(size):
    """Smooth waves around the steady state."""
    x = np.arange(size) / size
    u = 1.0 + 0.5 * np.cos(2 * np.pi * x)[:, None] * np.ones(size)
    v = DECAY + 0.5 * np.sin(2 * np.pi * x)[None, :] * np.ones((size, 1))
    return np.concatenate([u.ravel(), v.ravel()])


def main(size=20, end=2.0, tolerance=1e-4):
    """Integrate with two tolerances, and print how far the results are apart."""

    def function(y):
        return reaction(y, size)

    y = initial(size)
    pattern = rlx.sparsity(function)(y)
    print(f"{y.size} unknowns, {pattern.nnz} elements of the Jacobian, {rlx.color(pattern).colors} products")
    run = rlx.jit(lambda y, tolerance: bdf2(function, y, end, tolerance))
    results = []
    for each in (tolerance, tolerance / 10):
        found, accepted, rejected = run(y, each)
        mean = found[: size**2].mean()
        print(f"tolerance {each:.0e}: {int(accepted)} steps, {int(rejected)} rejected, mean u {mean:.6f}")
        results.append(np.asarray(found))
    difference = float(np.abs(results[0] - results[1]).max())
    print(f"largest difference between the two {difference:.1e}")
    assert pattern.nnz == 6 * y.size and not pattern.assumptions
    assert difference < 100 * tolerance, difference
    return difference


if __name__ == "__main__":
    main()
