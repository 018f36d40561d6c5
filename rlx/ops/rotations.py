"""Eigenvalues and singular values by Jacobi's rotations, of all matrices of a batch at once.

In a sweep every pair of columns meets once, half of the columns with the other half in each round: the first column is
fixed, the others rotate by one position after each round, as in a tournament. Sweeps end when only rounding errors
remain, which takes six to ten of them, or after `_SWEEPS`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.types import TensorType
from rlx.ops.arithmetic import absolute, add, divide, is_finite, maximum, multiply, negative, square, subtract
from rlx.ops.columns import arranged, count_along, identities, largest, nan_where, one_batch
from rlx.ops.comparison import bitwise_and, bitwise_not, bitwise_or, equal, greater, less
from rlx.ops.contract import cast
from rlx.ops.conversion import select
from rlx.ops.families import full_like
from rlx.ops.matrices import (
    adjoint,
    conjugate,
    diagonal_of,
    hermitian_from_lower,
    product,
    real_dtype,
    real_part,
    take_rows,
    turned,
)
from rlx.ops.reduction import reduce_max, reduce_or, reduce_sum
from rlx.ops.reflections import squared_sizes
from rlx.ops.scan import scan_over
from rlx.ops.shape import concatenate, expand_dims, pad_zeros, reshape, slice_along
from rlx.ops.substitution import inverse_order
from rlx.ops.transcendental import sqrt
from rlx.ops.while_loop import loop_while
from rlx.trace.primitive import type_of

__all__ = ["rotate_columns", "rotate_hermitian"]

_SWEEPS = 30


class _Tournament:
    """The pairs of columns of each round: column i and column half + i; then all rotate."""

    def __init__(self, half: int) -> None:
        first, second = list(range(half)), list(range(half, 2 * half))
        self.rounds = 2 * half - 1
        moved = [*first[:1], *second[:1], *first[1:-1], *second[1:], *first[-1:]] if half > 1 else [*first, *second]
        self.source = np.array(moved)
        self.partner = (self.source + half) % (2 * half)

    def rotated(self, x: Any, own: Any, other: Any, axis: int) -> Any:
        """Each column (row) of x times its factor, plus its partner times the other factor; then rotated."""
        factors = [expand_dims(arranged(f, self.source, 1), (3 - axis,)) for f in (own, other)]
        columns = [arranged(x, order, axis) for order in (self.source, self.partner)]
        return add(*(multiply(c, f) for c, f in zip(columns, factors, strict=True)))

    @property
    def met(self) -> np.ndarray:
        """The new positions of the elements of a matrix that a round has zeroed."""
        return self.source[:, None] == self.partner[None, :]


def _rotation(first: Any, second: Any, beside: Any) -> tuple[Any, Any]:
    """The factors (own, other) of a rotation that diagonalises [[first, beside], [conj(beside), second]].

    The smaller of the two angles is used; no rotation if `beside` is zero.
    """
    dtype = type_of(beside).dtype
    size = absolute(beside)
    nothing = equal(size, 0)
    safe = select(nothing, 1, size)
    ratio = divide(subtract(second, first), multiply(safe, _number(safe, 2)))
    steep = absolute(ratio)
    tangent = divide(_number(steep, 1), add(steep, sqrt(add(_number(steep, 1), square(steep)))))
    tangent = select(nothing, 0, select(less(ratio, 0), negative(tangent), tangent))
    cosine = divide(_number(tangent, 1), sqrt(add(_number(tangent, 1), square(tangent))))
    sine = cast(multiply(cosine, tangent), dtype)
    sine = multiply(sine, divide(beside, cast(safe, dtype)))
    own = cast(cosine, dtype)
    return concatenate(own, own, axis=1), concatenate(negative(conjugate(sine)), sine, axis=1)


def _number(x: Any, value: float) -> Any:
    return full_like(TensorType((), type_of(x).dtype), value)


def _halves(x: Any, axis: int) -> tuple[Any, Any]:
    size = type_of(x).shape[axis]
    return slice_along(x, 0, size // 2, axis), slice_along(x, size // 2, size, axis)


def _scaled(matrices: Any) -> tuple[Any, Any, Any]:
    """Matrices scaled to the largest element 1 (or all 0), that element, and whether it is not finite (zeros there)."""
    scale = largest(matrices)
    failed = bitwise_not(is_finite(scale))
    nothing = bitwise_or(failed, equal(scale, 0))
    scale = select(nothing, 1, scale)
    return select(failed, 0, divide(matrices, cast(scale, type_of(matrices).dtype))), scale, failed


def _until_small(sweep: Any, initial: list[Any], limit: Any) -> list[Any]:
    """The state (..., the remaining part of each matrix) after sweeps that reduce the last part below a limit."""

    def goes_on(count: Any, *state: Any) -> Any:
        left = reduce_or(greater(state[-1], limit), axes=(0,))
        return bitwise_and(less(count, np.int32(_SWEEPS)), left)

    def next_one(count: Any, *state: Any) -> list[Any]:
        return [add(count, np.int32(1)), *sweep(*state[:-1])]

    _, *state = loop_while(goes_on, next_one, [np.int32(0), *initial])
    return state


def _unitary(x: Any) -> Any:
    """The nearest unitary matrices to x, after rounding errors of many rotations: a Newton step."""
    n = type_of(x).shape[2]
    eye = identities(x, 1, n, n)
    missing = multiply(subtract(eye, product(adjoint(x), x)), full_like(TensorType((), type_of(x).dtype), 0.5))
    return add(x, product(x, missing))


def _ranks(values: Any) -> Any:
    """The rank of each value in ascending order; equal values keep their order."""
    n = type_of(values).shape[1]
    own, others = expand_dims(values, (2,)), expand_dims(values, (1,))
    earlier = less(count_along(2, 1, 1, n), count_along(1, 1, n, 1))
    before = bitwise_or(less(others, own), bitwise_and(equal(others, own), earlier))
    return reduce_sum(select(before, np.int32(1), np.int32(0)), axes=(2,))


def _restored(values: Any, order: Any, scale: Any, failed: Any) -> Any:
    """Values in order, scaled back to the size of the matrices."""
    ordered = take_rows(expand_dims(values, (2,)), order)
    return reshape(nan_where(failed, multiply(ordered, scale)), shape=type_of(values).shape)


def _take_columns(x: Any, order: Any) -> Any:
    return turned(take_rows(turned(x), order))


# ------------------------------------------------------------- Hermitian matrices
def rotate_hermitian(a: Any, lower: bool) -> tuple[Any, Any]:
    """(w, v): ascending eigenvalues and eigenvectors; NaN for matrices that contain an infinity or NaN."""
    t = type_of(a)
    n = t.shape[-1]
    matrices = one_batch(hermitian_from_lower(a if lower else adjoint(a)), 2)
    batch, odd = type_of(matrices).shape[0], n % 2
    matrices, scale, failed = _scaled(matrices)
    # a column of zeros is the partner of an odd last column: no rotation
    matrices = pad_zeros(matrices, ((0, 0, 0), (0, odd, 0), (0, odd, 0)))
    size = n + odd
    plan = _Tournament(size // 2)

    def round_(x: Any, vectors: Any) -> list[Any]:
        first, second = _halves(real_part(diagonal_of(x)), 1)
        beside = diagonal_of(_halves(_halves(x, 1)[0], 2)[1])
        own, other = _rotation(first, second, beside)
        x = plan.rotated(x, own, other, 2)
        x = select(plan.met[None], 0, plan.rotated(x, conjugate(own), conjugate(other), 1))
        return [x, plan.rotated(vectors, own, other, 2)]

    def sweep(x: Any, vectors: Any) -> list[Any]:
        state, _ = scan_over(round_, [x, vectors], [], plan.rounds)
        return [*state, left_of(state[0])]

    def left_of(x: Any) -> Any:
        same = equal(count_along(1, 1, size, size), count_along(2, 1, size, size))
        return reduce_sum(select(same, 0, squared_sizes(x)), axes=(1, 2))

    whole = reduce_sum(squared_sizes(matrices), axes=(1, 2))
    limit = multiply(whole, _number(whole, float(np.finfo(type_of(whole).dtype).eps) ** 2))
    state = [matrices, identities(a, batch, size, size), left_of(matrices)]
    _, vectors, _ = _until_small(sweep, state, limit)
    vectors = _unitary(slice_along(slice_along(vectors, 0, n, 1), 0, n, 2))
    moved = product(slice_along(slice_along(matrices, 0, n, 1), 0, n, 2), vectors)
    values = reduce_sum(real_part(multiply(conjugate(vectors), moved)), axes=(1,))
    order = inverse_order(_ranks(values))
    values = _restored(values, order, scale, failed)
    vectors = nan_where(failed, _take_columns(vectors, order))
    return reshape(values, shape=t.shape[:-1]), reshape(vectors, shape=t.shape)


# ------------------------------------------------------------- singular values
def rotate_columns(a: Any, full: bool, vectors: bool, orthogonalise: Any) -> tuple[Any, ...]:
    """(u, s, vh), or (s,) without vectors: the columns of a wide matrix's adjoint are rotated until orthogonal.

    orthogonalise(x, full_matrices=...): (q, r) of matrices.
    """
    t = type_of(a)
    rows, columns = t.shape[-2:]
    if min(rows, columns) == 0:
        return _nothing_to_turn(a, full, vectors)
    if rows < columns:
        found = rotate_columns(adjoint(a), full, vectors, orthogonalise)
        return (adjoint(found[2]), found[1], adjoint(found[0])) if vectors else found
    matrices, scale, failed = _scaled(one_batch(a, 2))
    q = None
    if rows > columns:
        q, r = orthogonalise(matrices, full_matrices=full and vectors)
        matrices = slice_along(r, 0, columns, 1)
    # the columns of w = r^H u are orthogonal, of lengths s: r = u s (w / s)^H
    left = _unitary(_turns(adjoint(matrices)))
    turned_columns = product(adjoint(matrices), left)
    values = sqrt(reduce_sum(squared_sizes(turned_columns), axes=(1,)))
    order = inverse_order(_ranks(negative(values)))
    values = _restored(values, order, scale, failed)
    found = (values,)
    if vectors:
        # a zero column has no direction: reflections find one
        right, triangle = orthogonalise(_take_columns(turned_columns, order), full_matrices=False)
        right = multiply(right, expand_dims(_phases(diagonal_of(triangle)), (1,)))
        left = _within(q, _take_columns(left, order))
        found = (nan_where(failed, left), values, nan_where(failed, adjoint(right)))
    return tuple(reshape(x, shape=(*t.shape[:-2], *type_of(x).shape[1:])) for x in found)


def _within(q: Any, vectors: Any) -> Any:
    """q with its first columns rotated by unitary matrices; without a q the matrices themselves."""
    if q is None:
        return vectors
    columns, width = type_of(vectors).shape[2], type_of(q).shape[2]
    spanned = product(slice_along(q, 0, columns, 2), vectors)
    return concatenate(spanned, slice_along(q, columns, width, 2), axis=2) if width > columns else spanned


def _turns(x: Any) -> Any:
    """The unitary v for which the columns of x v are orthogonal."""
    batch, rows, n = type_of(x).shape
    odd = n % 2
    plan = _Tournament((n + odd) // 2)
    x = pad_zeros(x, ((0, 0, 0), (0, 0, 0), (0, odd, 0)))
    eps = float(np.finfo(real_dtype(type_of(x).dtype)).eps)
    kind = TensorType((batch,), real_dtype(type_of(x).dtype))

    def round_(x: Any, vectors: Any, left: Any) -> list[Any]:
        one, two = _halves(x, 2)
        first, second = (reduce_sum(squared_sizes(part), axes=(1,)) for part in (one, two))
        beside = reduce_sum(multiply(conjugate(one), two), axes=(1,))
        sizes = multiply(sqrt(first), sqrt(second))
        angle = divide(absolute(beside), select(equal(sizes, 0), 1, sizes))
        own, other = _rotation(first, second, beside)
        left = maximum(left, reduce_max(angle, axes=(1,)))
        return [plan.rotated(x, own, other, 2), plan.rotated(vectors, own, other, 2), left]

    def sweep(x: Any, vectors: Any) -> list[Any]:
        return scan_over(round_, [x, vectors, full_like(kind, 0)], [], plan.rounds)[0]

    state = [x, identities(x, batch, n + odd, n + odd), full_like(kind, 1)]
    _, vectors, _ = _until_small(sweep, state, full_like(kind, eps * rows**0.5))
    return slice_along(slice_along(vectors, 0, n, 1), 0, n, 2)


def _phases(x: Any) -> Any:
    """x / |x|, and 1 for 0."""
    size = absolute(x)
    nothing = equal(size, 0)
    return select(nothing, 1, divide(x, cast(select(nothing, 1, size), type_of(x).dtype)))


def _nothing_to_turn(a: Any, full: bool, vectors: bool) -> tuple[Any, ...]:
    t = type_of(a)
    rows, columns = t.shape[-2:]
    values = full_like(TensorType((*t.shape[:-2], 0), real_dtype(t.dtype)), 0)
    if not vectors:
        return (values,)
    sizes = (rows, columns) if full else (0, 0)

    def eye(*shape: int) -> Any:
        return reshape(identities(a, int(np.prod(t.shape[:-2])), *shape), shape=(*t.shape[:-2], *shape))

    return eye(rows, sizes[0]), values, eye(sizes[1], columns)
