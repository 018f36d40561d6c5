"""Triangular and tridiagonal systems by substitution: loops over their rows, for all systems of a batch at once."""

from __future__ import annotations

from typing import Any

from rlx.ir.types import is_complex
from rlx.ops.arithmetic import absolute, add, divide, multiply, negative, subtract
from rlx.ops.columns import count_along, counted, nan_where, one_batch, placed, zeros
from rlx.ops.comparison import equal, greater_equal
from rlx.ops.conversion import imag, real, select
from rlx.ops.families import move_axis
from rlx.ops.matrices import conjugate, diagonal_of, lower_triangle, take_rows, turned, upper_triangle
from rlx.ops.reduction import reduce_or, reduce_sum
from rlx.ops.scan import scan_over
from rlx.ops.shape import concatenate, expand_dims, reshape, slice_along
from rlx.trace.primitive import type_of

__all__ = ["inverse_order", "pivot_measure", "solve_factored", "solve_triangular", "solve_tridiagonal"]


def solve_triangular(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Any:
    """Solve with the primitive's params: every case becomes op(a) x = b, from the first row or from the last."""
    matrices = one_batch(conjugate(a) if conjugate_a else a, 2)
    right_sides = one_batch(b if left_side else turned(b), 2)
    if transpose_a == left_side:  # x op(a) = b is op(a)^T x^T = b^T
        matrices, lower = turned(matrices), not lower
    known = lower_triangle(matrices, -1) if lower else upper_triangle(matrices, 1)
    batch, order, columns = type_of(right_sides).shape

    def step(found: Any, row: Any, pivot: Any, wanted: Any, number: Any) -> list[Any]:
        # `found` is zero where rows are not solved yet
        rest = subtract(wanted, reduce_sum(multiply(expand_dims(turned(row), (2,)), found), axes=(0,)))
        return [placed(found, expand_dims(rest if unit_diagonal else divide(rest, pivot), (0,)), number, 0)]

    rows, pivots = move_axis(known, 1, 0), expand_dims(turned(diagonal_of(matrices)), (2,))
    xs = [rows, pivots, move_axis(right_sides, 1, 0), counted(order)]
    (found,), _ = scan_over(step, [zeros(b, order, batch, columns)], xs, order, reverse=not lower)
    solution = move_axis(found, 0, 1)
    return reshape(solution if left_side else turned(solution), shape=type_of(b).shape)


def inverse_order(order: Any) -> Any:
    """The inverse permutations of a batch."""
    count, size = type_of(order).shape
    matches = equal(expand_dims(order, (1,)), count_along(1, 1, size, 1))
    return reduce_sum(select(matches, count_along(2, count, size, size), 0), axes=(2,))


def solve_factored(
    triangular: Any, factors: Any, permutation: Any, b: Any, transpose_a: bool = False, conjugate_a: bool = False
) -> Any:
    """x with op(a) x = b from LU factors, by a solver of triangular systems."""
    op = {"transpose_a": transpose_a, "conjugate_a": conjugate_a, "left_side": True}

    def through_lower(x: Any) -> Any:
        return triangular(factors, x, lower=True, unit_diagonal=True, **op)

    def through_upper(x: Any) -> Any:
        return triangular(factors, x, lower=False, unit_diagonal=False, **op)

    if not transpose_a:
        return through_upper(through_lower(take_rows(b, permutation)))
    back = reshape(inverse_order(one_batch(permutation, 1)), shape=type_of(permutation).shape)
    return take_rows(through_lower(through_upper(b)), back)


def pivot_measure(x: Any) -> Any:
    """LAPACK's magnitude for choosing pivots."""
    return add(absolute(real(x)), absolute(imag(x))) if is_complex(type_of(x).dtype) else absolute(x)


def solve_tridiagonal(below: Any, diagonal: Any, above: Any, b: Any) -> Any:
    """Elimination with row interchanges, which fill a second diagonal above; NaN for a singular system of several."""
    shape = type_of(b).shape
    order = shape[-2]
    if order == 1:
        return divide(b, expand_dims(diagonal, (len(shape) - 1,)))
    # systems along the last axis of the diagonals, with the columns of right sides next to it
    lows, pivots, highs = (turned(one_batch(x, 1)) for x in (below, diagonal, above))
    right_sides = move_axis(one_batch(b, 2), 1, 0)
    batch, columns = type_of(pivots).shape[1], shape[-1]
    last = zeros(b, 1, batch)
    highs = concatenate(slice_along(highs, 0, order - 1, 0), last, axis=0)  # the last one is not read

    def column(x: Any) -> Any:
        return expand_dims(x, (1,))

    def eliminate(
        pivot: Any, high: Any, wanted: Any, low: Any, next_pivot: Any, next_high: Any, next_wanted: Any
    ) -> list[Any]:
        stays = greater_equal(pivot_measure(pivot), pivot_measure(low))
        first, second = select(stays, pivot, low), select(stays, low, pivot)
        singular = equal(first, 0)
        factor = select(singular, 0, divide(second, select(singular, 1, first)))
        upper, other = select(stays, high, next_pivot), select(stays, next_pivot, high)
        upper_wanted, other_wanted = (
            select(column(stays), wanted, next_wanted),
            select(column(stays), next_wanted, wanted),
        )
        return [
            subtract(other, multiply(factor, upper)),
            select(stays, next_high, negative(multiply(factor, next_high))),
            subtract(other_wanted, multiply(column(factor), upper_wanted)),
            first,
            upper,
            select(stays, 0, next_high),
            upper_wanted,
        ]

    def rest(x: Any) -> Any:
        return slice_along(x, 1, order, 0)

    def one(x: Any) -> Any:
        return reshape(slice_along(x, 0, 1, 0), shape=type_of(x).shape[1:])

    ends, reduced = scan_over(
        eliminate,
        [one(pivots), one(highs), one(right_sides)],
        [rest(lows), rest(pivots), rest(highs), rest(right_sides)],
        order - 1,
    )
    ends = [expand_dims(ends[0], (0,)), last, last, expand_dims(ends[2], (0,))]
    rows = [concatenate(x, end, axis=0) for x, end in zip(reduced, ends, strict=True)]

    def substitute(after: Any, second: Any, pivot: Any, high: Any, higher: Any, wanted: Any) -> list[Any]:
        known = add(multiply(column(high), after), multiply(column(higher), second))
        found = divide(subtract(wanted, known), column(pivot))
        return [found, after, found]

    nothing = zeros(b, batch, columns)
    _, (solution,) = scan_over(substitute, [nothing, nothing], rows, order, reverse=True)
    singular = reduce_or(equal(rows[0], 0), axes=(0,))
    return reshape(nan_where(expand_dims(singular, (1, 2)), move_axis(solution, 0, 1)), shape=shape)
