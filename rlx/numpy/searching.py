"""Searching sorted arrays: searchsorted, digitize, interp."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import is_complex, is_inexact
from rlx.numpy.floats import isnan
from rlx.numpy.index_dtypes import index_dtype
from rlx.numpy.lookups import take
from rlx.numpy.manipulation import ravel
from rlx.numpy.promotion import (
    canonical_axis,
    fill,
    inexact,
    operand,
    promote,
    promote_inexact,
    scalar_array,
)
from rlx.numpy.rounding import remainder
from rlx.ops import arithmetic, comparison
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.ops.sorting import sort
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["digitize", "interp", "searchsorted"]


def _precedes(x: Any, y: Any) -> Any:
    """x < y in the order of sort: NaN last, complex numbers by their real, then imaginary parts."""
    if is_complex(x.dtype):
        (x_real, x_imag), (y_real, y_imag) = ((arithmetic.real(v), arithmetic.imag(v)) for v in (x, y))
        level = comparison.bitwise_not(_precedes(y_real, x_real))
        below = comparison.bitwise_and(level, _precedes(x_imag, y_imag))
        return comparison.bitwise_or(_precedes(x_real, y_real), below)
    before = comparison.less(x, y)
    if not is_inexact(x.dtype):
        return before
    return comparison.bitwise_or(before, comparison.bitwise_and(isnan(y), comparison.bitwise_not(isnan(x))))


def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan", axis: int = 0
) -> Array:
    """The positions at which values can be inserted into a sorted array so that it stays sorted.

    Args: a: 1-d array in the order of sort; v: values; side: "left" (before equal elements) or
    "right"; sorter: indices that sort a; axis: the only axis of a. Returns: an integer array of v's shape.
    Raises: ShapeError unless a is 1-d; AxisError for another axis; ValueError for another side.

    >>> import rlx.numpy as jnp
    >>> jnp.searchsorted(jnp.array([1, 2, 4]), 3).item()
    2
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted has no side {side!r}: use 'left' or 'right'.")
    array, values = promote("searchsorted", a, v)
    if array.ndim != 1:
        raise ShapeError(f"searchsorted got an array of shape {array.shape} to search.", "It must be 1-d.")
    canonical_axis(axis, 1, "searchsorted")
    if sorter is not None:
        array = take(array, sorter, mode="clip")
    size = array.shape[0]
    dtype = index_dtype(size)
    low = fill(values.shape, 0, dtype)
    if size == 0:
        return low
    high = fill(values.shape, size, dtype)
    one = scalar_array(1, dtype, True)
    for _ in range(size.bit_length()):
        open_ = comparison.less(low, high)
        middle = comparison.shift_right_logical(arithmetic.add(low, high), one)
        found = take(array, middle, mode="clip")
        after = _precedes(found, values) if side == "left" else comparison.bitwise_not(_precedes(values, found))
        after = comparison.bitwise_and(after, open_)
        low, high = (
            select(after, arithmetic.add(middle, one), low),
            select(comparison.bitwise_or(after, comparison.bitwise_not(open_)), high, middle),
        )
    return low


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Array:
    """The number of each value's bin.

    Args: x: array; bins: 1-d array of edges, ascending or descending; right: whether bins include
    their right edge. Returns: an integer array of x's shape. Raises: ShapeError unless bins is 1-d.

    >>> import rlx.numpy as jnp
    >>> jnp.digitize(jnp.array([0.5, 1.5]), jnp.array([0.0, 1.0, 2.0]))
    Array([1, 2], dtype=int32)
    """
    edges = as_array(operand(bins, "digitize"))
    if edges.ndim != 1:
        raise ShapeError(f"digitize got bins of shape {edges.shape}.", "They must be 1-d.")
    side = "left" if right else "right"
    size = edges.shape[0]
    if size < 2:
        return searchsorted(edges, x, side)
    ascending = searchsorted(edges, x, side)
    other = searchsorted(shapes.reverse(edges, axes=(0,)), x, side)
    descending = arithmetic.subtract(scalar_array(size, other.dtype, True), other)
    falls = _precedes(take(edges, size - 1, mode="clip"), take(edges, 0, mode="clip"))
    return select(falls, descending, ascending)


