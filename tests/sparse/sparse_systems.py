"""Sparse matrices of the tests, as SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def drawn(rows: int, columns: int, stored: int, dtype: str = "f8", seed: int = 0) -> Any:
    """Elements at random places, unsorted, with duplicates and empty rows: as a COO array."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=stored) + (1j * rng.normal(size=stored) if dtype.startswith("c") else 0)
    places = (rng.integers(0, max(rows, 1), stored), rng.integers(0, max(columns, 1), stored))
    return sp.coo_array((values.astype(dtype), places), shape=(rows, columns))


def _second_difference(n: int) -> Any:
    return sp.diags_array([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1])


def poisson(n: int) -> Any:
    """Five points on a square."""
    line, one = _second_difference(n), sp.eye_array(n)
    return (sp.kron(line, one) + sp.kron(one, line)).tocsr()


def convection(n: int, speed: float = 20.0) -> Any:
    """Diffusion with a flow: not symmetric."""
    step = speed / (n + 1) / 2
    flow = sp.diags_array([-step * np.ones(n - 1), step * np.ones(n - 1)], offsets=[-1, 1])
    return (poisson(n) + sp.kron(sp.eye_array(n), flow)).tocsr()


def saddle(n: int, constraints: int) -> Any:
    """Symmetric indefinite, with zeros on the diagonal."""
    rng = np.random.default_rng(1)
    rows = sp.random_array((constraints, n * n), density=0.02, rng=rng) + sp.eye_array(constraints, n * n)
    return sp.block_array([[poisson(n), rows.T], [rows, None]]).tocsr()


def arrow(n: int) -> Any:
    """A full first row and column, and a diagonal."""
    dense = np.zeros((n, n))
    dense[0], dense[:, 0] = 1, 1
    np.fill_diagonal(dense, np.arange(2, n + 2))
    dense[0, 0] = 2 * n
    return sp.csr_array(dense)
