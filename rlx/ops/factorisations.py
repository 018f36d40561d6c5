"""Factorisations of matrices: cholesky, lu, qr, and products of Householder reflectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import TensorType, is_complex
from rlx.ops.arithmetic import add, divide, multiply, negative, subtract
from rlx.ops.contract import cast
from rlx.ops.elimination import factor_by_columns, factor_positive, follow_pivots
from rlx.ops.families import broadcast_to, full_like
from rlx.ops.library import LibraryPrimitive, as_real, samples_in
from rlx.ops.matrices import (
    INT32,
    adjoint,
    check_matrices,
    check_square,
    hermitian_from_lower,
    identity_like,
    lower_triangle,
    product,
    real_part,
    take_rows,
    turned,
    upper_triangle,
)
from rlx.ops.reflections import multiply_reflectors, orthogonalise, orthogonalise_by_size, pack_reflectors
from rlx.ops.shape import concatenate, pad_zeros, slice_along
from rlx.ops.solves import triangular_solve
from rlx.trace.primitive import Sample, Zero, primitive, type_of

__all__ = ["cholesky", "householder_product", "lu", "packed_qr", "pivoted_qr", "pivots_to_permutation", "qr"]


def _positive(*shape: int) -> np.ndarray:
    x = as_real(*shape)
    return np.asarray(x @ x.swapaxes(-1, -2) + np.eye(shape[-1]))


@primitive
class cholesky(LibraryPrimitive):
    """The lower triangular factor of Hermitian matrices; only the lower triangle is read.

    NaN for a matrix that is not positive definite. The derivative is with respect to the lower triangle: the
    tangent of an element above the diagonal is ignored.
    """

    multiple = False

    def type(self, a: TensorType) -> TensorType:
        check_square(self.name, a)
        return a.strong()

    def derivative(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        tangent = hermitian_from_lower(tangents[0])
        inner = triangular_solve(out, tangent, left_side=True)
        inner = triangular_solve(out, inner, left_side=False, transpose_a=True, conjugate_a=True)
        t = type_of(out)
        halves = add(identity_like(t), full_like(TensorType((), t.dtype, True), 1))
        return product(out, divide(lower_triangle(inner), broadcast_to(halves, t.shape)))

    def decomposition(self, a: Any) -> Any:
        """Computed column by column."""
        return factor_positive(a)

    def samples(self) -> Iterator[Sample]:
        yield from samples_in("f4", ([_positive(3, 3)], {}), ([_positive(2, 4, 4)], {}), ([np.zeros((0, 0))], {}))
        hermitian = _positive(3, 3) + 0.3j * (as_real(3, 3) - as_real(3, 3).T)
        for dtype in (np.complex128, np.complex64):
            yield Sample((hermitian.astype(dtype),), {})


@primitive
class lu(LibraryPrimitive):
    """(factors, pivots, permutation): L below the diagonal with ones on it, U on and above.

    pivots are the interchanges of rows, permutation is their result: x[permutation] == L @ U.
    """

    def type(self, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        check_matrices(self.name, a)
        batch, (rows, columns) = a.shape[:-2], a.shape[-2:]
        pivots = TensorType((*batch, min(rows, columns)), INT32)
        return a.strong(), pivots, TensorType((*batch, rows), INT32)

    def derivative(self, outs: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        factors, pivots, permutation = outs
        lower, upper = split_factors(factors)
        ordered = take_rows(tangents[0], permutation)
        inner = triangular_solve(lower, ordered, left_side=True, unit_diagonal=True)
        inner = triangular_solve(upper, inner, left_side=False, lower=False)
        tangent = add(
            product(lower, lower_triangle(inner, -1)),
            product(upper_triangle(inner), upper),
        )
        return tangent, Zero(type_of(pivots)), Zero(type_of(permutation))

    def decomposition(self, a: Any) -> tuple[Any, Any, Any]:
        """Computed column by column, with partial pivoting."""
        return factor_by_columns(a)

    def samples(self) -> Iterator[Sample]:
        return samples_in(
            "f4 c8 c16",
            ([as_real(3, 3)], {}),
            ([as_real(2, 3, 5)], {}),
            ([as_real(9, 2, 5, 3)], {}),
            ([np.zeros((2, 0, 3))], {}),
        )


def split_factors(factors: Any) -> tuple[Any, Any]:
    """Square L and U, the factors of a rectangle are padded with identities."""
    t = type_of(factors)
    rows, columns = t.shape[-2:]
    inner = min(rows, columns)
    lead = ((0, 0, 0),) * (t.ndim - 2)
    lower = lower_triangle(slice_along(factors, 0, inner, t.ndim - 1), -1)
    lower = pad_zeros(lower, (*lead, (0, 0, 0), (0, rows - inner, 0)))
    lower = add(lower, identity_like(type_of(lower)))
    upper = upper_triangle(slice_along(factors, 0, inner, t.ndim - 2))
    upper = pad_zeros(upper, (*lead, (0, columns - inner, 0), (0, 0, 0)))
    ends = np.diag((np.arange(columns) >= inner).astype(t.dtype))
    return lower, add(upper, ends) if columns > inner else upper


@primitive
class pivots_to_permutation(LibraryPrimitive):
    """The permutation of `rows` rows that the interchanges `pivots` make."""

    multiple = False

    def type(self, pivots: TensorType, *, rows: int) -> TensorType:
        if pivots.dtype != INT32:
            raise DtypeError(f"{self.name} got {pivots!r}.", "Pivots are int32.")
        if pivots.ndim < 1 or pivots.shape[-1] > rows:
            raise ShapeError(f"{self.name} got {pivots!r} for {rows} rows.", "There is at most one pivot for each row.")
        return TensorType((*pivots.shape[:-1], rows), INT32)

    def decomposition(self, pivots: Any, *, rows: int) -> Any:
        """Computed one interchange after the other."""
        return follow_pivots(pivots, rows)

    def samples(self) -> Iterator[Sample]:
        yield Sample((np.array([[2, 1, 2], [1, 2, 2]], np.int32),), {"rows": 4})


# ------------------------------------------------------------- qr
def _qr_types(name: str, a: TensorType, full: bool) -> tuple[TensorType, TensorType]:
    check_matrices(name, a)
    batch, (rows, columns) = a.shape[:-2], a.shape[-2:]
    inner = rows if full else min(rows, columns)
    return TensorType((*batch, rows, inner), a.dtype), TensorType((*batch, inner, columns), a.dtype)


def _qr_tangents(name: str, q: Any, r: Any, tangent: Any) -> tuple[Any, Any]:
    """Tangents of q and r, for a matrix of full rank whose q has no extra columns."""
    t = type_of(tangent)
    rows, columns = t.shape[-2:]
    if type_of(q).shape[-1] > columns:
        raise UnsupportedError(
            f"{name} has no derivative for a tall matrix with full_matrices=True.",
            'Use full_matrices=False (mode="reduced"): the other columns of q are arbitrary.',
        )
    last = t.ndim - 1
    inner_size = min(rows, columns)
    square, leading = slice_along(r, 0, inner_size, last), slice_along(tangent, 0, inner_size, last)
    scaled = triangular_solve(square, leading, left_side=False, lower=False)
    inner = product(adjoint(q), scaled)
    strict = lower_triangle(inner, -1)
    turn = subtract(strict, adjoint(strict))
    if is_complex(t.dtype):
        # the diagonal of r remains real
        imaginary = subtract(inner, cast(real_part(inner), t.dtype))
        turn = add(turn, multiply(identity_like(type_of(inner)), imaginary))
    q_tangent = add(product(q, subtract(turn, inner)), scaled)
    r_tangent = product(subtract(inner, turn), square)
    if columns > rows:
        rest = slice_along(tangent, rows, columns, last)
        known = product(adjoint(q), product(q_tangent, slice_along(r, rows, columns, last)))
        beside = add(product(adjoint(q), rest), negative(known))
        r_tangent = concatenate(r_tangent, beside, axis=last)
    return q_tangent, r_tangent


@primitive
class qr(LibraryPrimitive):
    """(q, r) with orthonormal columns in q and an upper triangular r; full_matrices: a square q."""

    def type(self, a: TensorType, *, full_matrices: bool) -> tuple[TensorType, TensorType]:
        return _qr_types(self.name, a, full_matrices)

    def derivative(self, outs: Any, primals: Sequence[Any], tangents: Sequence[Any], *, full_matrices: bool) -> Any:
        return _qr_tangents(self.name, *outs, tangents[0])

    def decomposition(self, a: Any, *, full_matrices: bool) -> tuple[Any, Any]:
        """Computed by Householder's reflections."""
        return orthogonalise(a, full_matrices, householder_product)

    def samples(self) -> Iterator[Sample]:
        return samples_in(
            "f4 c8 c16",
            ([as_real(4, 3)], {"full_matrices": False}),
            ([as_real(2, 3, 3)], {"full_matrices": True}),
            ([as_real(2, 4)], {"full_matrices": False}),
            ([np.zeros((3, 0))], {"full_matrices": False}),
        )


