"""Batches of matrices indexed by loop counters: the common part of the decompositions of library routines.

A batch has one axis in front here; results of reductions keep the reduced axis, with size 1.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rlx.ir.types import TensorType, is_complex
from rlx.ops.arithmetic import absolute, maximum
from rlx.ops.comparison import not_equal
from rlx.ops.conversion import imag, real, select
from rlx.ops.dynamic import dynamic_slice, dynamic_update_slice
from rlx.ops.families import full_like
from rlx.ops.gather import gather
from rlx.ops.index_windows import GatherDimensionNumbers
from rlx.ops.matrices import INT32
from rlx.ops.reduction import keep_axes, reduce_max, reduce_sum
from rlx.ops.shape import iota, reshape
from rlx.trace.primitive import type_of

__all__ = [
    "arranged",
    "at",
    "counted",
    "count_along",
    "identities",
    "largest",
    "nan_where",
    "one_batch",
    "placed",
    "reached",
    "size_of",
    "total",
    "zeros",
]


def one_batch(x: Any, inner: int) -> Any:
    """x with one axis before the last `inner` ones."""
    shape = type_of(x).shape
    cut = len(shape) - inner
    return reshape(x, shape=(prod(shape[:cut]), *shape[cut:]))


def zeros(x: Any, *shape: int) -> Any:
    """Zeros of x's dtype."""
    return full_like(TensorType(shape, type_of(x).dtype), 0)


def identities(x: Any, batch: int, rows: int, columns: int) -> Any:
    """Matrices of x's dtype with ones on the main diagonal."""
    numbers = count_along(0, rows, 1), count_along(1, 1, columns)
    ones = full_like(TensorType((batch, rows, columns), type_of(x).dtype), 1)
    return select(reshape(not_equal(*numbers), shape=(1, rows, columns)), 0, ones)


# ------------------------------------------------------------- numbers along axes
def counted(length: int) -> Any:
    """0, 1, 2, ...: the numbers of a loop's steps."""
    return count_along(0, length)


def count_along(axis: int, *shape: int) -> Any:
    """int32 numbers that count along an axis."""
    return iota(type=TensorType(shape, INT32), axis=axis)


def at(x: Any, number: Any, axis: int) -> Any:
    """The part of x at an index along an axis."""
    shape = type_of(x).shape
    starts = [number if a == axis else 0 for a in range(len(shape))]
    return dynamic_slice(x, *starts, sizes=tuple(1 if a == axis else n for a, n in enumerate(shape)))


def placed(x: Any, part: Any, number: Any, axis: int) -> Any:
    """x with the part at an index along an axis replaced."""
    starts = [number if a == axis else 0 for a in range(type_of(x).ndim)]
    return dynamic_update_slice(x, part, *starts)


def arranged(x: Any, order: np.ndarray, axis: int) -> Any:
    """The parts of x along an axis in a known order."""
    shape = type_of(x).shape
    others = tuple(a for a in range(len(shape)) if a != axis)
    return gather(
        x,
        order.astype(np.int32)[:, None],
        dimension_numbers=GatherDimensionNumbers(others, (axis,), (axis,)),
        slice_sizes=tuple(1 if a == axis else n for a, n in enumerate(shape)),
        mode="promise_in_bounds",
        fill_value=None,
    )


# ------------------------------------------------------------- reductions
def total(x: Any, axis: int) -> Any:
    """The sum along an axis."""
    return keep_axes(reduce_sum(x, axes=(axis,)), type_of(x).shape, (axis,))


def reached(x: Any, axis: int) -> Any:
    """The greatest number along an axis."""
    return keep_axes(reduce_max(x, axes=(axis,)), type_of(x).shape, (axis,))


def size_of(x: Any) -> Any:
    """A magnitude that neither overflows nor needs a root: the larger part's for complex numbers."""
    return maximum(absolute(real(x)), absolute(imag(x))) if is_complex(type_of(x).dtype) else absolute(x)


def largest(x: Any) -> Any:
    """The largest `size_of` in each matrix of a batch, as matrices of one element."""
    return reached(reached(size_of(x), 1), 2)


def nan_where(failed: Any, x: Any) -> Any:
    """x, or NaN."""
    return select(failed, full_like(TensorType((), type_of(x).dtype), np.nan), x)
