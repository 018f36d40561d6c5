"""Linear systems: triangular, from LU factors, tridiagonal, and Sylvester's equation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.types import TensorType
from rlx.ops.arithmetic import add, multiply, negative
from rlx.ops.families import add_values, full_like, move_axis, to_front
from rlx.ops.library import LibraryPrimitive, as_real, samples_in
from rlx.ops.matrices import (
    INT32,
    check_matrices,
    check_square,
    conjugate,
    lower_triangle,
    product,
    turned,
    upper_triangle,
)
from rlx.ops.shape import concatenate, expand_dims, reshape, slice_along
from rlx.ops.substitution import solve_factored, solve_triangular, solve_tridiagonal
from rlx.routines import LIBRARY_ROUTINES
from rlx.trace.primitive import Linear, Sample, Zero, primitive, type_of

__all__ = ["lu_solve", "sylvester", "triangular_solve", "tridiagonal_solve"]


class Solve(LibraryPrimitive):
    """Solves op(a) x = b: linear in the last operand, whose cotangent is another solve.

    A subclass defines `moved(x, primals, tangents, **params)`, the tangent of op(a) times x (None if
    the system has no tangent), and `adjoint_solve(cotangent, *inputs, **params)`.
    """

    multiple = False
    shares_system = True

    def derivative(self, x: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        right_side = tangents[-1]
        moved = self.moved(x, primals, tangents, **params)
        if moved is not None:
            right_side = add_values(right_side, negative(moved))
        if isinstance(right_side, Zero):
            return Zero(type_of(x))
        return self.bind(*primals[:-1], right_side, **params)

    def moved(self, x: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        """The tangent of op(a), times x."""
        raise NotImplementedError(self.name)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        """One system for many right sides: a batch adds columns (or rows)."""
        if not self.shares_system or any(d is not None for d in dims[:-1]):
            return super().batch(size, inputs, dims, **params)
        left = params.get("left_side", True)
        fronted = to_front(inputs[-1], dims[-1], size)
        # after the matrix's batch axes, next to the axis of the right sides
        place = type_of(fronted).ndim - (1 if left else 3)
        shape = type_of(beside := move_axis(fronted, 0, place)).shape
        at = place - 1 if left else place
        merged = reshape(beside, shape=(*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))
        return reshape(self.bind(*inputs[:-1], merged, **params), shape=shape), place

    def transpose(self, cotangent: Any, *inputs: Any, **params: Any) -> tuple[Any, ...]:
        """The transposed system solved for the cotangent."""
        if any(isinstance(x, Linear) for x in inputs[:-1]):
            return super().transpose(cotangent, *inputs, **params)
        if isinstance(cotangent, Zero):
            return (*(None,) * (len(inputs) - 1), Zero(inputs[-1].type))
        return (*(None,) * (len(inputs) - 1), self.adjoint_solve(cotangent, *inputs, **params))

    def adjoint_solve(self, cotangent: Any, *inputs: Any, **params: Any) -> Any:
        """The cotangent of the right side."""
        raise NotImplementedError(self.name)


def _operation(a: Any, transpose_a: bool, conjugate_a: bool) -> Any:
    """op(a) as a value."""
    x = conjugate(a) if conjugate_a else a
    return turned(x) if transpose_a else x


def _check_right_side(name: str, a: TensorType, b: TensorType, axis: int = -2) -> None:
    """Raise ShapeError unless the right sides fit the square systems."""
    check_matrices(name, a, b)
    check_square(name, a)
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[axis]:
        raise ShapeError(
            f"{name} got a system {a!r} and right sides {b!r}.",
            "Their batch axes must be equal, and the systems as large as the right sides.",
        )


@primitive
class triangular_solve(Solve):
    """x with op(a) x = b, or with x op(a) = b unless left_side, for triangular matrices a.

    op conjugates and transposes as the params say. Only the triangle named by `lower` is read; not
    its diagonal, taken to be ones, if unit_diagonal.
    """

    def bind(
        self,
        *args: Any,
        left_side: bool,
        lower: bool = True,
        transpose_a: bool = False,
        conjugate_a: bool = False,
        unit_diagonal: bool = False,
    ) -> Any:
        return super().bind(
            *args,
            left_side=left_side,
            lower=lower,
            transpose_a=transpose_a,
            conjugate_a=conjugate_a,
            unit_diagonal=unit_diagonal,
        )

    __call__ = bind

    def type(self, a: TensorType, b: TensorType, *, left_side: bool, **params: Any) -> TensorType:
        _check_right_side(self.name, a, b, -2 if left_side else -1)
        return b.strong()

    def moved(self, x: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        tangent = tangents[0]
        if isinstance(tangent, Zero):
            return None
        offset = int(params["unit_diagonal"])
        triangle = lower_triangle(tangent, -offset) if params["lower"] else upper_triangle(tangent, offset)
        change = _operation(triangle, params["transpose_a"], params["conjugate_a"])
        return product(change, x) if params["left_side"] else product(x, change)

    def adjoint_solve(self, cotangent: Any, a: Any, b: Any, **params: Any) -> Any:
        return self.bind(a, cotangent, **params | {"transpose_a": not params["transpose_a"]})

    def decomposition(self, a: Any, b: Any, **params: Any) -> Any:
        """Computed by substitution."""
        return solve_triangular(a, b, **params)

    def samples(self) -> Iterator[Sample]:
        def params(*names: str) -> dict[str, bool]:
            known = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
            return {name: name in names for name in known}

        return samples_in(
            "f4 c8 c16",
            ([as_real(3, 3), as_real(3, 2)], params("left_side", "lower")),
            ([as_real(2, 3, 3), as_real(2, 3, 2)], params("left_side", "transpose_a", "conjugate_a")),
            ([as_real(2, 3, 3), as_real(2, 2, 3)], params("lower", "unit_diagonal")),
            ([as_real(3, 3), as_real(2, 3)], params("transpose_a")),
            ([as_real(9, 3, 3), as_real(9, 3, 1)], params("left_side", "lower", "transpose_a")),
            ([np.zeros((0, 0)), np.zeros((0, 2))], params("left_side")),
        )


@primitive
class lu_solve(Solve):
    """x with op(a) x = b from a's LU factors and permutation, which are treated as functions of a.

    The derivative with respect to a is another solve with the same factors; tangents of the factors are
    ignored. So there are no samples: the result does not change if only a is moved.
    """

    routine = "lu_solve"

    def type(
        self, a: TensorType, factors: TensorType, permutation: TensorType, b: TensorType, **params: Any
    ) -> TensorType:
        _check_right_side(self.name, a, b)
        if factors.strong() != a.strong() or permutation != TensorType(a.shape[:-1], INT32):
            raise ShapeError(f"{self.name} got factors {factors!r} and {permutation!r} of {a!r}.", "Use lu(a).")
        return b.strong()

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """The routine takes only the factors."""
        return LIBRARY_ROUTINES["lu_solve"](arrays[1:], params)[0]

    def moved(self, x: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        if isinstance(tangents[0], Zero):
            return None
        return product(_operation(tangents[0], params["transpose_a"], params["conjugate_a"]), x)

    def adjoint_solve(self, cotangent: Any, *inputs: Any, **params: Any) -> Any:
        return self.bind(*inputs[:-1], cotangent, **params | {"transpose_a": not params["transpose_a"]})

    def decomposition(self, a: Any, factors: Any, permutation: Any, b: Any, **params: Any) -> Any:
        """Two triangular systems."""
        return solve_factored(triangular_solve, factors, permutation, b, **params)

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        """The kernel takes only the factors."""
        b = values[-1]
        if b.type.size == 0:
            return k.full(b.type.strong(), 0)
        return k.library("lu_solve", values[1:], (b.type.strong(),), params)[0]


@primitive
class tridiagonal_solve(Solve):
    """x with a x = b for tridiagonal matrices.

    The diagonals have the size of the system: the first element of `below` and the last of `above`
    are not read.
    """

    def type(self, below: TensorType, diagonal: TensorType, above: TensorType, b: TensorType) -> TensorType:
        check_matrices(self.name, b)
        check_matrices(self.name, b, below, diagonal, above, ndim=1)
        if not below.shape == diagonal.shape == above.shape == b.shape[:-1]:
            raise ShapeError(
                f"{self.name} got diagonals {below!r}, {diagonal!r}, {above!r} and right sides {b!r}.",
                "The diagonals need the shape of the right sides without their last axis.",
            )
        return b.strong()

    def moved(self, x: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        below, diagonal, above, _ = tangents
        terms: list[Any] = []
        for tangent, step in ((below, 1), (diagonal, 0), (above, -1)):
            if not isinstance(tangent, Zero):
                column = expand_dims(tangent, (type_of(tangent).ndim,))
                # elements that are not read have no part in a product: their cotangent is 0 beside a NaN
                terms.append(_shifted(multiply(_shifted(column, -step, -2), x), step, -2))
        if not terms:
            return None
        total = terms[0]
        for term in terms[1:]:
            total = add(total, term)
        return total

    def adjoint_solve(self, cotangent: Any, below: Any, diagonal: Any, above: Any, b: Any) -> Any:
        return self.bind(_shifted(above, 1, -1), diagonal, _shifted(below, -1, -1), cotangent)

    def decomposition(self, below: Any, diagonal: Any, above: Any, b: Any) -> Any:
        """Computed by elimination with interchanges."""
        return solve_tridiagonal(below, diagonal, above, b)

    def samples(self) -> Iterator[Sample]:
        below, above = as_real(4, 4)[1], as_real(4, 4)[3]
        diagonal = as_real(4, 4)[0] + 3
        many = [np.stack([v, v * 0.8]) for v in (below, diagonal, above)]
        return samples_in(
            "f4 c8 c16",
            ([below, diagonal, above, as_real(4, 2)], {}),
            ([*many, as_real(2, 4, 3)], {}),
            ([below[:1], diagonal[:1], above[:1], as_real(1, 2)], {}),
        )


def _shifted(x: Any, step: int, axis: int) -> Any:
    """x shifted by one position along an axis (back if step is -1), filled with zero."""
    t = type_of(x)
    axis += t.ndim
    size = t.shape[axis]
    if step == 0 or size == 0:
        return x
    edge = full_like(t.update(shape=(*t.shape[:axis], 1, *t.shape[axis + 1 :])), 0)
    if step == 1:
        return concatenate(edge, slice_along(x, 0, size - 1, axis), axis=axis)
    return concatenate(slice_along(x, 1, size, axis), edge, axis=axis)


@primitive
class sylvester(Solve):
    """x with a x + x b = c; NaN where a and -b have an eigenvalue in common."""

    shares_system = False

    def type(self, a: TensorType, b: TensorType, c: TensorType) -> TensorType:
        check_matrices(self.name, a, b, c)
        check_square(self.name, a, b)
        sizes = (a.shape[-1], b.shape[-1])
        if a.shape[:-2] != c.shape[:-2] or b.shape[:-2] != c.shape[:-2] or c.shape[-2:] != sizes:
            raise ShapeError(
                f"{self.name} got {a!r}, {b!r} and {c!r}.", "c must have the rows of a and the columns of b."
            )
        return c.strong()

    def moved(self, x: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        left, right, _ = tangents
        first = None if isinstance(left, Zero) else product(left, x)
        second = None if isinstance(right, Zero) else product(x, right)
        if first is None or second is None:
            return second if first is None else first
        return add(first, second)

    def adjoint_solve(self, cotangent: Any, a: Any, b: Any, c: Any) -> Any:
        return self.bind(turned(a), turned(b), cotangent)

    def samples(self) -> Iterator[Sample]:
        return samples_in(
            "f4 c8 c16",
            ([as_real(3, 3), as_real(2, 2, seed=0.7), as_real(3, 2)], {}),
            ([as_real(2, 2, 2), as_real(2, 3, 3), as_real(2, 2, 3)], {}),
        )
