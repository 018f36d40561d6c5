"""QR, Hessenberg and tridiagonal forms by Householder's reflections I - tau v v^H, column by column.

All matrices of a batch are processed together, and packed like LAPACK's: the result, and below it the reflectors.
"""

from __future__ import annotations

from math import prod
from typing import Any

from rlx.ir.types import TensorType, is_complex
from rlx.ops.arithmetic import add, divide, is_finite, maximum, multiply, negative, square, subtract
from rlx.ops.columns import at, count_along, counted, identities, largest, one_batch, reached, size_of, total, zeros
from rlx.ops.comparison import bitwise_and, equal, greater, greater_equal
from rlx.ops.contract import cast
from rlx.ops.conversion import imag, real, select
from rlx.ops.families import broadcast_to, full_like, move_axis
from rlx.ops.matrices import (
    INT32,
    conjugate,
    diagonal_of,
    hermitian_from_lower,
    lower_triangle,
    real_part,
    take_rows,
    turned,
    upper_triangle,
)
from rlx.ops.reduction import argmax
from rlx.ops.scan import scan_over
from rlx.ops.shape import concatenate, expand_dims, reshape, reverse, slice_along
from rlx.ops.sorting import take_along
from rlx.ops.transcendental import sqrt
from rlx.trace.primitive import type_of

__all__ = [
    "multiply_reflectors",
    "orthogonalise",
    "orthogonalise_by_size",
    "pack_hessenberg",
    "pack_reflectors",
    "pack_tridiagonal",
    "squared_sizes",
]


def squared_sizes(x: Any) -> Any:
    """|x|^2, which is real."""
    return add(square(real(x)), square(imag(x))) if is_complex(type_of(x).dtype) else square(x)


def _reflect(x: Any, number: Any, rows: Any) -> tuple[Any, Any, Any]:
    """(beta, tau, v) as in LAPACK's larfg: (I - tau v v^H)^H maps x's elements from `number` on to beta, 0, ...

    v is 1 at the number and 0 before it. tau is 0 if there is nothing to do.
    """
    dtype = type_of(x).dtype
    alpha, below = at(x, number, 1), select(greater(rows, number), x, 0)
    first = real_part(alpha)
    rest = reached(size_of(below), 1)
    nothing = equal(rest, 0)
    if is_complex(dtype):
        nothing = bitwise_and(nothing, equal(imag(alpha), 0))
    scale = maximum(rest, size_of(alpha))
    scale = select(nothing, 1, scale)
    active = divide(select(greater_equal(rows, number), x, 0), cast(scale, dtype))
    norm = multiply(scale, sqrt(total(squared_sizes(active), 1)))
    beta = select(nothing, first, select(greater_equal(first, 0), negative(norm), norm))
    turned_beta = cast(beta, dtype)
    safe = select(nothing, 1, turned_beta)
    tau = select(nothing, 0, divide(subtract(turned_beta, alpha), safe))
    v = divide(below, select(nothing, 1, subtract(alpha, turned_beta)))
    return turned_beta, tau, select(equal(rows, number), 1, v)


def _reflected(x: Any, tau: Any, v: Any) -> Any:
    """(I - tau v v^H) x."""
    column = expand_dims(v, (2,))
    return subtract(x, multiply(multiply(expand_dims(tau, (2,)), column), total(multiply(conjugate(column), x), 1)))


def pack_reflectors(a: Any) -> tuple[Any, Any]:
    """R above its reflectors, and their taus."""
    shape = type_of(a).shape
    packed, taus = _packed(one_batch(a, 2))
    return reshape(packed, shape=shape), reshape(taus, shape=(*shape[:-2], type_of(taus).shape[1]))


def _packed(a: Any) -> tuple[Any, Any]:
    batch, rows, columns = type_of(a).shape
    steps = min(rows, columns)
    (packed,), (taus,) = scan_over(lambda x, number: _step(x, number, 0), [a], [counted(steps)], steps)
    return packed, turned(taus)


def _step(packed: Any, number: Any, below: int, two_sided: bool = False) -> tuple[Any, Any]:
    """The column that a reflection zeroes further than `below` its diagonal; and tau. The reflection is also applied to
    later columns; `two_sided`: also from the right."""
    batch, rows, columns = type_of(packed).shape
    across, which = count_along(2, 1, 1, columns), count_along(1, 1, rows)
    first = add(number, full_like(TensorType((), INT32), below)) if below else number
    x = reshape(at(packed, number, 2), shape=(batch, rows))
    beta, tau, v = _reflect(x, first, which)
    turned_rows = packed
    if two_sided:
        scaled = multiply(expand_dims(tau, (2,)), total(multiply(packed, expand_dims(v, (1,))), 2))
        turned_rows = subtract(packed, multiply(scaled, expand_dims(conjugate(v), (1,))))
    reflected = _reflected(turned_rows, conjugate(tau), v)
    column = select(equal(which, first), beta, select(greater(which, first), v, x))
    later, now = greater(across, number), equal(across, number)
    packed = select(later, reflected, select(now, expand_dims(column, (2,)), packed))
    return packed, reshape(tau, shape=(batch,))


