"""Solvers of SciPy over rlx functions with sparse Jacobians, beside SciPy without derivatives.

    python -m benchmarks.sparse_solvers [--residuals 10000] [--side 32] [--rounds 3] [--json]

prints the median times of alternating runs in one process, and their ratios to SciPy's. The first case is a least
squares problem, whose residuals depend on three neighbouring parameters each; SciPy approximates its Jacobian by
differences of two points, with the given pattern. The second is the Brusselator by BDF; SciPy gets no Jacobian, and
in another row its pattern.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.sparse as sp

import rlx
import rlx.numpy as jnp
from benchmarks.sparse import Run, tell
from rlx.experimental.ode import odeint
from rlx.scipy.integrate import solve_ivp
from rlx.scipy.optimize import least_squares

END = 1.0


def residuals(module: Any, x: Any) -> Any:
    """Broyden's tridiagonal function (1965)."""
    y = module.pad(x, 1)
    return (3 - 2 * x) * x - y[:-2] - 2 * y[2:] + 1


def fits(count: int) -> dict[str, Run]:
    """Least squares from the usual start."""
    start = np.full(count, -1.0)
    pattern = sp.diags_array([np.ones(count - abs(k)) for k in (-1, 0, 1)], offsets=[-1, 0, 1])
    plain = lambda x: residuals(np, x)  # noqa: E731
    return {
        "scipy": lambda: scipy.optimize.least_squares(plain, start, jac_sparsity=pattern, tr_solver="lsmr"),
        "rlx": lambda: least_squares(lambda x: residuals(jnp, x), start),
    }


def reaction(module: Any, y: Any, side: int) -> Any:
    """The Brusselator on a periodic grid."""
    u, v = y.reshape(2, side, side)

    def laplacian(w: Any) -> Any:
        shifted = (module.roll(w, step, axis) for step in (1, -1) for axis in (0, 1))
        return 0.002 * side**2 * (sum(shifted) - 4 * w)

    exchange = u**2 * v
    return module.stack([1.0 + exchange - 4.4 * u + laplacian(u), 3.4 * u - exchange + laplacian(v)]).reshape(-1)


def integrations(side: int) -> dict[str, Run]:
    """By BDF, to END, with tolerances of 1e-4."""
    x = np.arange(side) / side
    u = 1.0 + 0.5 * np.cos(2 * np.pi * x)[:, None] * np.ones(side)
    v = 3.4 + 0.5 * np.sin(2 * np.pi * x)[None, :] * np.ones((side, 1))
    start = np.stack([u, v]).ravel()
    found = rlx.sparsity(lambda y: reaction(jnp, y, side))(start)
    pattern = sp.csr_array((np.ones(found.nnz), (found.rows, found.cols)), shape=found.shape)
    options = {"rtol": 1e-4, "atol": 1e-4}
    plain = lambda t, y: reaction(np, y, side)  # noqa: E731
    compiled = rlx.jit(
        lambda y: odeint(lambda y, t: reaction(jnp, y, side), y, np.array([0.0, END]), **options, method="bdf")
    )
    return {
        "scipy": lambda: scipy.integrate.solve_ivp(plain, (0, END), start, "BDF", **options),
        "scipy, with the pattern": lambda: scipy.integrate.solve_ivp(
            plain, (0, END), start, "BDF", jac_sparsity=pattern, **options
        ),
        "rlx, solve_ivp": lambda: solve_ivp(lambda t, y: reaction(jnp, y, side), (0, END), start, "BDF", **options),
        "rlx, odeint": lambda: compiled(start).block_until_ready(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Solvers over rlx functions beside SciPy's without derivatives.")
    for name, value in (("residuals", 10_000), ("side", 32), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true", help="print seconds in JSON")
    options = parser.parse_args()
    cases = {"least squares": fits(options.residuals), "Brusselator": integrations(options.side)}
    tell(cases, options.rounds, options.json)


if __name__ == "__main__":
    main()
