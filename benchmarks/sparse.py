"""Sparse products and solvers beside SciPy and jax.experimental.sparse.

    python -m benchmarks.sparse [--rows 1000000] [--side 300] [--rounds 9] [--json]

prints the median times of alternating runs in one process, and their ratios to SciPy's. Products are of matrices with
five elements a row, in float64; systems are Poisson's equation on a square.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as solvers

import rlx
from rlx import sparse
from rlx.columns import aligned

Run = Callable[[], Any]


def medians(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Median seconds of each run, in turns after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def tell(cases: dict[str, dict[str, Run]], rounds: int, as_json: bool) -> None:
    """Measure and print each run of each case, as a table or as seconds in JSON."""
    found = {case: medians(runs, rounds) for case, runs in cases.items()}
    if as_json:
        print(json.dumps(found))
        return
    rows = [("case", "library", "ms", "of SciPy's")]
    for case, times in found.items():
        rows += [(case, name, f"{1e3 * s:.1f}", f"{s / times['scipy']:.3f}") for name, s in times.items()]
    print(*aligned(rows, [0, 1]), sep="\n")


def jax_product(matrix: Any, x: np.ndarray) -> dict[str, Run]:
    """JAX's product with a BCOO matrix, if JAX is installed."""
    try:
        import jax
        from jax.experimental import sparse as jax_sparse
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)
    theirs, vector = jax_sparse.BCOO.from_scipy_sparse(matrix), jax.numpy.asarray(x)
    multiply = jax.jit(lambda m, x: m @ x)
    return {"jax": lambda: multiply(theirs, vector).block_until_ready()}


def product_runs(matrix: Any, x: np.ndarray) -> dict[str, Run]:
    """A matrix of SciPy times a dense array in each library."""
    ours, dense = sparse.CSR.fromscipy(matrix), rlx.numpy.asarray(x)
    multiply = rlx.jit(lambda a, x: a @ x)
    return {
        "scipy": lambda: matrix @ x,
        "rlx": lambda: multiply(ours, dense).block_until_ready(),
        **jax_product(matrix, x),
    }


def diagonal_runs(matrix: Any, x: np.ndarray) -> dict[str, Run]:
    """As product_runs, and by diagonals."""
    ours, dense = sparse.DIA.fromscipy(matrix), rlx.numpy.asarray(x)
    multiply = rlx.jit(lambda a, x: a @ x)
    return product_runs(matrix, x) | {"rlx, DIA": lambda: multiply(ours, dense).block_until_ready()}


def random_rows(rows: int) -> Any:
    """Five elements a row at random columns."""
    rng = np.random.default_rng(0)
    indices = rng.integers(0, rows, 5 * rows).astype(np.int32)
    return sp.csr_array((rng.normal(size=5 * rows), indices, np.arange(0, 5 * rows + 1, 5, dtype=np.int32)))


def poisson(side: int) -> Any:
    """Five points on a square."""
    line = sp.diags_array([-np.ones(side - 1), 2 * np.ones(side), -np.ones(side - 1)], offsets=[-1, 0, 1])
    one = sp.eye_array(side)
    return (sp.kron(line, one) + sp.kron(one, line)).tocsr()


def new_patterns(matrix: Any) -> Iterator[Any]:
    """The matrix with a stored zero at another place each time."""
    for number in itertools.count(2):
        zeros = sp.coo_array((np.zeros(2), ([0, number], [number, 0])), shape=matrix.shape)
        every = sp.coo_array(matrix)
        pairs = zip(every.coords, zeros.coords, strict=True)
        places = tuple(np.concatenate(pair).astype(np.int32) for pair in pairs)
        yield sp.coo_array((np.concatenate([every.data, zeros.data]), places), shape=matrix.shape).tocsr()


def solver_runs(side: int) -> dict[str, dict[str, Run]]:
    """Solvers by name; a direct solve is of a new pattern each time, or of new values."""
    matrix, scale = poisson(side), iter(np.linspace(1, 2, 1000))
    new = new_patterns(matrix)
    b, ours = np.ones(matrix.shape[0]), sparse.CSR.fromscipy(matrix)
    by_columns = matrix.tocsc()
    iterate = rlx.jit(lambda a, b: sparse.cg(a, b, tol=1e-8)[0])
    solve = rlx.jit(lambda a, b: sparse.spsolve(a, b, assume="positive definite"))
    slope = rlx.jit(rlx.grad(lambda a, b: solve(a, b).sum(), argnums=(0, 1)))
    first = {
        "scipy": lambda: solvers.spsolve(by_columns, b),
        "rlx": lambda: sparse.spsolve(
            sparse.CSR.fromscipy(next(new)), b, assume="positive definite"
        ).block_until_ready(),
    }
    direct = {
        "scipy": lambda: solvers.spsolve(by_columns, b),
        "rlx": lambda: solve(ours * next(scale), b).block_until_ready(),
        "rlx, with its gradient": lambda: rlx.block_until_ready(slope(ours * next(scale), b)),
    }
    iterated = {
        "scipy": lambda: solvers.cg(matrix, b, rtol=1e-8),
        "rlx": lambda: iterate(ours, b).block_until_ready(),
    }
    return {"first direct solve": first, "direct solve, new values": direct, "conjugate gradients": iterated}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Sparse products and solvers beside SciPy and JAX.")
    for name, value in (("rows", 1_000_000), ("side", 300), ("rounds", 9)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true", help="print seconds in JSON")
    options = parser.parse_args()
    matrix = random_rows(options.rows)
    band = sp.diags_array([np.full(options.rows - abs(k), k + 3.0) for k in range(-2, 3)], offsets=range(-2, 3)).tocsr()
    rng = np.random.default_rng(1)
    cases = {
        "random columns": product_runs(matrix, rng.normal(size=options.rows)),
        "five diagonals": diagonal_runs(band, rng.normal(size=options.rows)),
        "32 columns": product_runs(matrix, rng.normal(size=(options.rows, 32))),
        **solver_runs(options.side),
    }
    tell(cases, options.rounds, options.json)


if __name__ == "__main__":
    main()
