"""Reductions: sums, products, extrema, truth, means."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

import numpy as np

from rlx.array import Array, is_plain
from rlx.config import config
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.scalar import neutral
from rlx.ir.types import broadcast_sizes, dtype_kind, is_complex, is_float
from rlx.numpy.documentation import alias
from rlx.numpy.index_dtypes import position_dtype
from rlx.numpy.placement import refuse_out
from rlx.numpy.promotion import (
    broadcast_array,
    canonical_axes,
    canonical_axis,
    convert_to,
    float_of,
    inexact_dtype,
    operand,
    promote,
    result_of,
    scalar_array,
    shared,
    to_dtype,
)
from rlx.ops import arithmetic, collective, comparison, reduction, transcendental
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.ops.families import refuse_keys
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed
from rlx.trace.tracing import axis_size
from rlx.transforms.named_axes import axis_names, check_reductions, over_axes, shared_axes

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "average",
    "count_nonzero",
    "max",
    "mean",
    "min",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
]

_BOOL = np.dtype(bool)
_SUMMED = {"b": "i", "i": "i", "u": "u"}


def _array(value: Any, name: str) -> Any:
    return value if is_plain(value) else as_array(operand(shared(value), name))


def _keep(result: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    return reduction.keep_axes(result, shape, axes) if keepdims else result


def summed_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which sums of `dtype` are returned: integers widen to the default int."""
    kind = _SUMMED.get(dtype_kind(dtype))
    if kind is None:
        return dtype
    default = np.dtype(f"{kind}{config.default_int.itemsize}")
    return dtype if dtype.itemsize >= default.itemsize and dtype_kind(dtype) == kind else default


def _masked(x: Any, where: Any, value: Any) -> Any:
    """x where the mask holds, `value` elsewhere."""
    mask = as_array(operand(where, "where"))
    if mask.dtype != _BOOL:
        raise DtypeError(f"where= got dtype {mask.dtype.name}.", "Pass a bool mask.")
    return broadcast_array(
        select(mask, x, scalar_array(value, x.dtype, True)), broadcast_sizes(x.shape, mask.shape)
    )


_OVER_NAMES = {"sum": collective.psum, "max": collective.pmax, "min": collective.pmin}


def _split_axes(axis: Any) -> tuple[Any, tuple[Any, ...]]:
    """The axes given by position, and the axes given by the name of a mapped axis."""
    if axis is None or isinstance(axis, int):
        return axis, ()
    given = axis_names(axis)
    names = tuple(a for a in given if not (hasattr(a, "__index__") or isinstance(a, Number)))
    return (tuple(a for a in given if a not in names), names) if names else (axis, ())


def _over_names(name: str, value: Any, names: tuple[Any, ...]) -> Any:
    """The reduction that has this name, over mapped axes."""
    if not names:
        return value
    if name not in _OVER_NAMES:
        shared_axes(names)  # raises AxisNameError for a name that is not in scope
        raise UnsupportedError(
            f"{name} got the name of a mapped axis, {names[0]!r}.",
            f"Gather the values first: rlx.lax.all_gather(x, {names[0]!r}). sum, mean, max and min take names.",
        )
    return over_axes(_OVER_NAMES[name], check_reductions(name, value, names, sums=name == "sum"), names)


def _accumulate(
    name: str, primitive: Any, combine: Any, a: Any, axis: Any, dtype: Any,
    keepdims: bool, initial: Any, where: Any, promote_integers: bool,
) -> Any:  # fmt: skip
    x = _array(a, name)
    axis, names = _split_axes(axis)
    axes = canonical_axes(axis, x.ndim, name)
    if dtype is not None:
        x = convert_to(x, to_dtype(dtype))
    elif promote_integers:
        wanted = summed_dtype(x.dtype)
        x = x if wanted == x.dtype else convert_to(x, wanted, x.weak_type)
    if where is not None:
        x = _masked(x, where, neutral(primitive.reducer, x.dtype))
    if x.dtype == _BOOL:
        x = convert_to(x, np.dtype("i4"))
    result = _over_names(name, _keep(primitive(x, axes=axes), x.shape, axes, keepdims), names)
    if initial is not None:
        start = convert_to(operand(initial, name), x.dtype, True)
        if start.shape:
            raise ShapeError(f"{name} got an initial value of shape {start.shape}.", "Pass a scalar.")
        result = combine(result, start)
    return convert_to(result, _BOOL) if dtype is not None and to_dtype(dtype) == _BOOL else result