@replayed
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> Array:
    """Piecewise linear interpolation.

    Args: x: positions; xp: 1-d ascending abscissae; fp: values at xp; left, right: values outside
    (None: the end values, or "extrapolate"); period: of x and xp, which need not be sorted then.
    Returns: an array of x's shape, in the floating or complex dtype that x, xp, fp, left and right have in common.
    Raises: ShapeError unless xp and fp are 1-d of equal size; DtypeError if x or xp is complex.

    >>> import rlx.numpy as jnp
    >>> float(jnp.interp(1.5, jnp.array([1.0, 2.0]), jnp.array([10.0, 20.0])))
    15.0
    """
    x, xp = promote_inexact("interp", x, xp)
    fp = inexact(fp, "interp")
    if is_complex(x.dtype):
        raise DtypeError("interp does not take complex abscissae.", "Only the values fp may be complex.")
    if xp.ndim != 1 or fp.shape != xp.shape or xp.shape[0] == 0:
        raise ShapeError(f"interp got xp of shape {xp.shape} and fp of shape {fp.shape}.", "Pass 1-d, equal sizes.")
    if period is not None:
        if period == 0:
            raise ValueError("interp got period=0.")
        x, xp, fp = _periodic(x, xp, fp, abs(period))
    size = xp.shape[0]
    number = searchsorted(xp, x, "right")
    upper = arithmetic.clamp(np.asarray(1, number.dtype), number, np.asarray(max(size - 1, 1), number.dtype))
    lower = arithmetic.subtract(upper, scalar_array(1, upper.dtype, True))
    x_low, f_low = take(xp, lower, mode="clip"), take(fp, lower, mode="clip")
    run = arithmetic.subtract(take(xp, upper, mode="clip"), x_low)
    rise = arithmetic.subtract(take(fp, upper, mode="clip"), f_low)
    least = float(ml_dtypes.finfo(run.dtype).eps) ** 2  # shorter pieces would make the derivatives overflow
    flat = comparison.less_equal(arithmetic.absolute(run), scalar_array(least, run.dtype, True))
    step = arithmetic.divide(arithmetic.subtract(x, x_low), select(flat, scalar_array(1, run.dtype, True), run))
    step, rise, f_low = promote("interp", step, rise, f_low)
    values = arithmetic.add(f_low, arithmetic.multiply(step, rise))
    values = select(flat, f_low, values)
    if period is not None:
        return values
    ends = (left, fp, 0, comparison.less(x, take(xp, 0, mode="clip"))), (
        right, fp, size - 1, comparison.less(take(xp, size - 1, mode="clip"), x)
    )  # fmt: skip
    for value, known, place, outside in ends:
        if isinstance(value, str):
            if value != "extrapolate":
                raise ValueError(f"interp got {value!r}: the only string allowed is 'extrapolate'.")
            continue
        end = take(known, place, mode="clip") if value is None else value
        values = select(outside, *promote("interp", end, values))
    return values


def _periodic(x: Any, xp: Any, fp: Any, period: float) -> tuple[Any, Any, Any]:
    x, xp = remainder(x, period), remainder(xp, period)
    xp, fp = sort(xp, fp, axis=0, keys=1)
    size = xp.shape[0]
    whole = scalar_array(period, xp.dtype, True)
    before = arithmetic.subtract(shapes.slice_along(xp, size - 1, size, 0), whole)
    after = arithmetic.add(shapes.slice_along(xp, 0, 1, 0), whole)
    xp = shapes.concatenate(before, xp, after, axis=0)
    fp = shapes.concatenate(shapes.slice_along(fp, size - 1, size, 0), fp, shapes.slice_along(fp, 0, 1, 0), axis=0)
    return x, xp, ravel(fp)
