"""Sparse matrices of every format and size, zero among them, in operations beside dense arrays of NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_systems import drawn

import rlx
import rlx.numpy as jnp
from rlx import sparse

FORMATS = ("csr", "csc", "coo", "bsr", "dia")
SIZES = (0, 1, 2, 3, 6)
COUNTS = (None, 0, 1, 4)  # columns of the dense operand; a vector


def made(format: str, matrix: Any, wide: bool) -> Any:
    """The matrix in a format, unsorted and with duplicates where the format has them."""
    index = "i8" if wide else "i4"
    row, col = (c.astype(index) for c in matrix.coords)
    if format == "coo":
        return sparse.COO(matrix.data, row, col, matrix.shape)
    if format in ("csr", "csc"):
        across, along, kind = (row, col, sparse.CSR) if format == "csr" else (col, row, sparse.CSC)
        order = np.argsort(across, kind="stable")
        ends = np.searchsorted(across[order], np.arange(matrix.shape[format == "csc"] + 1)).astype(index)
        return kind(matrix.data[order], along[order], ends, matrix.shape)
    if format == "bsr":
        return sparse.BSR.fromscipy(matrix, tuple(2 if n and n % 2 == 0 else 1 for n in matrix.shape))
    return sparse.DIA.fromscipy(matrix)


OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "product": (lambda a, b, x, y: a @ x, lambda a, b, x, y: a @ x),
    "transposed": (lambda a, b, x, y: a.T @ y, lambda a, b, x, y: a.T @ y),
    "from the left": (lambda a, b, x, y: jnp.stack([y.T, y.T]) @ a, lambda a, b, x, y: np.stack([y.T, y.T]) @ a),
    "sums": (lambda a, b, x, y: ((a + b) * 2.0 - a).todense(), lambda a, b, x, y: (a + b) * 2 - a),
    "elementwise": (lambda a, b, x, y: (a * b).todense(), lambda a, b, x, y: a * b),
    "sparse product": (lambda a, b, x, y: (a @ b.T).todense(), lambda a, b, x, y: a @ b.T),
    "rows scaled": (lambda a, b, x, y: (a * y[:, :1]).todense(), lambda a, b, x, y: a * y[:, :1]),
    "diagonal": (lambda a, b, x, y: a.diagonal(), lambda a, b, x, y: np.diagonal(a)),
    "beside": (lambda a, b, x, y: sparse.hstack([a, b]).todense(), lambda a, b, x, y: np.hstack([a, b])),
    "below": (lambda a, b, x, y: sparse.vstack([a, b]).todense(), lambda a, b, x, y: np.vstack([a, b])),
    "batch": (lambda a, b, x, y: rlx.vmap(lambda s: (a * s) @ x)(jnp.arange(3.0)), None),
    "gradient": (lambda a, b, x, y: rlx.grad(lambda x: ((a @ x) ** 2).sum())(x), lambda a, b, x, y: 2 * a.T @ (a @ x)),
}
OPERATIONS["batch"] = (OPERATIONS["batch"][0], lambda a, b, x, y: np.stack([(a * s) @ x for s in range(3)]))


@pytest.mark.thorough
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_of_every_format_and_size(operation: str, format: str, compiled: bool) -> None:
    ours, theirs = OPERATIONS[operation]
    rng = np.random.default_rng(0)
    sizes = list(itertools.product(SIZES, SIZES))
    for number, (rows, columns) in enumerate(sizes if not compiled else sizes[::3]):
        stored = (0, 3, 25)[number % 3] if rows and columns else 0
        first, second = (drawn(rows, columns, stored, seed=number + n) for n in (0, 50))
        a, b = made(format, first, number % 2 == 1), made(FORMATS[number % 5], second, number % 4 == 1)
        x, y = (rng.normal(size=(n, COUNTS[number % 4] or 0)) for n in (columns, rows))
        y = rng.normal(size=(rows, 1)) if operation == "rows scaled" else y
        x = rng.normal(size=columns) if COUNTS[number % 4] is None else x
        call = rlx.jit(ours) if compiled else ours
        dense = sp.coo_array(first).toarray(), sp.coo_array(second).toarray()
        np.testing.assert_allclose(call(a, b, x, y), theirs(*dense, x, y), atol=1e-12)


@pytest.mark.parametrize("format", FORMATS)
def test_matrices_without_elements(format: str) -> None:
    """No stored elements, rows or columns: results have the dtype and zeros of the others."""
    for rows, columns in ((0, 0), (0, 4), (4, 0), (4, 4)):
        a = made(format, sp.coo_array((rows, columns), dtype=np.float32), False)
        assert a.tocsr().dtype == a.T.dtype == "f4"
        for count in (0, 3):
            x = np.ones((columns, count), np.float32)
            assert (a @ x).shape == (rows, count) and not np.asarray(a @ x).any()
            assert (a.T @ np.ones((rows, count), np.float32)).shape == (columns, count)
        assert (a + a).todense().shape == (a * 2.0).todense().shape == (rows, columns)
