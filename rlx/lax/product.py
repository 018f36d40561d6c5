"""Products of arrays: dot, dot_general, batch_matmul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.lax.operands import as_array, as_dtype, operands
from rlx.ops import contract

__all__ = ["DotDimensionNumbers", "batch_matmul", "dot", "dot_general"]

DotDimensionNumbers = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: DotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The product of two arrays, summed over contracting axes, for each index of the batch axes.

    Args:
      dimension_numbers: ((lhs contracting, rhs contracting), (lhs batch, rhs batch)) axes.
      precision: accepted for JAX's sake; products are always as exact as the dtype is.
      preferred_element_type: the dtype of the sum, at least as wide as that of the operands.

    Returns: an array with the batch axes, then lhs's other axes, then rhs's.

    >>> from rlx import lax
    >>> x, y = lax.full((2, 3), 1.0), lax.full((3, 4), 2.0)
    >>> lax.dot_general(x, y, (((1,), (0,)), ((), ()))).shape
    (2, 4)
    """
    x, y = map(as_array, operands("dot_general", lhs, rhs))
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = dimension_numbers
    numbers = (
        (_axes(lhs_sum, x.ndim), _axes(rhs_sum, y.ndim)),
        (_axes(lhs_batch, x.ndim), _axes(rhs_batch, y.ndim)),
    )
    preferred = None if preferred_element_type is None else as_dtype(preferred_element_type)
    return contract.dot_general(x, y, dimension_numbers=numbers, preferred_dtype=preferred)


def _axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    return tuple(int(a) + ndim * (a < 0) for a in axes)


def dot(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The product of vectors and matrices: sums over lhs's last and rhs's first axis.

    >>> from rlx import lax
    >>> lax.dot(lax.iota("float32", 3), lax.iota("float32", 3)).item()
    5.0
    """
    x, y = as_array(lhs), as_array(rhs)
    if dimension_numbers is None:
        if not (1 <= x.ndim <= 2 and 1 <= y.ndim <= 2 and x.shape[-1] == y.shape[0]):
            raise ShapeError(
                f"lax.dot got {x.type!r} and {y.type!r}.",
                "It takes vectors and matrices whose inner sizes agree; see dot_general.",
            )
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Array:
    """Products of matrices in the last two axes, for each index of the equal leading axes.

    >>> from rlx import lax
    >>> lax.batch_matmul(lax.full((5, 2, 3), 1.0), lax.full((5, 3, 4), 1.0)).shape
    (5, 2, 4)
    """
    x, y = as_array(lhs), as_array(rhs)
    if x.ndim < 2 or x.ndim != y.ndim:
        raise ShapeError(
            f"lax.batch_matmul got {x.type!r} and {y.type!r}.",
            "Both have the same number of axes, at least two; rlx.numpy.matmul broadcasts.",
        )
    lead = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (lead, lead)), precision)
