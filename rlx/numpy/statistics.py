"""Order statistics and moments of several variables: quantile, median, cov, corrcoef."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import is_complex
from rlx.numpy.elementwise import divide, multiply
from rlx.numpy.floats import conj, isnan, real
from rlx.numpy.joining import concatenate
from rlx.numpy.lookups import take_along_axis
from rlx.numpy.manipulation import atleast_2d, moveaxis, reshape, transpose
from rlx.numpy.matrices import diagonal
from rlx.numpy.products import matmul
from rlx.numpy.promotion import (
    broadcast_array,
    canonical_axes,
    convert_to,
    inexact,
    inexact_dtype,
    operand,
    promote_inexact,
    scalar_array,
)
from rlx.numpy.reductions import any as any_
from rlx.numpy.reductions import average
from rlx.numpy.reductions import sum as sum_
from rlx.numpy.sorting import sort
from rlx.ops import arithmetic, comparison, transcendental
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.trace.flat import as_array

__all__ = ["corrcoef", "cov", "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _reduced_last(x: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """The reduced axes joined as the last one, and the result's shape with keepdims."""
    axes = canonical_axes(axis, x.ndim, "quantile")
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    moved = transpose(x, (*kept, *axes))
    size = math.prod(x.shape[i] for i in axes)
    return reshape(moved, (*[x.shape[i] for i in kept], size)), shape


def _quantile(a: Any, q: Any, axis: Any, keepdims: bool, method: str, skip_nan: bool) -> Any:
    if method not in _METHODS:
        raise ValueError(f"quantile has no method {method!r}: use one of {', '.join(_METHODS)}.")
    x = as_array(operand(a, "quantile"))
    if is_complex(x.dtype):
        raise DtypeError("quantile does not take complex numbers.", "They have no order.")
    q = as_array(np.asarray(q) if isinstance(q, (list, tuple)) else operand(q))
    if q.ndim > 1:
        raise ShapeError(f"quantile got q of shape {q.shape}.", "Pass a number or a 1-d array.")
    dtype = inexact_dtype(x.dtype)
    x, shape = _reduced_last(convert_to(x, dtype), axis)
    working = np.dtype("f4") if dtype.itemsize < 4 else dtype
    fractions = convert_to(q, working)
    ordered = sort(x)
    size = x.shape[-1]
    if size == 0:
        raise ShapeError("quantile got an axis without elements.", "Handle the empty case before.")
    missing = isnan(x)
    if skip_nan:
        count = arithmetic.subtract(scalar_array(size, working, True), sum_(missing, axis=-1, dtype=working))
    else:
        ordered = select(any_(missing, axis=-1, keepdims=True), scalar_array(np.nan, dtype, True), ordered)
        count = broadcast_array(scalar_array(size, working, False), x.shape[:-1])
    lead = q.ndim
    place = multiply(
        reshape(fractions, q.shape + (1,) * count.ndim),
        arithmetic.maximum(arithmetic.subtract(count, scalar_array(1, working, True)), scalar_array(0, working, True)),
    )
    place = broadcast_array(place, q.shape + count.shape)
    values = _at(ordered, place, method, lead)
    if skip_nan:
        empty = comparison.equal(count, scalar_array(0, working, True))
        values = select(empty, scalar_array(np.nan, dtype, True), values)
    outside = comparison.bitwise_or(
        comparison.less(fractions, scalar_array(0, working, True)),
        comparison.less(scalar_array(1, working, True), fractions),
    )
    values = select(reshape(outside, q.shape + (1,) * count.ndim), scalar_array(np.nan, dtype, True), values)
    return reshape(values, q.shape + shape) if keepdims else values


def _at(ordered: Any, place: Any, method: str, lead: int) -> Any:
    """Elements at fractional places of the last axis."""
    low, high = arithmetic.floor(place), arithmetic.ceil(place)
    index = [
        moveaxis(convert_to(v, np.dtype("i4")), 0, -1)
        if lead
        else reshape(convert_to(v, np.dtype("i4")), (*place.shape, 1))
        for v in (low, high)
    ]
    lower, upper = [take_along_axis(ordered, i, axis=-1, mode="clip") for i in index]
    lower, upper = [moveaxis(v, -1, 0) if lead else shapes.squeeze(v, (v.ndim - 1,)) for v in (lower, upper)]
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


def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Array:  # fmt: skip
    """The value below which a fraction of the elements lies.

    Args: a: real array; q: fraction, or 1-d fractions; axis: int or ints (None: all); method: how to
    choose between neighbours: "linear", "lower", "higher", "midpoint", "nearest"; keepdims.
    Returns: a floating array, q's axis first. Raises: ValueError for another method.

    >>> import rlx.numpy as jnp
    >>> float(jnp.quantile(jnp.array([1.0, 2.0, 3.0]), 0.5))
    2.0
    """
    return _quantile(a, q, axis, keepdims, method, False)


def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Array:  # fmt: skip
    """`quantile` of the elements that are not NaN.

    Args: as `quantile`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.5))
    2.0
    """
    return _quantile(a, q, axis, keepdims, method, True)