def pack_hessenberg(a: Any) -> tuple[Any, Any]:
    """The Hessenberg forms Q^H a Q of square matrices above the reflectors of Q, and their taus."""
    shape = type_of(a).shape
    steps = max(shape[-1] - 1, 0)
    packed, taus = one_batch(a, 2), zeros(a, 0, prod(shape[:-2]))

    def step(packed: Any, number: Any) -> tuple[Any, Any]:
        return _step(packed, number, 1, two_sided=True)

    if steps:
        (packed,), (taus,) = scan_over(step, [packed], [counted(steps)], steps)
    return reshape(packed, shape=shape), reshape(turned(taus), shape=(*shape[:-2], steps))


def pack_tridiagonal(a: Any, lower: bool) -> tuple[Any, Any, Any, Any]:
    """The Hessenberg forms of Hermitian matrices, packed like LAPACK's: one triangle is read, the other one is
    unchanged; the diagonals, the off-diagonals, and the taus."""
    order = type_of(a).shape[-1]
    last = type_of(a).ndim - 1
    if not lower:  # the same, with rows and columns reversed
        packed, *rest = pack_tridiagonal(reverse(a, axes=(last - 1, last)), True)
        ends = [reverse(x, axes=(last - 1,)) for x in rest]
        return reverse(packed, axes=(last - 1, last)), ends[0], ends[1], ends[2]
    packed, taus = pack_hessenberg(hermitian_from_lower(a))
    beside = slice_along(slice_along(packed, 1, order, last - 1), 0, order - 1, last)
    whole = add(lower_triangle(packed), upper_triangle(a, 1))
    return whole, real_part(diagonal_of(packed)), real_part(diagonal_of(beside)), taus


def multiply_reflectors(a: Any, taus: Any) -> Any:
    """The first columns of the product of the reflectors below the diagonals of a."""
    packed = one_batch(a, 2)
    batch, rows, columns = type_of(packed).shape
    factors = turned(one_batch(taus, 1))
    steps = type_of(factors).shape[0]
    which = count_along(1, 1, rows)

    def step(found: Any, column: Any, tau: Any, number: Any) -> list[Any]:
        v = select(greater(which, number), column, select(equal(which, number), 1, zeros(column, batch, rows)))
        return [_reflected(found, expand_dims(tau, (1,)), v)]

    found = identities(a, batch, rows, columns)
    if steps:
        columns_of = move_axis(slice_along(packed, 0, steps, 2), 2, 0)
        (found,), _ = scan_over(step, [found], [columns_of, factors, counted(steps)], steps, reverse=True)
    return reshape(found, shape=type_of(a).shape)


def orthogonalise(a: Any, full: bool, product: Any) -> tuple[Any, Any]:
    """(q, r), `product` multiplying reflectors; full: a square q."""
    matrices = one_batch(a, 2)
    batch, rows, columns = type_of(matrices).shape
    taus = zeros(a, batch, 0)
    if min(rows, columns):
        matrices, taus = _packed(matrices)
    return _factors(a, matrices, taus, full, product)


def orthogonalise_by_size(a: Any, full: bool, product: Any) -> tuple[Any, Any, Any]:
    """(q, r, order): `orthogonalise` of a's columns in an order in which the remaining column norms decrease."""
    matrices = one_batch(a, 2)
    batch, rows, columns = type_of(matrices).shape
    across = count_along(1, 1, columns)
    size = largest(matrices)
    scale = cast(select(bitwise_and(greater(size, 0), is_finite(size)), size, 1), type_of(a).dtype)

    def step(packed: Any, order: Any, number: Any) -> list[Any]:
        left = select(greater_equal(count_along(1, 1, rows, 1), number), divide(packed, scale), 0)
        sizes = select(
            greater_equal(across, number), reshape(total(squared_sizes(left), 1), shape=(batch, columns)), -1
        )
        chosen = reshape(argmax(sizes, axis=1, index_dtype=INT32), shape=(batch, 1))
        exchanged = select(equal(across, number), chosen, select(equal(across, chosen), number, across))
        packed, tau = _step(turned(take_rows(turned(packed), exchanged)), number, 0)
        return [packed, take_along(order, exchanged, 1), tau]

    steps = min(rows, columns)
    order = broadcast_to(across, (batch, columns))
    taus = zeros(a, 0, batch)
    if steps:
        (matrices, order), (taus,) = scan_over(step, [matrices, order], [counted(steps)], steps)
    q, r = _factors(a, matrices, turned(taus), full, product)
    return q, r, reshape(order, shape=(*type_of(a).shape[:-2], columns))


def _factors(a: Any, matrices: Any, taus: Any, full: bool, product: Any) -> tuple[Any, Any]:
    """(q, r) of a packed form."""
    batch, rows, columns = type_of(matrices).shape
    lead, inner = type_of(a).shape[:-2], min(rows, columns)
    wanted = rows if full else inner
    reflectors = slice_along(matrices, 0, inner, 2)
    if wanted > inner:
        reflectors = concatenate(reflectors, zeros(a, batch, rows, wanted - inner), axis=2)
    q = product(reflectors, taus)
    r = slice_along(upper_triangle(matrices), 0, wanted, 1)
    return reshape(q, shape=(*lead, rows, wanted)), reshape(r, shape=(*lead, wanted, columns))
