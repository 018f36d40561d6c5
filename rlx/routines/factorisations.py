"""Cholesky, LU and QR on the host."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from rlx.routines.common import Arrays, Attributes, nan_where_it_fails, vectorises_across_batch

__all__ = ["cholesky", "householder_product", "lu", "packed_qr", "pivoted_qr", "pivots_to_permutation", "qr"]


def cholesky(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The lower factor; all NaN in its triangle for a matrix that is not positive definite."""

    def factorise(matrices: np.ndarray) -> Arrays:
        return (np.linalg.cholesky(matrices),)

    (factor,) = nan_where_it_fails(factorise, inputs[0])
    # NumPy does not report NaN in a matrix: its first columns may have numbers
    failed = np.any(np.isnan(np.diagonal(factor, axis1=-2, axis2=-1))[..., None], axis=-2, keepdims=True)
    return (np.where(failed, np.tril(np.full_like(factor, np.nan)), factor),) if failed.any() else (factor,)


def lu(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The packed factors with their pivots, and the permutation of the rows."""
    (matrices,) = inputs
    rows, columns = matrices.shape[-2:]
    batch = matrices.shape[:-2]
    packed = np.array(matrices, order="C")
    pivots = np.zeros((*batch, min(rows, columns)), np.int32)
    if packed.size:
        if vectorises_across_batch(batch, rows):
            _eliminate_across_batch(packed.reshape(-1, rows, columns), pivots.reshape(-1, pivots.shape[-1]))
        else:
            _eliminate_one_by_one(packed, pivots)
    return packed, pivots, _permutation(pivots, rows)


def _eliminate_one_by_one(packed: np.ndarray, pivots: np.ndarray) -> None:
    from scipy.linalg import get_lapack_funcs

    (getrf,) = get_lapack_funcs(("getrf",), (packed,))
    for place in np.ndindex(packed.shape[:-2]):
        packed[place], pivots[place], _ = getrf(packed[place])


def _eliminate_across_batch(packed: np.ndarray, pivots: np.ndarray) -> None:
    """Gaussian elimination with partial pivoting, a column of all matrices at a time."""
    count, rows, _ = packed.shape
    every = np.arange(count)
    real = packed.dtype.kind == "f"
    for column in range(pivots.shape[1]):
        below = packed[:, column:, column]
        # LAPACK's measure of a complex pivot; its search skips NaN
        measure = np.abs(below) if real else np.abs(below.real) + np.abs(below.imag)
        chosen = column + np.argmax(np.where(np.isnan(measure), -1, measure), axis=1)
        pivots[:, column] = chosen
        swapped = packed[every, chosen]
        packed[every, chosen] = packed[:, column]
        packed[:, column] = swapped
        if column + 1 < rows:
            pivot = packed[:, column, column][:, None]
            column_below = packed[:, column + 1 :, column]
            np.divide(column_below, pivot, out=column_below, where=pivot != 0)
            packed[:, column + 1 :, column + 1 :] -= column_below[:, :, None] * packed[:, column, None, column + 1 :]


def _permutation(pivots: np.ndarray, rows: int) -> np.ndarray:
    """The row permutations of the interchanges of all matrices."""
    batch, steps = pivots.shape[:-1], pivots.shape[-1]
    flat = pivots.reshape(prod(batch), steps)
    order = np.tile(np.arange(rows, dtype=np.int32), (len(flat), 1))
    every = np.arange(len(flat))
    for step in range(steps):
        other = flat[:, step]
        moved = order[every, other]
        order[every, other] = order[:, step]
        order[:, step] = moved
    return order.reshape(*batch, rows)


def pivots_to_permutation(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The row permutation of interchanges."""
    return (_permutation(inputs[0], attributes["rows"]),)


def qr(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """An orthonormal and an upper triangular factor."""
    full = attributes.get("full_matrices", False)
    return tuple(np.linalg.qr(inputs[0], mode="complete" if full else "reduced"))


def packed_qr(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The triangular factor above the reflectors, and their scalar factors."""
    turned, factors = np.linalg.qr(inputs[0], mode="raw")
    return np.ascontiguousarray(turned.swapaxes(-1, -2)), factors


def pivoted_qr(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """QR of the matrix with its columns ordered so that the diagonal of r decreases."""
    from scipy.linalg import qr as factorise

    (matrices,) = inputs
    full = attributes.get("full_matrices", False)
    rows, columns = matrices.shape[-2:]
    batch, inner = matrices.shape[:-2], rows if full else min(rows, columns)
    q = np.zeros((*batch, rows, inner), matrices.dtype)
    q[...] = np.eye(rows, inner, dtype=matrices.dtype)
    r = np.zeros((*batch, inner, columns), matrices.dtype)
    order = np.zeros((*batch, columns), np.int32)
    order[...] = np.arange(columns)
    if matrices.size:
        for place in np.ndindex(batch):
            q[place], r[place], order[place] = factorise(
                matrices[place], mode="full" if full else "economic", pivoting=True, check_finite=False
            )
    return q, r, order


def householder_product(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """The first columns of the unitary product of elementary reflectors."""
    from scipy.linalg import get_lapack_funcs

    packed, factors = inputs
    product = np.array(packed, order="C")
    name = "orgqr" if product.dtype.kind == "f" else "ungqr"
    if product.size:
        (generate,) = get_lapack_funcs((name,), (product,))
        for place in np.ndindex(product.shape[:-2]):
            if factors.shape[-1]:
                product[place], _, _ = generate(packed[place], factors[place])
            else:
                product[place] = np.eye(*product.shape[-2:])
    return (product,)
