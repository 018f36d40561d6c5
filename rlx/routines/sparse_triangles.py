"""Triangular solves with sparse matrices by rows, and incomplete factors, on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.routines.common import Arrays, Attributes
from rlx.routines.sparse import row_numbers

__all__ = ["csr_incomplete_lu", "csr_triangular_solve"]


def csr_triangular_solve(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """x with T x = b, or T.T x = b if transposed, for one triangle T of the stored elements."""
    data, indices, indptr, b = inputs
    rows, sign = row_numbers(indptr, len(indices)), 1 if attributes["lower"] else -1
    order = len(indptr) - 1
    diagonal = np.zeros(order, data.dtype)
    np.add.at(diagonal, rows[rows == indices], data[rows == indices])
    pivots = np.ones_like(diagonal) if attributes["unit_diagonal"] else diagonal
    strict = (indices - rows) * sign < 0
    starts = np.concatenate([[0], np.cumsum(strict)])[indptr]
    columns, values = indices[strict], data[strict]
    x = b.copy()
    downwards = (sign == 1) != attributes["transposed"]
    with np.errstate(all="ignore"):
        for row in range(order) if downwards else range(order - 1, -1, -1):
            others, part = columns[starts[row] : starts[row + 1]], values[starts[row] : starts[row + 1]]
            if attributes["transposed"]:
                x[row] /= pivots[row]
                np.subtract.at(x, others, part[:, None] * x[row])
            else:
                x[row] = (x[row] - part @ x[others]) / pivots[row]
    return (x,)


def csr_incomplete_lu(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The LU factors at the places of a matrix with sorted columns and a diagonal: row by row, without fill."""
    data, indices, indptr = inputs
    factors = data.copy()
    order = len(indptr) - 1
    places, diagonal = np.full(order, -1), np.full(order, -1)
    with np.errstate(all="ignore"):
        for row in range(order):
            start, end = indptr[row], indptr[row + 1]
            places[indices[start:end]] = np.arange(start, end)
            diagonal[row] = places[row]
            for number in range(start, diagonal[row]):
                pivot = indices[number]
                factors[number] /= factors[diagonal[pivot]]
                others = slice(diagonal[pivot] + 1, indptr[pivot + 1])
                targets = places[indices[others]]
                hit = targets >= 0
                factors[targets[hit]] -= factors[number] * factors[others][hit]
            places[indices[start:end]] = -1
    return (factors,)