@primitive
class packed_qr(LibraryPrimitive):
    """(h, taus) as LAPACK packs a QR factorisation: r, and below it the reflectors that householder_product takes."""

    def type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        check_matrices(self.name, a)
        *batch, rows, columns = a.shape
        return a.strong(), TensorType((*batch, min(rows, columns)), a.dtype)

    def decomposition(self, a: Any) -> tuple[Any, Any]:
        """Computed one reflection after the other."""
        return pack_reflectors(a)

    def samples(self) -> Iterator[Sample]:
        return samples_in("f4 c8 c16", ([as_real(4, 3)], {}), ([as_real(2, 2, 3)], {}))


@primitive
class pivoted_qr(LibraryPrimitive):
    """(q, r, permutation) of matrices whose columns are ordered so that r's diagonal decreases."""

    def type(self, a: TensorType, *, full_matrices: bool) -> tuple[TensorType, TensorType, TensorType]:
        order = TensorType((*a.shape[:-2], *a.shape[-1:]), INT32)
        return (*_qr_types(self.name, a, full_matrices), order)

    def derivative(self, outs: Any, primals: Sequence[Any], tangents: Sequence[Any], *, full_matrices: bool) -> Any:
        q, r, permutation = outs
        ordered = turned(take_rows(turned(tangents[0]), permutation))
        return (*_qr_tangents(self.name, q, r, ordered), Zero(type_of(permutation)))

    def decomposition(self, a: Any, *, full_matrices: bool) -> tuple[Any, Any, Any]:
        """Computed by Householder's reflections, each for the largest remaining column."""
        return orthogonalise_by_size(a, full_matrices, householder_product)

    def samples(self) -> Iterator[Sample]:
        return samples_in(
            "f4 c8 c16",
            ([as_real(4, 3)], {"full_matrices": False}),
            ([as_real(2, 3, 3)], {"full_matrices": True}),
        )


@primitive
class householder_product(LibraryPrimitive):
    """The first columns of the product of the reflectors I - tau v v^H that `a` and `taus` pack."""

    multiple = False

    def type(self, a: TensorType, taus: TensorType) -> TensorType:
        check_matrices(self.name, a)
        check_matrices(self.name, a, taus, ndim=1)
        rows, columns = a.shape[-2:]
        if taus.shape[:-1] != a.shape[:-2] or taus.shape[-1] > columns or columns > rows:
            raise ShapeError(
                f"{self.name} got {a!r} and {taus!r}.", "It needs m >= n columns >= k taus, and equal batch axes."
            )
        return a.strong()

    def decomposition(self, a: Any, taus: Any) -> Any:
        """Computed one reflection after the other, from the last."""
        return multiply_reflectors(a, taus)

    def samples(self) -> Iterator[Sample]:
        packed = as_real(4, 3) * 0.3
        below = np.tril(packed, -1)
        taus = 2 / (1 + (below**2).sum(0))
        return samples_in("f4 c8 c16", ([packed, taus], {}), ([packed[None], taus[None, :2]], {}))
