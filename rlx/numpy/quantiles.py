"""Order statistics: quantile, percentile, median, and the same without NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import is_complex
from rlx.numpy.cumulative import cumsum
from rlx.numpy.elementwise import divide, multiply
from rlx.numpy.floats import isnan
from rlx.numpy.index_dtypes import index_dtype
from rlx.numpy.lookups import take_along_axis
from rlx.numpy.manipulation import moveaxis, reshape, transpose
from rlx.numpy.placement import check_placement, refuse_out
from rlx.numpy.promotion import (
    SCALARS,
    broadcast_array,
    canonical_axes,
    convert_to,
    inexact_dtype,
    operand,
    scalar_array,
)
from rlx.numpy.reductions import any as any_
from rlx.numpy.reductions import sum as sum_
from rlx.ops import arithmetic, comparison, sorting
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


# ------------------------------------------------------------------ operands
def _array(value: Any, name: str) -> Any:
    return as_array(np.asarray(value) if isinstance(value, (list, tuple)) else operand(value, name))


def _reduced_last(x: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """The reduced axes joined as the last one, and the result's shape with keepdims."""
    axes = canonical_axes(axis, x.ndim, "quantile")
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    moved = transpose(x, (*kept, *axes))
    size = math.prod(x.shape[i] for i in axes)
    return reshape(moved, (*[x.shape[i] for i in kept], size)), shape


def _weights_last(weights: Any, x: Any, axis: Any, method: str, dtype: np.dtype) -> Any:
    """Weights of all elements of x, with the reduced axes joined as the last one."""
    w = _array(weights, "quantile")
    if is_complex(w.dtype):
        raise DtypeError("quantile got complex weights.", "Weights must be real and nonnegative.")
    if method != "inverted_cdf":
        raise UnsupportedError(
            f'The method "{method}" does not take weights.', 'Use method="inverted_cdf", or omit weights.'
        )
    if w.shape != x.shape:
        axes = canonical_axes(axis, x.ndim, "quantile")
        if axis is None or w.shape != tuple(x.shape[i] for i in axes):
            raise ShapeError(
                f"quantile got weights of shape {w.shape} for an array of shape {x.shape}.",
                "Give one weight for each element, or one for each place along the reduced axes.",
            )
        w = transpose(w, sorted(range(w.ndim), key=axes.__getitem__))
        w = shapes.broadcast_in_dim(w, shape=x.shape, dims=tuple(sorted(axes)))
    return _reduced_last(convert_to(w, dtype), axis)[0]


# ------------------------------------------------------------------ the computation
def _quantile(a: Any, q: Any, axis: Any, keepdims: bool, method: str, skip_nan: bool, weights: Any) -> Any:
    if method not in _METHODS:
        raise ValueError(f"quantile has no method {method!r}: use one of {', '.join(_METHODS)}.")
    x = _array(a, "quantile")
    if is_complex(x.dtype):
        raise DtypeError("quantile does not take complex numbers.", "They have no order.")
    dtype = inexact_dtype(x.dtype)
    working = np.dtype("f4") if dtype.itemsize < 4 else dtype
    fractions = convert_to(_array(q, "quantile") if isinstance(q, (list, tuple)) else operand(q, "quantile"), working)
    if fractions.ndim > 1:
        raise ShapeError(f"quantile got q of shape {fractions.shape}.", "Pass a number or a 1-d array.")
    w = None if weights is None else _weights_last(weights, x, axis, method, working)
    x, shape = _reduced_last(convert_to(x, dtype), axis)
    if x.shape[-1] == 0:
        raise ShapeError("quantile got an axis without elements.", "Handle the empty case first.")
    find = _by_weight if method == "inverted_cdf" else _by_rank
    values = find(x, fractions, method, skip_nan, w)
    outside = comparison.bitwise_or(
        comparison.less(fractions, scalar_array(0, working, True)),
        comparison.less(scalar_array(1, working, True), fractions),
    )
    values = select(reshape(outside, fractions.shape + (1,) * (x.ndim - 1)), scalar_array(np.nan, dtype, True), values)
    return reshape(values, fractions.shape + shape) if keepdims else values


def _by_rank(x: Any, fractions: Any, method: str, skip_nan: bool, weights: None) -> Any:
    """Quantiles along the last axis, at the position q * (n - 1) of the sorted elements."""
    dtype, working, lead = x.dtype, fractions.dtype, fractions.ndim
    missing, size = isnan(x), x.shape[-1]
    (ordered,) = sorting.sort(x, axis=x.ndim - 1, keys=1)
    if skip_nan:
        count = arithmetic.subtract(scalar_array(size, working, True), sum_(missing, axis=-1, dtype=working))
    else:
        ordered = select(any_(missing, axis=-1, keepdims=True), scalar_array(np.nan, dtype, True), ordered)
        count = broadcast_array(scalar_array(size, working, False), x.shape[:-1])
    zero, one = [scalar_array(v, working, True) for v in (0, 1)]
    last = arithmetic.maximum(arithmetic.subtract(count, one), zero)
    place = multiply(reshape(fractions, fractions.shape + (1,) * count.ndim), last)
    values = _at(ordered, broadcast_array(place, fractions.shape + count.shape), method, lead)
    if skip_nan:
        empty = comparison.equal(count, zero)
        values = select(empty, scalar_array(np.nan, dtype, True), values)
    return values