def sum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = None, promote_integers: bool = True,
) -> Array:  # fmt: skip
    """Sum of the elements.

    Args: a: array; axis: int or ints (None: all), or names of mapped axes; dtype: of the sum (None: small integers
    widen to the default int); keepdims: keep axes with size 1; initial: the start value; where: bool mask.
    Returns: an array. Raises: ShapeError for an axis that does not exist.

    >>> import rlx.numpy as jnp
    >>> jnp.sum(jnp.ones((2, 3)), axis=0)
    Array([2., 2., 2.], dtype=float32)
    """
    refuse_out("sum", out)
    return _accumulate(
        "sum", reduction.reduce_sum, arithmetic.add, a, axis, dtype, keepdims, initial, where, promote_integers
    )


def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = None, promote_integers: bool = True,
) -> Array:  # fmt: skip
    """Product of the elements.

    Args: as `sum`. Returns: an array. Raises: ShapeError for an axis that does not exist.

    >>> import rlx.numpy as jnp
    >>> jnp.prod(jnp.arange(1, 5)).item()
    24
    """
    refuse_out("prod", out)
    return _accumulate(
        "prod",
        reduction.reduce_prod,
        arithmetic.multiply,
        a,
        axis,
        dtype,
        keepdims,
        initial,
        where,
        promote_integers,
    )


# ------------------------------------------------------------------ extrema
def _extremum(
    name: str, primitive: Any, combine: Any, a: Any, axis: Any, keepdims: bool, initial: Any, where: Any
) -> Any:
    x = _array(a, name)
    axis, names = _split_axes(axis)
    axes = canonical_axes(axis, x.ndim, name)
    if where is not None:
        if initial is None:
            raise ShapeError(f"{name} with where= needs initial=.", "Pass initial=, for masked rows.")
        x = _masked(x, where, neutral(primitive.reducer, x.dtype))
    if initial is None and 0 in [x.shape[i] for i in axes]:
        raise ShapeError(
            f"{name} got an array of shape {x.shape} without elements along {axes}.",
            "Pass initial=, or handle the empty case with Python's if.",
        )
    if initial is not None:
        start = convert_to(operand(initial, name), _BOOL) if x.dtype == _BOOL else operand(initial, name)
        dtype, weak = result_of(x, start)
        x, start = convert_to(x, dtype, weak and x.weak_type), convert_to(start, dtype, True)
        return combine(_over_names(name, _keep(primitive(x, axes=axes), x.shape, axes, keepdims), names), start)
    return _over_names(name, _keep(primitive(x, axes=axes), x.shape, axes, keepdims), names)


