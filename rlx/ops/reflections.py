"""QR by Householder's reflections I - tau v v^H, column by column for all matrices of a batch at once."""

from __future__ import annotations

from typing import Any

from rlx.ir.types import is_complex
from rlx.ops.arithmetic import add, divide, maximum, multiply, negative, square, subtract
from rlx.ops.columns import at, count_along, counted, identities, one_batch, reached, size_of, total, zeros
from rlx.ops.comparison import bitwise_and, equal, greater, greater_equal
from rlx.ops.contract import cast
from rlx.ops.conversion import imag, real, select
from rlx.ops.families import move_axis
from rlx.ops.matrices import conjugate, real_part, turned, upper_triangle
from rlx.ops.scan import scan_over
from rlx.ops.shape import concatenate, expand_dims, reshape, slice_along
from rlx.ops.transcendental import sqrt
from rlx.trace.primitive import type_of

__all__ = ["multiply_reflectors", "orthogonalise", "pack_reflectors", "squared_sizes"]


def squared_sizes(x: Any) -> Any:
    """|x|^2, which is real."""
    return add(square(real(x)), square(imag(x))) if is_complex(type_of(x).dtype) else square(x)


def _reflect(x: Any, number: Any, rows: Any) -> tuple[Any, Any, Any]:
    """(beta, tau, v) as LAPACK's larfg has them: (I - tau v v^H)^H maps x's elements from `number` on to beta, 0, ...

    v is 1 at the number and 0 before it. tau is 0 where there is nothing to do.
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
    """R above the reflectors that make it, and their taus."""
    shape = type_of(a).shape
    packed, taus = _packed(one_batch(a, 2))
    return reshape(packed, shape=shape), reshape(taus, shape=(*shape[:-2], type_of(taus).shape[1]))


def _packed(a: Any) -> tuple[Any, Any]:
    batch, rows, columns = type_of(a).shape
    steps = min(rows, columns)
    across, which = count_along(2, 1, 1, columns), count_along(1, 1, rows)

    def step(packed: Any, number: Any) -> list[Any]:
        x = reshape(at(packed, number, 2), shape=(batch, rows))
        beta, tau, v = _reflect(x, number, which)
        reflected = _reflected(packed, conjugate(tau), v)
        column = select(equal(which, number), beta, select(greater(which, number), v, x))
        later, now = greater(across, number), equal(across, number)
        packed = select(later, reflected, select(now, expand_dims(column, (2,)), packed))
        return [packed, reshape(tau, shape=(batch,))]

    (packed,), (taus,) = scan_over(step, [a], [counted(steps)], steps)
    return packed, turned(taus)


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
    lead, inner = type_of(a).shape[:-2], min(rows, columns)
    wanted = rows if full else inner
    taus = zeros(a, batch, 0)
    if inner:
        matrices, taus = _packed(matrices)
    reflectors = slice_along(matrices, 0, inner, 2)
    if wanted > inner:
        reflectors = concatenate(reflectors, zeros(a, batch, rows, wanted - inner), axis=2)
    q = product(reflectors, taus)
    r = slice_along(upper_triangle(matrices), 0, wanted, 1)
    return reshape(q, shape=(*lead, rows, wanted)), reshape(r, shape=(*lead, wanted, columns))
