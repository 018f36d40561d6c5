"""Eigenvalues and singular values, Schur and Hessenberg forms, square roots of matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.types import TensorType, is_complex
from rlx.ops.arithmetic import absolute, add, divide, multiply, subtract
from rlx.ops.comparison import equal
from rlx.ops.contract import cast
from rlx.ops.conversion import complex as complex_of
from rlx.ops.conversion import imag, real, select
from rlx.ops.factorisations import lu, qr
from rlx.ops.families import broadcast_to, full_like
from rlx.ops.library import LibraryPrimitive, as_real, samples_in
from rlx.ops.matrices import (
    INT32,
    adjoint,
    check_matrices,
    check_square,
    conjugate,
    diagonal_of,
    difference,
    hermitian_from_lower,
    identity_like,
    product,
    real_dtype,
    real_part,
)
from rlx.ops.reduction import argmax, reduce_sum
from rlx.ops.reflections import pack_hessenberg, pack_tridiagonal
from rlx.ops.rotations import rotate_columns, rotate_hermitian
from rlx.ops.shape import expand_dims, iota
from rlx.ops.solves import lu_solve, sylvester
from rlx.ops.stop_gradient import stop_gradient
from rlx.trace.primitive import Sample, primitive, type_of

__all__ = ["eig", "eigh", "hessenberg", "matrix_sqrt", "schur", "solve", "svd", "tridiagonal"]


def solve(a: Any, b: Any, transpose_a: bool = False, conjugate_a: bool = False) -> Any:
    """x with op(a) x = b for square matrices a, through one LU factorisation."""
    factors, _, permutation = lu(stop_gradient(a))
    return lu_solve(a, factors, permutation, b, transpose_a=transpose_a, conjugate_a=conjugate_a)


def _spread(*shape: int) -> np.ndarray:
    """Symmetric matrices with well separated eigenvalues."""
    x = as_real(*shape)
    return np.asarray(x + x.swapaxes(-1, -2) + np.diag(np.arange(shape[-1]) * 1.5))


def _inverse_differences(values: Any, dtype: np.dtype) -> Any:
    """1 / (values[j] - values[i]) for different i and j, 0 on the diagonal.

    Infinite for a repeated value: the vectors have no derivative there, and are NaN.
    """
    gaps = difference(values)
    t = type_of(gaps)
    eye = identity_like(t)
    return cast(subtract(divide(full_like(t, 1), add(gaps, eye)), eye), dtype)


@primitive
class eigh(LibraryPrimitive):
    """(w, v): ascending eigenvalues and eigenvectors of Hermitian matrices; only one triangle is read.

    The derivative is with respect to that triangle. Repeated eigenvalues: w has one (of a choice of vectors), v
    has none and is NaN.
    """

    def type(self, a: TensorType, *, lower: bool) -> tuple[TensorType, TensorType]:
        check_square(self.name, a)
        return TensorType(a.shape[:-1], real_dtype(a.dtype)), a.strong()

    def derivative(self, outs: Any, primals: Sequence[Any], tangents: Sequence[Any], *, lower: bool) -> Any:
        values, vectors = outs
        triangle = tangents[0] if lower else adjoint(tangents[0])
        inner = product(adjoint(vectors), hermitian_from_lower(triangle), vectors)
        turn = multiply(_inverse_differences(values, type_of(inner).dtype), inner)
        return real_part(diagonal_of(inner)), product(vectors, turn)

    def decomposition(self, a: Any, *, lower: bool) -> tuple[Any, Any]:
        """Computed by Jacobi's rotations."""
        return rotate_hermitian(a, lower)

    def samples(self) -> Iterator[Sample]:
        yield from samples_in(
            "f4",
            ([_spread(3, 3)], {"lower": True}),
            ([_spread(2, 4, 4)], {"lower": False}),
            ([np.zeros((0, 0))], {"lower": True}),
        )
        # LAPACK's phases of complex vectors differ from the derivative's
        hermitian = _spread(3, 3) + 0.2j * (as_real(3, 3) - as_real(3, 3).T)
        yield Sample((hermitian.astype(np.complex64),), {"lower": True})


