"""Cholesky and LU factors, and permutations, column by column for all matrices of a batch at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ops.arithmetic import divide, multiply, subtract
from rlx.ops.columns import at, count_along, counted, nan_where, one_batch, placed, reached, total, zeros
from rlx.ops.comparison import bitwise_and, equal, greater, greater_equal, not_equal
from rlx.ops.contract import cast
from rlx.ops.conversion import select
from rlx.ops.families import broadcast_to, move_axis
from rlx.ops.matrices import conjugate, diagonal_of, lower_triangle, real_part, take_rows, turned
from rlx.ops.reduction import reduce_min, reduce_or, reduce_sum
from rlx.ops.scan import scan_over
from rlx.ops.shape import expand_dims, reshape, transpose
from rlx.ops.substitution import inverse_order, pivot_measure
from rlx.ops.transcendental import sqrt
from rlx.trace.primitive import type_of

__all__ = ["factor_by_columns", "factor_positive", "follow_pivots"]


def factor_positive(a: Any) -> Any:
    """The Cholesky factors: each column is the matrix's, minus the contribution of the previous columns."""
    matrices = lower_triangle(one_batch(a, 2))
    batch, order, _ = type_of(matrices).shape
    rows = count_along(1, 1, order)

    def step(found: Any, column: Any, number: Any) -> list[Any]:
        # found: the columns one after another, zero while unknown
        products = multiply(found, conjugate(at(found, number, 2)))
        rest = subtract(column, reduce_sum(products, axes=(0,)))
        squared = real_part(at(rest, number, 1))
        root = sqrt(select(greater(squared, 0), squared, np.nan))
        root = cast(root, type_of(rest).dtype)
        values = select(greater(rows, number), divide(rest, root), select(equal(rows, number), root, 0))
        return [placed(found, expand_dims(values, (0,)), number, 0)]

    columns = move_axis(matrices, 2, 0)
    (found,), _ = scan_over(step, [zeros(a, order, batch, order)], [columns, counted(order)], order)
    factors = transpose(found, permutation=(1, 2, 0))
    roots = diagonal_of(factors)
    failed = reduce_or(not_equal(roots, roots), axes=(1,))
    return reshape(lower_triangle(nan_where(expand_dims(failed, (1, 2)), factors)), shape=type_of(a).shape)


def factor_by_columns(a: Any) -> tuple[Any, Any, Any]:
    """LU factors with partial pivoting, with pivots and permutation.

    Rows keep their positions until the end: only each row's place in the order changes.
    """
    matrices = one_batch(a, 2)
    batch, rows, columns = type_of(matrices).shape
    steps = min(rows, columns)
    behind, which = count_along(2, 1, 1, columns), count_along(1, 1, rows)

    def step(packed: Any, places: Any, number: Any) -> list[Any]:
        column = reshape(at(packed, number, 2), shape=(batch, rows))
        measure = pivot_measure(column)
        measure = select(not_equal(measure, measure), -1, measure)  # LAPACK's search skips NaN
        measure = select(greater_equal(places, number), measure, -2)
        best = equal(measure, reached(measure, 1))
        chosen = expand_dims(reduce_min(select(best, places, rows), axes=(1,)), (1,))
        is_pivot = equal(places, chosen)
        places = select(is_pivot, number, select(equal(places, number), chosen, places))
        row = take_rows(packed, total(select(is_pivot, which, 0), 1))
        pivot = reshape(at(row, number, 2), shape=(batch, 1))
        below = greater(places, number)
        divides = bitwise_and(below, not_equal(pivot, 0))
        factors = expand_dims(select(divides, divide(column, pivot), column), (2,))
        changes = bitwise_and(expand_dims(below, (2,)), greater(behind, number))
        updated = select(changes, subtract(packed, multiply(factors, row)), packed)
        packed = select(equal(behind, number), factors, updated)
        return [packed, places, reshape(chosen, shape=(batch,))]

    places = broadcast_to(which, (batch, rows))
    pivots = zeros(places, 0, batch)
    if steps:
        (matrices, places), (pivots,) = scan_over(step, [matrices, places], [counted(steps)], steps)
    order = inverse_order(places)
    lead = type_of(a).shape[:-2]
    return (
        reshape(take_rows(matrices, order), shape=type_of(a).shape),
        reshape(turned(pivots), shape=(*lead, steps)),
        reshape(order, shape=(*lead, rows)),
    )


def follow_pivots(pivots: Any, rows: int) -> Any:
    """The permutations that result from interchanges of rows."""
    flat = one_batch(pivots, 1)
    batch, steps = type_of(flat).shape
    which = count_along(1, 1, rows)

    def step(order: Any, other: Any, number: Any) -> list[Any]:
        here, there = equal(which, number), equal(which, expand_dims(other, (1,)))
        first, second = (total(select(chosen, order, 0), 1) for chosen in (here, there))
        return [select(there, first, select(here, second, order))]

    order = broadcast_to(which, (batch, rows))
    if steps:
        (order,), _ = scan_over(step, [order], [turned(flat), counted(steps)], steps)
    return reshape(order, shape=(*type_of(pivots).shape[:-1], rows))