def max(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The largest element, or NaN if any element is NaN.

    Args: a: array; axis: int or ints (None: all); keepdims: keep axes with size 1;
    initial: a lower bound of the result; where: bool mask (needs initial).
    Returns: an array. Raises: ShapeError if there are no elements and no initial.

    >>> import rlx.numpy as jnp
    >>> jnp.max(jnp.array([[1, 5], [3, 2]]), axis=1)
    Array([5, 3], dtype=int32)
    """
    refuse_out("max", out)
    return _extremum("max", reduction.reduce_max, arithmetic.maximum, a, axis, keepdims, initial, where)


def min(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The smallest element, or NaN if any element is NaN.

    Args: as `max`. Returns: an array. Raises: ShapeError if there are no elements and no initial.

    >>> import rlx.numpy as jnp
    >>> jnp.min(jnp.array([3, 1, 2])).item()
    1
    """
    refuse_out("min", out)
    return _extremum("min", reduction.reduce_min, arithmetic.minimum, a, axis, keepdims, initial, where)


amax, amin = alias(max, "amax"), alias(min, "amin")


@replayed
def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
    """The largest element minus the smallest.

    Args: a: array; axis: int or ints (None: all); keepdims. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.ptp(jnp.array([3, 1, 7])).item()
    6
    """
    refuse_out("ptp", out)
    x = _array(a, "ptp")
    return arithmetic.subtract(max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


def _position(name: str, primitive: Any, a: Any, axis: Any, keepdims: bool | None) -> Any:
    x = _array(a, name)
    if is_complex(x.dtype):
        axes = tuple(range(x.ndim)) if axis is None else (canonical_axis(axis, x.ndim, name),)
        x, primitive = _is_extreme(x, primitive.reducer, axes), reduction.argmax
    if axis is None:
        flat = shapes.reshape(x, shape=(x.size,))
        result = primitive(flat, axis=0, index_dtype=position_dtype(x.size))
        return shapes.reshape(result, shape=(1,) * x.ndim) if keepdims else result
    number = canonical_axis(axis, x.ndim, name)
    result = primitive(x, axis=number, index_dtype=position_dtype(x.shape[number]))
    return _keep(result, x.shape, (number,), bool(keepdims))


def _is_extreme(x: Any, reducer: str, axes: tuple[int, ...]) -> Any:
    """Whether elements are NaN, or the extremum over axes."""
    best = {"max": reduction.reduce_max, "min": reduction.reduce_min}[reducer](x, axes=axes)
    found = comparison.equal(x, reduction.keep_axes(best, x.shape, axes))
    return comparison.bitwise_or(found, comparison.not_equal(x, x))


def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the first largest element; NaN counts as largest, complex numbers compare as in max.

    Args: a: array; axis: int (None: index into all elements in a row); keepdims.
    Returns: an integer array. Raises: ShapeError if there are no elements.

    >>> import rlx.numpy as jnp
    >>> jnp.argmax(jnp.array([1, 3, 2])).item()
    1
    """
    refuse_out("argmax", out)
    return _position("argmax", reduction.argmax, a, axis, keepdims)


def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the first smallest element; NaN counts as smallest, complex numbers compare as in min.

    Args: as `argmax`. Returns: an integer array. Raises: ShapeError if there are no elements.

    >>> import rlx.numpy as jnp
    >>> jnp.argmin(jnp.array([3, 1, 2])).item()
    1
    """
    refuse_out("argmin", out)
    return _position("argmin", reduction.argmin, a, axis, keepdims)


# ------------------------------------------------------------------ truth
def _nonzero(x: Any, name: str) -> Any:
    refuse_keys(name, x.type)
    return x if x.dtype == _BOOL else comparison.not_equal(x, scalar_array(0, x.dtype, True))


def _truth(name: str, primitive: Any, a: Any, axis: Any, keepdims: bool, where: Any) -> Any:
    x = _nonzero(_array(a, name), name)
    axes = canonical_axes(axis, x.ndim, name)
    if where is not None:
        x = _masked(x, where, neutral(primitive.reducer, x.dtype))
    return _keep(primitive(x, axes=axes), x.shape, axes, keepdims)


def all(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """Whether all elements are nonzero.

    Args: a: array; axis: int or ints (None: all); keepdims; where: bool mask.
    Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.all(jnp.array([1, 0])))
    False
    """
    refuse_out("all", out)
    return _truth("all", reduction.reduce_and, a, axis, keepdims, where)


def any(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """Whether some element is nonzero.

    Args: as `all`. Returns: a bool array.

    >>> import rlx.numpy as jnp
    >>> bool(jnp.any(jnp.array([1, 0])))
    True
    """
    refuse_out("any", out)
    return _truth("any", reduction.reduce_or, a, axis, keepdims, where)


def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The number of elements that are not zero.

    Args: a: array; axis: int or ints (None: all); keepdims. Returns: an integer array.

    >>> import rlx.numpy as jnp
    >>> jnp.count_nonzero(jnp.array([1, 0, 2])).item()
    2
    """
    x = _nonzero(_array(a, "count_nonzero"), "count_nonzero")
    return sum(x, axis, position_dtype(x.size), keepdims=keepdims)


# ------------------------------------------------------------------ means
def _counts(x: Any, axes: tuple[int, ...], keepdims: bool, where: Any, dtype: np.dtype) -> Any:
    """The number of elements of each mean."""
    if where is None:
        return scalar_array(math.prod(x.shape[i] for i in axes), dtype, True)
    mask = as_array(operand(where, "where"))
    return sum(broadcast_array(mask, x.shape), axes, dtype, keepdims=keepdims)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """The arithmetic mean.

    Args: a: array; axis: int or ints (None: all), or names of mapped axes; dtype: of the result; keepdims;
    where: bool mask.
    Returns: a floating or complex array; half precision is summed in float32.

    >>> import rlx.numpy as jnp
    >>> float(jnp.mean(jnp.array([1, 2, 3])))
    2.0
    """
    refuse_out("mean", out)
    positions, names = _split_axes(axis)
    own = _local_mean(a, positions, dtype, keepdims, where=where)
    if not names:
        return own
    if where is not None:
        raise UnsupportedError(
            "mean got where= and the name of a mapped axis.", "Divide sum(x, axis, where=mask) by sum(mask, axis)."
        )
    return arithmetic.divide(_over_names("sum", own, names), scalar_array(axis_size(names), own.dtype, True))


@replayed
def _local_mean(a: Any, axis: Any, dtype: Any, keepdims: bool, *, where: Any) -> Array:
    x = _array(a, "mean")
    axes = canonical_axes(axis, x.ndim, "mean")
    wanted = inexact_dtype(x.dtype) if dtype is None else to_dtype(dtype)
    working = _wide(wanted)
    weak = x.weak_type and dtype is None
    total = sum(convert_to(x, working, weak), axes, keepdims=keepdims, where=where)
    result = arithmetic.divide(total, _counts(x, axes, keepdims, where, working))
    return convert_to(result, wanted, weak)


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype to sum in: float32 for narrower ones."""
    return np.dtype("f4") if is_float(dtype) and dtype.itemsize < 4 else inexact_dtype(dtype)


@replayed
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """The weighted mean.

    Args: a: array; axis: int or ints (None: all); weights: of a's shape, or of the axis;
    returned: also return the sum of the weights; keepdims.
    Returns: an array, or (array, sum of weights). Raises: ShapeError for incompatible weights.

    >>> import rlx.numpy as jnp
    >>> float(jnp.average(jnp.array([1.0, 3.0]), weights=jnp.array([3.0, 1.0])))
    1.5
    """
    x = _array(a, "average")
    if weights is None:
        result = mean(x, axis, keepdims=keepdims)
        count = math.prod(x.shape[i] for i in canonical_axes(axis, x.ndim, "average"))
        total = broadcast_array(convert_to(count, result.dtype), result.shape)
        return (result, total) if returned else result
    x, w = promote("average", x, weights)
    dtype = inexact_dtype(x.dtype)
    x, w = convert_to(x, dtype), convert_to(w, dtype)
    if w.shape != x.shape:
        axes = canonical_axes(axis, x.ndim, "average")
        if axis is None or w.shape != tuple(x.shape[i] for i in axes):
            raise ShapeError(
                f"average got weights of shape {w.shape} for an array of shape {x.shape}.",
                "Give weights of the same shape, or 1-d ones for one axis.",
            )
        order = sorted(range(len(axes)), key=lambda i: axes[i])
        w = shapes.transpose(w, permutation=tuple(order))
        w = shapes.reshape(w, shape=tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))
        w = broadcast_array(w, x.shape)
    total = sum(w, axis, keepdims=keepdims)
    result = arithmetic.divide(sum(arithmetic.multiply(x, w), axis, keepdims=keepdims), total)
    return (result, total) if returned else result


@replayed
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: bool = False,
    *, where: Any = None, correction: float | None = None, mean: Any = None,
) -> Array:  # fmt: skip
    """The variance.

    Args: a: array; axis: int or ints (None: all); dtype: of the result; ddof (or correction): the
    divisor is the number of elements minus this; keepdims; where: bool mask; mean: if known.
    Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.var(jnp.array([1.0, 3.0])))
    1.0
    """
    refuse_out("var", out)
    x = _array(a, "var")
    axes = canonical_axes(axis, x.ndim, "var")
    check_spread("var", x.dtype, dtype, ddof, correction)
    wanted = float_of(x.dtype) if dtype is None else to_dtype(dtype)
    working = _wide(inexact_dtype(x.dtype))
    if dtype is not None and wanted.itemsize > float_of(working).itemsize:
        working = np.result_type(working, wanted)
    weak = x.weak_type and dtype is None
    x = convert_to(x, working, weak)
    center = _mean(x, axes, where) if mean is None else convert_to(operand(mean, "var"), working)
    deviation = arithmetic.subtract(x, center)
    squares = arithmetic.square(deviation)
    if is_complex(working):
        parts = arithmetic.real(deviation), arithmetic.imag(deviation)
        squares = arithmetic.add(*[arithmetic.square(p) for p in parts])
    real = squares.dtype
    correct = ddof if correction is None else correction
    count = arithmetic.subtract(_counts(x, axes, keepdims, where, real), scalar_array(correct, real, True))
    total = sum(squares, axes, keepdims=keepdims, where=where)
    enough = comparison.less(scalar_array(0, real, True), count)
    result = select(enough, arithmetic.divide(total, count), scalar_array(np.nan, real, True))
    return convert_to(result, wanted, weak)


def check_spread(name: str, given: np.dtype, dtype: Any, ddof: float, correction: float | None) -> None:
    """Refuse variances of complex numbers in a real dtype, and two corrections."""
    if correction is not None and ddof != 0:
        raise ValueError(f"{name} got both ddof and correction, which mean the same: pass one.")
    if dtype is not None and is_complex(given) and not is_complex(to_dtype(dtype)):
        raise DtypeError(
            f"{name} got dtype={to_dtype(dtype).name} for {given.name} numbers.",
            "Leave dtype out (a variance is real), or pass a complex one.",
        )


def _mean(x: Any, axes: tuple[int, ...], where: Any) -> Any:
    return mean(x, axes, keepdims=True, where=where)


@replayed
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: bool = False,
    *, where: Any = None, correction: float | None = None, mean: Any = None,
) -> Array:  # fmt: skip
    """The standard deviation: the square root of the variance.

    Args: as `var`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.std(jnp.array([1.0, 3.0])))
    1.0
    """
    refuse_out("std", out)
    return transcendental.sqrt(
        var(a, axis, dtype, ddof=ddof, keepdims=keepdims, where=where, correction=correction, mean=mean)
    )
