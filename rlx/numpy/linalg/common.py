"""Helpers of the functions of rlx.numpy.linalg: operands, batches, Hermitian matrices."""

from __future__ import annotations

from typing import Any

from rlx.errors import ShapeError
from rlx.ir.types import broadcast_sizes
from rlx.numpy.promotion import broadcast_array, convert_to, inexact, promote_inexact
from rlx.ops.arithmetic import add, multiply
from rlx.ops.matrices import adjoint, hermitian_from_lower
from rlx.transforms.custom import custom_jvp

__all__ = ["aligned", "hermitian", "matrices", "read_triangle", "square"]


def matrices(value: Any, name: str) -> Any:
    """An operand as floating or complex matrices."""
    x = inexact(value, name)
    if x.ndim < 2:
        raise ShapeError(f"{name} got an array of shape {x.shape}.", "It needs two axes or more.")
    return convert_to(x, x.dtype) if x.weak_type else x


def square(value: Any, name: str) -> Any:
    """An operand as floating or complex square matrices."""
    x = matrices(value, name)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name} got an array of shape {x.shape}.", "The last two axes must have one size.")
    return x


def aligned(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Matrices of one dtype with equal batch axes."""
    left, right = promote_inexact(name, a, b)
    if left.ndim < 2 or right.ndim < 2:
        raise ShapeError(f"{name} got shapes {left.shape} and {right.shape}.", "Both need two axes or more.")
    try:
        batch = broadcast_sizes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"{name} got shapes {left.shape} and {right.shape}.", "The axes before the last two must broadcast."
        ) from None
    left = broadcast_array(left, batch + left.shape[-2:], name)
    right = broadcast_array(right, batch + right.shape[-2:], name)
    return (*(convert_to(x, x.dtype) if x.weak_type else x for x in (left, right)),)


def hermitian(x: Any) -> Any:
    """(x + x^H) / 2."""
    return multiply(add(x, adjoint(x)), 0.5)


@custom_jvp
def _from_lower(x: Any) -> Any:
    return hermitian_from_lower(x)


def _from_lower_tangent(primals: Any, tangents: Any) -> Any:
    return _from_lower(primals[0]), hermitian(tangents[0])


_from_lower.defjvp(_from_lower_tangent)


def read_triangle(x: Any, lower: bool) -> Any:
    """Hermitian matrices from one of their triangles.

    The derivative is the derivative by a whole Hermitian matrix: both triangles share it.
    """
    return _from_lower(x if lower else adjoint(x))