def _hundredths(q: Any) -> Any:
    q = as_array(np.asarray(q) if isinstance(q, (list, tuple)) else operand(q))
    return divide(q, 100.0)


def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Array:  # fmt: skip
    """`quantile` with q in percent.

    Args: as `quantile`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.percentile(jnp.array([1.0, 2.0, 3.0]), 50))
    2.0
    """
    return quantile(a, _hundredths(q), axis, method=method, keepdims=keepdims)


def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Array:  # fmt: skip
    """`percentile` of the elements that are not NaN.

    Args: as `quantile`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50))
    2.0
    """
    return nanquantile(a, _hundredths(q), axis, method=method, keepdims=keepdims)


def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Array:
    """The middle element, or the mean of the two middle ones.

    Args: a: real array; axis: int or ints (None: all); keepdims. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.median(jnp.array([3, 1, 2])))
    2.0
    """
    return quantile(a, 0.5, axis, method="midpoint", keepdims=keepdims)


def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """`median` of the elements that are not NaN.

    Args: as `median`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanmedian(jnp.array([3.0, jnp.nan, 1.0])))
    2.0
    """
    return nanquantile(a, 0.5, axis, method="midpoint", keepdims=keepdims)


# ------------------------------------------------------------------ several variables
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None,
) -> Array:  # fmt: skip
    """The covariance matrix.

    Args: m: observations of variables, 1-d or 2-d; y: more of them; rowvar: whether rows are
    variables; bias, ddof: the divisor is n - ddof (1 unless bias); fweights: how often each
    observation counts; aweights: its weight.
    Returns: a matrix (0-d for one variable). Raises: ShapeError for more axes or wrong weights.

    >>> import rlx.numpy as jnp
    >>> float(jnp.cov(jnp.array([1.0, 3.0])))
    2.0
    """
    if y is None:
        x = inexact(m, "cov")
    else:
        x, y = promote_inexact("cov", m, y)
    if x.ndim > 2 or (y is not None and y.ndim > 2):
        raise ShapeError(f"cov got an array of shape {x.shape}.", "Pass 1-d or 2-d arrays.")
    rows = _variables(x, rowvar)
    if y is not None:
        rows = concatenate([rows, _variables(y, rowvar)], 0)
    freedom = (0 if bias else 1) if ddof is None else ddof
    weights = _weights(rows, fweights, aweights)
    if weights is None:
        center = arithmetic.divide(sum_(rows, axis=1), scalar_array(rows.shape[1], rows.dtype, True))
        divisor: Any = scalar_array(rows.shape[1] - freedom, rows.dtype, True)
        scaled = None
    else:
        center, total = average(rows, axis=1, weights=weights, returned=True)
        total = total[0]
        divisor = arithmetic.subtract(total, scalar_array(freedom, total.dtype, True))
        if freedom and aweights is not None:
            w = convert_to(as_array(operand(aweights)), weights.dtype)
            share = divide(sum_(multiply(weights, w)), total)
            divisor = arithmetic.subtract(total, multiply(scalar_array(freedom, total.dtype, True), share))
        scaled = weights
    deviation = arithmetic.subtract(rows, reshape(center, (-1, 1)) if rows.shape[0] else center)
    other = deviation if scaled is None else multiply(deviation, scaled)
    product = divide(matmul(deviation, transpose(conj(other))), divisor)
    return reshape(product, ()) if product.size == 1 else product


def _variables(x: Any, rowvar: bool) -> Any:
    rows = atleast_2d(x)
    return transpose(rows) if not rowvar and rows.shape[0] != 1 else rows


def _weights(rows: Any, fweights: Any, aweights: Any) -> Any:
    weights = None
    for given in (fweights, aweights):
        if given is None:
            continue
        w = as_array(operand(given, "cov"))
        if w.shape != (rows.shape[1],):
            raise ShapeError(f"cov got weights of shape {w.shape}.", "Give one for each observation.")
        w = convert_to(w, rows.dtype if not is_complex(rows.dtype) else real(rows).dtype)
        weights = w if weights is None else multiply(weights, w)
    return weights


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Array:
    """The matrix of correlation coefficients.

    Args: as `cov`. Returns: a matrix with values between -1 and 1.

    >>> import rlx.numpy as jnp
    >>> jnp.corrcoef(jnp.array([[1.0, 2.0], [2.0, 1.0]])).round(3).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    covariance = cov(x, y, rowvar)
    if covariance.ndim == 0:
        return divide(covariance, covariance)
    deviation = transcendental.sqrt(real(diagonal(covariance)))
    result = divide(divide(covariance, reshape(deviation, (-1, 1))), reshape(deviation, (1, -1)))
    one = 1.0
    if not is_complex(result.dtype):
        return arithmetic.clamp(scalar_array(-one, result.dtype, True), result, scalar_array(one, result.dtype, True))
    parts = [
        arithmetic.clamp(scalar_array(-one, p.dtype, True), p, scalar_array(one, p.dtype, True))
        for p in (arithmetic.real(result), arithmetic.imag(result))
    ]
    return arithmetic.complex(*parts)
