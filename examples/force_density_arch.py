"""The shape of an arch, found by the force densities of its bars.

A net of bars that are only pulled or pushed is in equilibrium if, at each free node, the bars' forces and the load add
up to zero. With a given force density (force by length) of each bar that is one sparse linear system for the nodes'
positions. Hung from its supports and turned over, the net is a vault. Here the densities are fitted so that the net
meets a wanted height: derivatives pass through `sparse.spsolve`, and SciPy's L-BFGS-B keeps each density positive. The
result is checked with the equilibrium of each node.
"""

import numpy as np

import rlx.numpy as jnp
from rlx import sparse
from rlx.scipy.optimize import minimize

WEIGHT, RISE = 1.0, 0.3


def net(side):
    """Nodes of a square net, the ends of its bars, and which nodes are free."""
    number = np.arange(side * side).reshape(side, side)
    first = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    second = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    x, y = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side), indexing="ij")
    places = np.stack([x.ravel(), y.ravel(), np.zeros(side * side)], axis=1)
    free = ((x > 0) & (x < 1) & (y > 0) & (y < 1)).ravel()
    return places, first, second, free


def differences(first, second, nodes):
    """The matrix whose product with the positions is the direction of each bar."""
    bars = np.arange(len(first))
    rows, columns = np.concatenate([bars, bars]), np.concatenate([first, second])
    signs = np.concatenate([np.ones(len(first)), -np.ones(len(first))])
    return sparse.COO(signs, rows, columns, (len(first), nodes)).tocsr()


def main(side=21):
    """Fit the densities; returns the largest force that is not in balance."""
    places, first, second, free = net(side)
    inner, outer = np.flatnonzero(free), np.flatnonzero(~free)
    whole = differences(first, second, side * side)
    by_column = whole.toscipy().tocsc()
    moving = sparse.CSR.fromscipy(by_column[:, inner].tocsr())
    held = np.asarray(by_column[:, outer] @ places[outer])  # the supports' share of each bar's direction
    load = np.zeros((len(inner), 3))
    load[:, 2] = WEIGHT / len(inner)
    wanted = RISE * 16 * np.prod(places[inner, :2] * (1 - places[inner, :2]), axis=1)

    def positions(density):
        matrix = moving.T.tocsr() @ (moving * density[:, None])
        return sparse.spsolve(matrix, load - moving.T @ (density[:, None] * held), assume="positive definite")

    def misfit(density):
        found = positions(density)
        across = jnp.sum((found[:, :2] - places[inner, :2]) ** 2)  # seen from above, the net stays a grid
        return 1e3 * (jnp.mean((found[:, 2] - wanted) ** 2) + across / len(inner))

    start = np.full(len(first), 0.25)
    fit = minimize(misfit, start, method="L-BFGS-B", bounds=[(0.01, 10.0)] * len(first), options={"maxiter": 300})
    density = fit.x
    shape = places.copy()
    shape[inner] = np.asarray(positions(density))
    forces = density[:, None] * (shape[first] - shape[second])
    total = np.zeros_like(shape)
    np.add.at(total, first, -forces)
    np.add.at(total, second, forces)
    balance = float(np.abs(total[inner] + load).max())
    error = float(np.abs(shape[inner, 2] - wanted).max())
    print(f"{len(first)} bars, {len(inner)} free nodes, {fit.nit} iterations of {fit.nfev} evaluations")
    print(f"misfit {float(misfit(start)):.2e} before, {fit.fun:.2e} after; largest error of the height {error:.3f}")
    print(f"densities from {density.min():.3f} to {density.max():.3f}, forces out of balance {balance:.1e}")
    assert balance < 1e-10, "a node is not in equilibrium"
    assert fit.fun < 1e-2 * float(misfit(start)) and error < 0.1 * RISE
    return balance


if __name__ == "__main__":
    main()
