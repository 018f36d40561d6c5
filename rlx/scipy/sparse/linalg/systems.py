"""Common parts of the iterative solvers: trees of arrays as vectors, operators, and the derivative of a solution."""

from __future__ import annotations

import functools
import operator as operators
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array, is_array, is_array_or_numpy
from rlx.errors import InputTypeError, ShapeError, TreeMismatchError
from rlx.ir.types import is_complex
from rlx.numpy.promotion import convert_to, float_of, operand, promote, promote_inexact, result_of
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = [
    "Iterated",
    "LinearSystem",
    "Operator",
    "dtype_of",
    "inner",
    "norm",
    "plus",
    "solved",
    "squared_norm",
    "times",
    "tolerated",
    "unspoiled",
]

Operator = Callable[[Any], Any]


# ------------------------------------------------------------------ trees as vectors
def plus(x: Any, scale: Any, y: Any) -> Any:
    """x + scale * y."""
    return tree.map(lambda a, b: a + _scaled(scale, b), x, y)


def times(scale: Any, x: Any) -> Any:
    """scale * x."""
    return tree.map(lambda a: _scaled(scale, a), x)


def _scaled(scale: Any, x: Any) -> Any:
    """A product that keeps the dtype of x: a leaf may be narrower than the scalars of the iteration."""
    if is_array(scale) and is_complex(scale.dtype) and not is_complex(x.dtype):
        scale = jnp.real(scale)
    return convert_to(scale, x.dtype) * x


def _sum(values: Any) -> Any:
    return functools.reduce(operators.add, values)


def inner(x: Any, y: Any) -> Array:
    """The inner product, x conjugated."""
    return _sum(jnp.vdot(a, b) for a, b in zip(tree.leaves(x), tree.leaves(y), strict=True))


def squared_norm(x: Any) -> Array:
    """The sum of squared absolute values."""
    return _sum(jnp.sum(jnp.square(jnp.real(a)) + jnp.square(jnp.imag(a))) for a in tree.leaves(x))


def norm(x: Any) -> Array:
    """The square root of `squared_norm`."""
    return jnp.sqrt(squared_norm(x))


def dtype_of(x: Any) -> np.dtype:
    """The dtype that holds all leaves."""
    return result_of(*tree.leaves(x))[0]


# ------------------------------------------------------------------ arguments
def _operator(name: str, what: str, value: Any) -> Operator:
    """The product with a matrix as a function."""
    if callable(value):
        return value
    shape = getattr(value, "shape", None)
    if not hasattr(value, "__matmul__") or shape is None:
        raise InputTypeError(
            f"{name} got {what}={value!r:.60}.", "Pass a matrix as an array, or a function that multiplies by it."
        )
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ShapeError(f"{name} got {what} of shape {tuple(shape)}.", "It takes a square matrix.")
    if is_array_or_numpy(value):
        matrix = as_array(value)
        return lambda x: jnp.matmul(matrix, x)
    return lambda x: value @ x


class LinearSystem(NamedTuple):
    """A linear system A x = b, where to start, and a preconditioner."""

    multiply: Operator
    right: Any
    start: Any
    precondition: Operator | None
    size: int

    @classmethod
    def of(cls, name: str, A: Any, b: Any, x0: Any, M: Any) -> LinearSystem:
        """The checked arguments of a solver; integers become floats."""
        multiply = _operator(name, "A", A)
        precondition = None if M is None else _operator(name, "M", M)
        if hasattr(A, "dtype") and is_array_or_numpy(b):  # an array or a sparse matrix
            b = promote(name, b, jnp.zeros((), A.dtype))[0]
        right = tree.map(lambda v: promote_inexact(name, v)[0], b)
        if x0 is None:
            start = tree.map(jnp.zeros_like, right)
        else:
            _check_alike(name, x0, right)
            start = tree.map(lambda v, r: convert_to(as_array(operand(v, name)), r.dtype), x0, right)
        return cls(multiply, right, start, precondition, sum(v.size for v in tree.leaves(right)))

    def conditioned(self, x: Any) -> Any:
        """x multiplied by the preconditioner."""
        return x if self.precondition is None else self.precondition(x)


def _check_alike(name: str, x0: Any, right: Any) -> None:
    if tree.structure(x0) != tree.structure(right):
        raise TreeMismatchError(
            f"{name} got x0 of structure {tree.structure(x0)} for b of {tree.structure(right)}.",
            "Pass x0 with the structure of b.",
        )
    shapes = [[jnp.shape(v) for v in tree.leaves(x)] for x in (x0, right)]
    if shapes[0] != shapes[1]:
        raise ShapeError(f"{name} got x0 of shapes {shapes[0]} for b of {shapes[1]}.", "Pass x0 with b's shapes.")


# ------------------------------------------------------------------ the solution
class Iterated(NamedTuple):
    """The result of an iteration: x, the residual b - A x, and the number of steps."""

    x: Any
    residual: Any
    count: Any


Iteration = Callable[[LinearSystem], Iterated]


def solved(system: LinearSystem, iterate: Iteration, symmetric: bool = False) -> tuple[Any, Array, Array]:
    """The solution that `iterate` finds, with the derivative of the linear system; the number of its steps, and the
    norm of its residual."""

    def solve(multiply: Operator, right: Any) -> Any:
        found = iterate(system._replace(multiply=multiply, right=right))
        x = unspoiled(found.x, found.residual)
        return tree.map(lambda v, r: convert_to(v, r.dtype), x, right), (found.count, norm(found.residual))

    found, (count, residual) = lax.custom_linear_solve(
        system.multiply, system.right, solve, solve, symmetric=symmetric, has_aux=True
    )
    x = tree.map(lambda v, r: convert_to(v, v.dtype, r.weak_type), found, system.right)
    return x, count, residual


def unspoiled(x: Any, residual: Any) -> Any:
    """x, or NaN where the residual has become NaN: the iteration ended there, and not because it had converged."""
    spoiled = jnp.isnan(squared_norm(residual))
    return tree.map(lambda v: jnp.where(spoiled, convert_to(np.nan, v.dtype), v), x)


def tolerated(right: Any, tol: Any, atol: Any) -> Array:
    """The square of the norm of a residual that is small enough."""
    squared = squared_norm(right)
    return jnp.maximum(jnp.square(convert_to(tol, float_of(squared.dtype))) * squared, jnp.square(atol))
