"""The conductivity of a plate, found from its temperature.

A plate with a hot and a cold region is discretised with finite volumes: a sparse system, whose matrix depends on the
conductivity of each cell. The temperature is measured at a tenth of the cells. Gauss-Newton steps on the logarithm of
the conductivity, with a smoothness prior, find it again: derivatives pass through `sparse.spsolve`, whose gradient uses
the factors of the solution. `main(side=317)` has 100,000 unknowns, and takes about a minute and 0.8 GiB.
"""

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import sparse

STEPS, WEIGHT = 8, 1e-3


def pattern_of(side):
    """Edges between neighbouring cells, and the matrix of differences along them."""
    cells = np.arange(side * side).reshape(side, side)
    first = np.concatenate([cells[:, :-1].ravel(), cells[:-1].ravel()])
    second = np.concatenate([cells[:, 1:].ravel(), cells[1:].ravel()])
    count, edges = len(first), np.arange(len(first))
    rows, columns = np.concatenate([edges, edges]), np.concatenate([first, second])
    signs = np.concatenate([np.ones(count), -np.ones(count)])
    return first, second, sparse.COO(signs, rows, columns, (count, side * side)).tocsr()


def true_conductivity(side):
    """A plate of two materials, smoothly joined."""
    y, x = np.mgrid[0:side, 0:side] / side - 0.5
    return 1.0 + 3.0 / (1.0 + np.exp(30.0 * (np.hypot(x - 0.1, y) - 0.25))).ravel()


def main(side=40):
    """Measure, fit, compare; returns the relative error after the fit."""
    first, second, difference = pattern_of(side)
    heat = np.zeros((side, side))
    heat[: side // 8], heat[-side // 8 :] = 1.0, -1.0
    refined = (40 / side) ** 2  # the area of a cell, compared with the default
    loss_rate = 0.01 * refined * sparse.eye(side * side)

    def temperature(logarithm):
        k = jnp.exp(logarithm)
        along = 2.0 / (1.0 / k[first] + 1.0 / k[second])  # the flow through two half cells
        matrix = difference.T.tocsr() @ (difference * along[:, None]) + loss_rate
        return sparse.spsolve(matrix, heat.ravel(), assume="positive definite")

    truth = np.log(true_conductivity(side))
    rng = np.random.default_rng(0)
    places = rng.choice(side * side, side * side // 10, replace=False)
    measured = np.asarray(rlx.jit(temperature)(truth))[places]
    measured = measured + 1e-3 * np.abs(measured).max() * rng.normal(size=len(places))
    scale = np.abs(measured).max()
    prior = WEIGHT / refined * (difference.T.tocsr() @ difference + 0.01 * refined * sparse.eye(side * side))

    @rlx.jit
    def step(logarithm):
        """A Gauss-Newton step; conjugate gradients use products with the Jacobian, and the prior as preconditioner."""
        predict = lambda v: temperature(v)[places] / scale  # noqa: E731
        value, push = rlx.linearize(predict, logarithm)
        pull = rlx.linear_transpose(push, logarithm)
        gradient = pull(value - measured / scale)[0] + prior @ logarithm
        smooth = lambda v: sparse.spsolve(prior, v, assume="positive definite")  # noqa: E731
        change, _ = sparse.cg(lambda v: pull(push(v))[0] + prior @ v, -gradient, tol=1e-4, maxiter=100, M=smooth)
        return logarithm + change, jnp.linalg.norm(value - measured / scale)

    found = np.zeros(side * side)
    before = np.linalg.norm(found - truth) / np.linalg.norm(truth)
    for number in range(STEPS):
        found, misfit = step(found)
        print(f"step {number + 1}: misfit {float(misfit):.2e}")
    after = float(np.linalg.norm(np.asarray(found) - truth) / np.linalg.norm(truth))
    print(f"relative error of the logarithm of the conductivity: {before:.2f} before, {after:.2f} after")
    assert after < 0.35 * before, "the fit has not found the conductivity"
    return after


if __name__ == "__main__":
    main()