def _by_weight(x: Any, fractions: Any, method: str, skip_nan: bool, weights: Any) -> Any:
    """The first sorted element at which the weights before and at it reach the fraction of all."""
    dtype, working, axis = x.dtype, fractions.dtype, x.ndim - 1
    zero, nan = scalar_array(0, working, True), scalar_array(np.nan, dtype, True)
    if weights is None:
        weights = broadcast_array(scalar_array(1, working, False), x.shape)
    missing = isnan(x)
    wrong = comparison.bitwise_or(comparison.less(weights, zero), isnan(weights))
    spoiled = wrong if skip_nan else comparison.bitwise_or(wrong, missing)
    weights = select(comparison.bitwise_or(wrong, missing), zero, weights)
    ordered, weights = sorting.sort(x, weights, axis=axis, keys=1)
    reached = cumsum(weights, axis=axis)
    total = shapes.slice_along(reached, x.shape[-1] - 1, x.shape[-1], axis)
    goal = multiply(reshape(fractions, fractions.shape + (1,) * x.ndim), total)
    # elements without weight in front of all others are never chosen, not even for the fraction 0
    short = comparison.bitwise_or(comparison.less(reached, goal), comparison.equal(reached, zero))
    index = sum_(short, axis=-1, dtype=index_dtype(x.shape[-1]))
    chosen = _pick(ordered, index, fractions.ndim)
    none = comparison.bitwise_not(comparison.less(zero, shapes.squeeze(total, (axis,))))
    return select(comparison.bitwise_or(any_(spoiled, axis=-1), none), nan, chosen)


def _pick(ordered: Any, index: Any, lead: int) -> Any:
    """Elements of the last axis by number; `lead` axes of the index go in front."""
    index = moveaxis(index, 0, -1) if lead else reshape(index, (*index.shape, 1))
    found = take_along_axis(ordered, index, axis=-1, mode="clip")
    return moveaxis(found, -1, 0) if lead else shapes.squeeze(found, (found.ndim - 1,))


def _at(ordered: Any, place: Any, method: str, lead: int) -> Any:
    """Elements at fractional positions of the last axis."""
    low, high = arithmetic.floor(place), arithmetic.ceil(place)
    lower, upper = [_pick(ordered, convert_to(v, index_dtype(ordered.shape[-1])), lead) for v in (low, high)]
    weight = arithmetic.subtract(place, low)
    if method == "lower":
        return lower
    if method == "higher":
        return upper
    half = scalar_array(0.5, ordered.dtype, True)
    if method == "midpoint":
        return multiply(arithmetic.add(lower, upper), half)
    if method == "nearest":
        return select(comparison.less_equal(weight, scalar_array(0.5, weight.dtype, True)), lower, upper)
    weight = convert_to(weight, ordered.dtype)
    one = scalar_array(1, ordered.dtype, True)
    between = arithmetic.add(multiply(lower, arithmetic.subtract(one, weight)), multiply(upper, weight))
    return select(comparison.equal(lower, upper), lower, between)  # also of infinities


# ------------------------------------------------------------------ the functions
@replayed
def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Array:  # fmt: skip
    """The value below which a fraction of the elements is.

    Args: a: real array; q: fraction, or 1-d fractions; axis: int or ints (None: all); method: how to
    choose between neighbours: "linear", "lower", "higher", "midpoint", "nearest", or "inverted_cdf" (the
    first element that reaches the fraction), which alone takes weights: of all elements, or along the
    axis; keepdims.
    Returns: a floating array, q's axis first; NaN for wrong weights. Raises: ValueError for another
    method.

    >>> import rlx.numpy as jnp
    >>> float(jnp.quantile(jnp.array([1.0, 2.0, 3.0]), 0.5))
    2.0
    """
    refuse_out("quantile", out)
    return _quantile(a, q, axis, keepdims, method, False, weights)


@replayed
def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Array:  # fmt: skip
    """`quantile` of the elements that are not NaN.

    Args: as `quantile`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.5))
    2.0
    """
    refuse_out("nanquantile", out)
    return _quantile(a, q, axis, keepdims, method, True, weights)


def _hundredths(q: Any) -> Any:
    # a number is divided as Python's, not in a default dtype
    return q / 100.0 if isinstance(q, SCALARS) else divide(_array(q, "percentile"), 100.0)


@replayed
def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """`quantile` with q in percent.

    Args: as `quantile`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.percentile(jnp.array([1.0, 2.0, 3.0]), 50))
    2.0
    """
    refuse_out("percentile", out)
    check_placement(None, out_sharding)
    return quantile(a, _hundredths(q), axis, method=method, keepdims=keepdims, weights=weights)


@replayed
def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Array:  # fmt: skip
    """`percentile` of the elements that are not NaN.

    Args: as `quantile`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50))
    2.0
    """
    refuse_out("nanpercentile", out)
    return nanquantile(a, _hundredths(q), axis, method=method, keepdims=keepdims, weights=weights)


@replayed
def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Array:
    """The middle element, or the mean of the two middle ones.

    Args: a: real array; axis: int or ints (None: all); keepdims. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.median(jnp.array([3, 1, 2])))
    2.0
    """
    refuse_out("median", out)
    return quantile(a, 0.5, axis, method="midpoint", keepdims=keepdims)


@replayed
def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """`median` of the elements that are not NaN.

    Args: as `median`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanmedian(jnp.array([3.0, jnp.nan, 1.0])))
    2.0
    """
    refuse_out("nanmedian", out)
    return nanquantile(a, 0.5, axis, method="midpoint", keepdims=keepdims)
