"""Products of arrays: dot, dot_general, batch_matmul, scaled_dot."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from rlx.array import Array
from rlx.config import config
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import is_float, promote_dtypes
from rlx.lax.operands import as_array, as_dtype, operands
from rlx.lax.shape import convert_element_type, expand_dims, reshape
from rlx.numpy.placement import asks_for_parts, check_placement, sums_in_parts
from rlx.ops.arithmetic import multiply
from rlx.ops.families import broadcast_to
from rlx.ops.precision import product

__all__ = ["DotDimensionNumbers", "batch_matmul", "dot", "dot_general", "scaled_dot"]

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: DotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """The product of two arrays, summed over contracting axes, for each index of the batch axes.

    Args:
      dimension_numbers: ((lhs contracting, rhs contracting), (lhs batch, rhs batch)) axes.
      precision: a Precision, DotAlgorithm or preset, or a name; None is the switch default_matmul_precision.
        Results are at least as exact as it requires: narrower operands are widened to an algorithm's accumulation type,
        and float32 is rounded to tf32 if the precision is "high" or less and the device multiplies tf32 faster.
      preferred_element_type: the dtype of the result, at least as wide as the operands' dtype.
      out_sharding: a sharding, or a PartitionSpec under rlx.set_mesh. If it has unreduced axes, over which the
        contracting axes are divided, each device has its part of the sum.

    Returns: an array with the batch axes, then lhs's other axes, then rhs's. Operands of different dtypes give the
    promoted dtype.
    Raises: ShapeError, DtypeError for incompatible operands.

    >>> from rlx import lax
    >>> x, y = lax.full((2, 3), 1.0), lax.full((3, 4), 2.0)
    >>> lax.dot_general(x, y, (((1,), (0,)), ((), ()))).shape
    (2, 4)
    """
    preferred = None if preferred_element_type is None else as_dtype(preferred_element_type)
    check_placement(None, out_sharding)
    x, y = _factors(lhs, rhs, preferred)
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = dimension_numbers
    numbers = (
        (_axes(lhs_sum, x.ndim), _axes(rhs_sum, y.ndim)),
        (_axes(lhs_batch, x.ndim), _axes(rhs_batch, y.ndim)),
    )
    if asks_for_parts(out_sharding):
        in_parts = sums_in_parts().product_in_parts
        return in_parts("lax.dot_general", x, y, numbers, precision, preferred, out_sharding)
    return product(x, y, numbers, precision, preferred)


def _factors(lhs: Any, rhs: Any, preferred: Any) -> list[Array]:
    """Both operands in one dtype: other than elsewhere in rlx.lax they promote, floats to a preferred one."""
    x, y = as_array(lhs), as_array(rhs)
    if x.dtype == y.dtype or x.weak_type or y.weak_type:
        return [as_array(v) for v in operands("dot_general", lhs, rhs)]
    if preferred is not None and is_float(x.dtype) and is_float(y.dtype):
        common = preferred
    else:
        try:
            common, _ = promote_dtypes([(v.dtype, False) for v in (x, y)], config.default_float, config.default_int)
        except TypeError as error:
            raise DtypeError(
                f"lax.dot_general got {x.type!r} and {y.type!r}: {error}", "Convert one of them."
            ) from None
    return [convert_element_type(x, common), convert_element_type(y, common)]


def _axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    return tuple(operator.index(a) + ndim * (a < 0) for a in axes)


def dot(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
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
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


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
            "Both must have the same number of axes, at least two; rlx.numpy.matmul broadcasts.",
        )
    lead = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (lead, lead)), precision)


def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: Any = None,
) -> Array:
    """The product of arrays stored as narrow floats with a common scale for each block of elements.

    Args:
      lhs, rhs: arrays of floats, usually of 8 bits (the microscaling formats).
      lhs_scale, rhs_scale: factors: arrays of the operand's rank, whose sizes divide the
        operand's. None is 1.
      dimension_numbers: as for dot_general; by default matrices (..., m, k) and (..., k, n) are multiplied.
      preferred_element_type: the dtype of the result; bfloat16 if left out.

    >>> from rlx import lax
    >>> x, y = lax.full((1, 4), 1.0), lax.full((4, 1), 1.0)
    >>> scale = lax.reshape(lax.iota("float32", 2), (1, 2))
    >>> lax.scaled_dot(x, y, lhs_scale=scale, preferred_element_type="float32").item()
    2.0
    """
    x, y = as_array(lhs), as_array(rhs)
    result = as_dtype("bfloat16" if preferred_element_type is None else preferred_element_type)
    if not is_float(x.dtype) or not is_float(y.dtype):
        raise DtypeError(
            f"lax.scaled_dot got {x.dtype.name} and {y.dtype.name}.", "It takes floating arrays: convert first."
        )
    if dimension_numbers is None:
        lead = tuple(range(x.ndim - 2))
        dimension_numbers = (((x.ndim - 1,), (y.ndim - 2,)), (lead, lead))
    found = dot_general(_scaled(x, lhs_scale), _scaled(y, rhs_scale), dimension_numbers)
    return convert_element_type(found, result)


def _scaled(x: Array, scale: Any) -> Array:
    """The values in float32, each block multiplied by its factor."""
    wide = convert_element_type(x, "float32")
    if scale is None:
        return wide
    factor = convert_element_type(as_array(scale), "float32")
    if factor.ndim != x.ndim or any(not s or d % s for d, s in zip(x.shape, factor.shape, strict=True)):
        raise ShapeError(
            f"lax.scaled_dot got {x.type!r} with a scale of shape {factor.shape}.",
            "A scale must have as many axes as its operand, and sizes that divide the operand's.",
        )
    blocks = [n for d, s in zip(x.shape, factor.shape, strict=True) for n in (s, d // s)]
    spread = broadcast_to(expand_dims(factor, tuple(range(1, 2 * x.ndim, 2))), tuple(blocks))
    return multiply(wide, reshape(spread, x.shape))
