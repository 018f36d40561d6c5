"""Newton's method for a nonlinear equation on a mesh of triangles, compiled as a whole.

The Bratu problem, minus the Laplacian of u equals a constant times exp(u), on an L-shaped domain with linear finite
elements. The energy of the mesh is a sum over its triangles; `rlx.sparse_hessian` finds in the program of the energy
which nodes share a triangle, and computes the stiffness matrix by few products. `sparse.spsolve` makes the Newton steps
in a loop inside `rlx.jit`. A coarse and a fine mesh are compared, and the last steps must converge quadratically.
"""

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import sparse

STRENGTH, STEPS = 10.0, 8


def mesh(side):
    """Points, triangles and free nodes of the unit square without its upper right quarter."""
    x, y = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side), indexing="ij")
    number = np.arange(side * side).reshape(side, side)
    a, b, c, d = number[:-1, :-1], number[1:, :-1], number[:-1, 1:], number[1:, 1:]
    triangles = np.concatenate([np.stack([p.ravel() for p in corners], 1) for corners in ((a, b, d), (a, d, c))])
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    centres = points[triangles].mean(axis=1)
    triangles = triangles[(centres < 0.5).any(axis=1)]
    free = ((x > 0) & (y > 0) & (x < 1) & (y < 1) & ((x < 0.5) | (y < 0.5))).ravel()
    return points, triangles, np.flatnonzero(free)


def energy_of(points, triangles, inner):
    """The energy of the free nodes' values."""
    corners = points[triangles]
    one, two = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = 0.5 * np.abs(one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0])
    slopes = np.linalg.inv(np.stack([one, two], axis=1))  # from differences of values to the gradient
    place = np.full(len(points), len(inner))
    place[inner] = np.arange(len(inner))

    def energy(u):
        values = jnp.append(u, 0.0)[place[triangles]]
        rise = values[:, 1:] - values[:, :1]
        gradient = slopes[:, :, 0] * rise[:, :1] + slopes[:, :, 1] * rise[:, 1:]
        source = STRENGTH * jnp.exp(values).mean(axis=1)
        return jnp.sum(area * (0.5 * jnp.sum(gradient**2, axis=1) - source))

    return energy


def solution(side):
    """The largest value of the solution on a mesh, and the sizes of Newton's steps."""
    points, triangles, inner = mesh(side)
    energy = energy_of(points, triangles, inner)

    @rlx.jit
    def newton(u):
        def step(u, _):
            change = sparse.spsolve(rlx.sparse_hessian(energy)(u), -rlx.grad(energy)(u), assume="symmetric")
            return u + change, jnp.abs(change).max()

        return rlx.lax.scan(step, u, length=STEPS)

    u, sizes = newton(np.zeros(len(inner)))
    places = rlx.hessian_sparsity(energy)(u)
    print(f"{len(inner)} unknowns, {places.nnz} elements of the Hessian, largest value {float(u.max()):.5f}")
    print("Newton's steps:", " ".join(f"{float(s):.1e}" for s in sizes))
    return float(u.max()), np.asarray(sizes)


def main(side=65):
    """Solve on two meshes; returns the difference of their largest values."""
    (coarse, _), (fine, sizes) = solution(side // 2 + 1), solution(side)
    assert sizes[-1] < 1e-10, "Newton's method has not converged"
    assert sizes[2] < 10 * sizes[1] ** 2, "the convergence is not quadratic"
    assert abs(fine - coarse) < 0.01 * fine
    return abs(fine - coarse)


if __name__ == "__main__":
    main()
