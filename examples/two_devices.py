"""Gaussian-process regression whose factorisation runs on another device, and the choice of a device by estimate.

The covariance of 200 points is computed by the program's device. Its Cholesky factorisation is in a region on a
second device, as one would write it for an accelerator without that routine; here the second device is NumPy's
interpreter, which every installation has. Gradients of the log likelihood go through the region, and five steps of
gradient descent fit the length scale. The program prints the estimates of both devices, the divided plan, and the
likelihood of each step; it checks that the region changes neither the value nor the gradient.
"""

import numpy as np

import rlx
import rlx.numpy as jnp

SECOND = "reference"
POINTS = np.linspace(0.0, 6.0, 200, dtype=np.float32)
VALUES = np.sin(2.0 * POINTS) + 0.1 * np.cos(31.0 * POINTS).astype(np.float32)


def likelihood(log_scale, x, y, second=SECOND):
    """The log likelihood of observations for a squared-exponential kernel, up to a constant."""
    distances = (x[:, None] - x[None, :]) / jnp.exp(log_scale)
    covariance = jnp.exp(-0.5 * distances**2) + 0.05 * jnp.eye(x.size, dtype=x.dtype)
    with rlx.place(second):
        factor = jnp.linalg.cholesky(covariance)
        whitened = rlx.scipy.linalg.solve_triangular(factor, y, lower=True)
        determinant = jnp.log(jnp.diagonal(factor)).sum()
    return -0.5 * (whitened @ whitened) - determinant


def main():
    """Fit the length scale; returns the gain in log likelihood."""
    start = jnp.asarray(0.7)
    print(rlx.placement.estimate(likelihood, start, POINTS, VALUES, devices=["cpu", SECOND]))
    divided = rlx.placement.divide(likelihood, start, POINTS, VALUES, devices=("cpu", SECOND))
    print(f"divided by estimate: {divided}")

    placed = rlx.jit(rlx.value_and_grad(likelihood))
    alone = rlx.jit(rlx.value_and_grad(lambda *args: likelihood(*args, second="cpu")))
    for a, b in zip(placed(start, POINTS, VALUES), alone(start, POINTS, VALUES), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3)

    scale = start
    first = float(placed(start, POINTS, VALUES)[0])
    for step in range(5):
        value, slope = placed(scale, POINTS, VALUES)
        print(f"step {step}: scale {float(jnp.exp(scale)):.3f}, log likelihood {float(value):.2f}")
        scale = scale + 0.1 * slope / (1.0 + jnp.abs(slope))
    gain = float(placed(scale, POINTS, VALUES)[0]) - first
    assert gain > 0, "each step follows the gradient"
    return gain


if __name__ == "__main__":
    main()
