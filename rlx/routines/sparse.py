"""Products with sparse matrices on the host, by rows: the elements of row i are data[indptr[i]:indptr[i + 1]]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.routines.common import Arrays, Attributes

__all__ = ["csr_product", "row_numbers", "sampled_product"]


def row_numbers(indptr: np.ndarray, count: int) -> np.ndarray:
    """The row of each of `count` stored elements; elements after the last row count as its own."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.pad(rows, (0, count - len(rows)), constant_values=max(len(indptr) - 2, 0))


def csr_product(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The product of a sparse matrix, or of its transpose, with a dense one."""
    data, indices, indptr, x = inputs
    matrix: Any = _matrix(data, indices, indptr, attributes["columns"])
    product = (matrix.T if attributes["transposed"] else matrix) @ x
    return (np.ascontiguousarray(product, x.dtype),)


def sampled_product(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The elements of x @ y.T at the stored places of a sparse matrix."""
    x, y, indices, indptr = inputs
    rows = row_numbers(indptr, len(indices))
    return (np.einsum("ek,ek->e", x[rows], y[indices]).astype(x.dtype, copy=False),)


def _matrix(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, columns: int) -> Any:
    from scipy.sparse import csr_array

    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, columns))