@primitive
class svd(LibraryPrimitive):
    """(u, s, vh) with descending s; only (s,) without compute_uv.

    Repeated singular values: s has a derivative; the derivatives of u and vh omit the rotation of the vectors
    among themselves, which is arbitrary.
    """

    def type(self, a: TensorType, *, full_matrices: bool, compute_uv: bool) -> tuple[TensorType, ...]:
        check_matrices(self.name, a)
        batch, (rows, columns) = a.shape[:-2], a.shape[-2:]
        inner = min(rows, columns)
        values = TensorType((*batch, inner), real_dtype(a.dtype))
        if not compute_uv:
            return (values,)
        sizes = (rows, columns) if full_matrices else (inner, inner)
        left = TensorType((*batch, rows, sizes[0]), a.dtype)
        return left, values, TensorType((*batch, sizes[1], columns), a.dtype)

    def derivative(
        self, outs: Any, primals: Sequence[Any], tangents: Sequence[Any], *, full_matrices: bool, compute_uv: bool
    ) -> Any:
        rows, columns = type_of(primals[0]).shape[-2:]
        if full_matrices and compute_uv and rows != columns:
            raise UnsupportedError(
                "svd has no derivative for a rectangle with full_matrices=True.",
                "Use full_matrices=False: the other singular vectors are arbitrary.",
            )
        if not compute_uv:
            left, _, right = self.bind(primals[0], full_matrices=False, compute_uv=True)
            return (real_part(diagonal_of(product(adjoint(left), tangents[0], adjoint(right)))),)
        return _svd_tangents(*outs, tangents[0])

    def decomposition(self, a: Any, *, full_matrices: bool, compute_uv: bool) -> tuple[Any, ...]:
        """Computed by Jacobi's rotations of the columns."""
        return rotate_columns(a, full_matrices, compute_uv, qr)

    def samples(self) -> Iterator[Sample]:
        thin = {"full_matrices": False, "compute_uv": True}
        tall = as_real(4, 3) + np.diag([3.0, 1.5, 0, 0])[:, :3]
        yield from samples_in(
            "f4 c8",
            ([tall], thin),
            ([tall[None, :3]], thin | {"full_matrices": True}),
            ([tall.T], thin),
            ([np.stack([tall, tall * 1.4])], thin | {"compute_uv": False}),
        )
        yield Sample((tall + 0.3j * as_real(4, 3, seed=0.9),), thin | {"compute_uv": False})


def _svd_tangents(u: Any, s: Any, vh: Any, tangent: Any) -> tuple[Any, Any, Any]:
    """Tangents of the thin decomposition."""
    t = type_of(tangent)
    rows, columns = t.shape[-2:]
    v = adjoint(vh)
    inner = product(adjoint(u), tangent, v)
    kind = type_of(inner)
    row, column = expand_dims(s, (t.ndim - 2,)), expand_dims(s, (t.ndim - 1,))
    gaps = multiply(add(row, column), subtract(row, column))
    weights = cast(_inverse_where_nonzero(gaps), t.dtype)
    by_column, by_row = multiply(cast(row, t.dtype), inner), multiply(cast(column, t.dtype), inner)
    u_turn = multiply(weights, add(by_column, adjoint(by_column)))
    v_turn = multiply(weights, add(by_row, adjoint(by_row)))
    if is_complex(t.dtype):
        # only the product of the phases of a pair of vectors is determined: u takes all of it
        skew = multiply(subtract(inner, adjoint(inner)), full_like(TensorType((), t.dtype, True), 0.5))
        scaled = multiply(skew, cast(_inverse_where_nonzero(row), t.dtype))
        u_turn = add(u_turn, multiply(identity_like(kind), scaled))
    du, dv = product(u, u_turn), product(v, v_turn)
    if rows > columns:
        du = add(du, _outside(u, product(tangent, v), row))
    if columns > rows:
        dv = add(dv, _outside(v, product(adjoint(tangent), u), row))
    return du, real_part(diagonal_of(inner)), adjoint(dv)


def _outside(vectors: Any, moved: Any, scale: Any) -> Any:
    """The part of the tangent that moves the vectors out of their span."""
    rest = subtract(moved, product(vectors, adjoint(vectors), moved))
    return divide(rest, broadcast_to(cast(scale, type_of(rest).dtype), type_of(rest).shape))


def _inverse_where_nonzero(x: Any) -> Any:
    zero = equal(x, 0)
    return select(zero, 0, divide(full_like(type_of(x), 1), select(zero, 1, x)))


def _vector_tangents(values: Any, vectors: Any, inner: Any) -> Any:
    """Tangents of eigenvectors that have length 1 and a real largest component, as LAPACK scales them.

    inner: the matrix's tangent in the basis of the vectors.
    """
    turn = multiply(_inverse_differences(values, type_of(inner).dtype), inner)
    change = product(vectors, turn)
    t = type_of(change)
    axis = t.ndim - 2
    if t.shape[axis] == 0:
        return change
    stretch = reduce_sum(real(multiply(conjugate(vectors), change)), axes=(axis,))
    largest = expand_dims(argmax(absolute(vectors), axis=axis, index_dtype=INT32), (axis,))
    chosen = equal(iota(type=TensorType(t.shape, INT32), axis=axis), largest)
    side = reduce_sum(select(chosen, imag(change), 0), axes=(axis,))
    phase = divide(side, reduce_sum(select(chosen, real(vectors), 0), axes=(axis,)))
    return subtract(change, multiply(vectors, expand_dims(complex_of(stretch, phase), (axis,))))


