"""Solves on the host: triangular, from LU factors, tridiagonal, Sylvester."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.routines.common import Arrays, Attributes, vectorises_across_batch

__all__ = ["lu_solve", "sylvester", "triangular_solve", "tridiagonal_solve"]


def triangular_solve(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """x with op(a) x = b or x op(a) = b for a triangular matrix a."""
    matrices, right_sides = inputs
    lower = attributes.get("lower", True)
    transposed = attributes.get("transpose_a", False)
    unit = attributes.get("unit_diagonal", False)
    if attributes.get("conjugate_a", False):
        matrices = matrices.conj()
    solution = np.array(right_sides, order="C")
    if solution.size == 0:
        return (solution,)
    if not attributes.get("left_side", True):
        turned = _solve(matrices, solution.swapaxes(-1, -2), lower, not transposed, unit)
        return (np.ascontiguousarray(turned.swapaxes(-1, -2)),)
    return (_solve(matrices, solution, lower, transposed, unit),)


def _solve(matrices: np.ndarray, right_sides: np.ndarray, lower: bool, transposed: bool, unit: bool) -> np.ndarray:
    """Triangular solves from the left, across the batch if that is faster."""
    if vectorises_across_batch(right_sides.shape[:-2], right_sides.shape[-2]):
        if transposed:
            matrices, lower = matrices.swapaxes(-1, -2), not lower
        return _substitute_across_batch(matrices, np.array(right_sides, order="C"), lower, unit)
    return _substitute_one_by_one(matrices, right_sides, lower, transposed, unit)


def _substitute_across_batch(matrices: np.ndarray, solution: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    """Substitution row by row, for all matrices at once."""
    order = solution.shape[-2]
    for row in range(order) if lower else reversed(range(order)):
        known = slice(0, row) if lower else slice(row + 1, order)
        if known.start < known.stop:
            solution[..., row, :] -= np.matmul(matrices[..., row, None, known], solution[..., known, :])[..., 0, :]
        if not unit:
            solution[..., row, :] /= matrices[..., row, row, None]
    return solution


def _substitute_one_by_one(
    matrices: np.ndarray, right_sides: np.ndarray, lower: bool, transposed: bool, unit: bool
) -> np.ndarray:
    from scipy.linalg import get_blas_funcs

    (trsm,) = get_blas_funcs(("trsm",), (matrices, right_sides))
    solution = np.empty(right_sides.shape, right_sides.dtype)
    for place in np.ndindex(right_sides.shape[:-2]):
        solution[place] = trsm(
            1.0, matrices[place], right_sides[place], lower=int(lower), trans_a=int(transposed), diag=int(unit)
        )
    return solution


def lu_solve(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """x with op(a) x = b, from the LU factors of a."""
    factors, permutation, right_sides = inputs
    if right_sides.size == 0:
        return (np.array(right_sides, order="C"),)
    if attributes.get("conjugate_a", False):
        factors = factors.conj()
    rows = np.broadcast_to(permutation[..., None], right_sides.shape)
    if not attributes.get("transpose_a", False):
        ordered = np.take_along_axis(right_sides, rows, -2)
        return (_solve(factors, _solve(factors, ordered, True, False, True), False, False, False),)
    solved = _solve(factors, _solve(factors, right_sides, False, True, False), True, True, True)
    result = np.empty(right_sides.shape, right_sides.dtype)
    np.put_along_axis(result, rows, solved, -2)
    return (result,)


def tridiagonal_solve(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """x with a x = b for the matrix a of three diagonals (first of lower, last of upper unused)."""
    from scipy.linalg import get_lapack_funcs

    lower, diagonal, upper, right_sides = inputs
    solution = np.array(right_sides, order="C")
    if solution.size == 0:
        return (solution,)
    if solution.shape[-2] == 1:
        return (solution / diagonal[..., None],)
    (gtsv,) = get_lapack_funcs(("gtsv",), (diagonal, right_sides))
    for place in np.ndindex(solution.shape[:-2]):
        *_, found, failure = gtsv(lower[place][1:], diagonal[place], upper[place][:-1], right_sides[place])
        solution[place] = np.nan if failure else found
    return (solution,)


def sylvester(inputs: Sequence[np.ndarray], attributes: Attributes) -> Arrays:
    """x with a x + x b = c; NaN if a and -b share an eigenvalue."""
    from scipy.linalg import get_lapack_funcs
    from scipy.linalg import schur as factorise

    left, right, right_sides = inputs
    solution = np.full(right_sides.shape, np.nan, right_sides.dtype)
    if solution.size == 0:
        return (solution,)
    (trsyl,) = get_lapack_funcs(("trsyl",), (right_sides,))
    kind = "real" if solution.dtype.kind == "f" else "complex"
    for place in np.ndindex(solution.shape[:-2]):
        parts = (left[place], right[place], right_sides[place])
        if not all(np.isfinite(part).all() for part in parts):
            continue
        (first, turn), (second, other) = factorise(left[place], kind), factorise(right[place], kind)
        middle, scale, failure = trsyl(first, second, turn.conj().T @ right_sides[place] @ other)
        if failure == 0 and scale:
            solution[place] = turn @ (middle / scale) @ other.conj().T
    return (solution,)