@primitive
class eig(LibraryPrimitive):
    """(w, [left], [right]): eigenvalues and eigenvectors of general matrices, all complex.

    Derivatives of w and of the vectors, which have length 1 and a real largest component.
    """

    def type(self, a: TensorType, *, compute_left: bool, compute_right: bool) -> tuple[TensorType, ...]:
        check_square(self.name, a)
        dtype = np.result_type(a.dtype, np.complex64)
        vectors = (TensorType(a.shape, dtype),) * (compute_left + compute_right)
        return (TensorType(a.shape[:-1], dtype), *vectors)

    def derivative(
        self, outs: Any, primals: Sequence[Any], tangents: Sequence[Any], *, compute_left: bool, compute_right: bool
    ) -> Any:
        values = outs[0]
        tangent = cast(tangents[0], type_of(values).dtype)
        if compute_right:
            vectors = outs[-1]
        else:
            vectors = self.bind(primals[0], compute_left=False, compute_right=True)[1]
        inner = solve(vectors, product(tangent, vectors))
        found = [diagonal_of(inner)]
        if compute_left:
            # left vectors are the right ones of the adjoint matrix
            opposite = solve(outs[1], product(adjoint(tangent), outs[1]))
            found.append(_vector_tangents(conjugate(values), outs[1], opposite))
        if compute_right:
            found.append(_vector_tangents(values, vectors, inner))
        return tuple(found)

    def samples(self) -> Iterator[Sample]:
        values = {"compute_left": False, "compute_right": False}
        spread = as_real(3, 3) + np.diag([0, 2.0, 5.0])
        yield from samples_in(
            "f4 c8 c16",
            ([spread], values),
            ([np.stack([spread, spread.T * 0.7])], values),
            ([np.zeros((0, 0))], values),
        )
        for dtype in (np.float32, np.complex64):
            # the phases of a pair of conjugate vectors would change with every rounding error
            vectors = _spread(3, 3).astype(dtype)
            yield Sample((vectors,), values | {"compute_right": True})
            yield Sample((vectors,), {"compute_left": True, "compute_right": True})


# ------------------------------------------------------------- forms without a derivative
@primitive
class schur(LibraryPrimitive):
    """(t, z) with a = z t z^H: t upper triangular, for a real matrix with blocks of two on the diagonal."""

    def type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        check_square(self.name, a)
        return a.strong(), a.strong()

    def samples(self) -> Iterator[Sample]:
        for dtype in ("f8", "f4", "c16", "c8"):
            # well separated real eigenvalues: blocks of two would change with every rounding error
            yield Sample((_spread(2, 3, 3).astype(dtype),), {})


@primitive
class hessenberg(LibraryPrimitive):
    """(packed, taus): the Hessenberg form, below it its reflectors."""

    def type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        check_square(self.name, a)
        return a.strong(), TensorType((*a.shape[:-2], max(a.shape[-1] - 1, 0)), a.dtype)

    def decomposition(self, a: Any) -> tuple[Any, Any]:
        """Computed by Householder's reflections."""
        return pack_hessenberg(a)

    def samples(self) -> Iterator[Sample]:
        for dtype in ("f8", "f4", "c16", "c8"):
            yield Sample((as_real(2, 4, 4).astype(dtype),), {})


@primitive
class tridiagonal(LibraryPrimitive):
    """(packed, diagonal, off_diagonal, taus): the tridiagonal form of Hermitian matrices."""

    def type(self, a: TensorType, *, lower: bool) -> tuple[TensorType, TensorType, TensorType, TensorType]:
        check_square(self.name, a)
        off = (*a.shape[:-2], max(a.shape[-1] - 1, 0))
        real = real_dtype(a.dtype)
        return a.strong(), TensorType(a.shape[:-1], real), TensorType(off, real), TensorType(off, a.dtype)

    def decomposition(self, a: Any, *, lower: bool) -> tuple[Any, Any, Any, Any]:
        """Computed by Householder's reflections."""
        return pack_tridiagonal(a, lower)

    def samples(self) -> Iterator[Sample]:
        for dtype in ("f8", "f4", "c16", "c8"):
            yield Sample((_spread(2, 4, 4).astype(dtype),), {"lower": True})


@primitive
class matrix_sqrt(LibraryPrimitive):
    """The principal square root of complex matrices; NaN if there is none."""

    multiple = False

    def type(self, a: TensorType) -> TensorType:
        check_square(self.name, a)
        return a.strong()

    def derivative(self, root: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return sylvester(root, root, tangents[0])

    def samples(self) -> Iterator[Sample]:
        for dtype in (np.complex128, np.complex64):
            yield Sample((as_real(3, 3).astype(dtype),), {})
