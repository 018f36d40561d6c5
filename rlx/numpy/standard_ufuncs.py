"""The ufuncs of rlx.numpy: functions with identities and fast ways to reduce, accumulate and update."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.numpy import cumulative, elementwise, powers, reductions
from rlx.numpy.manipulation import reshape
from rlx.numpy.promotion import broadcast_array, canonical_axes, convert_to, inexact, operand, scalar_array, to_dtype
from rlx.numpy.ufuncs import Function, ufunc
from rlx.ops import arithmetic, comparison, reduction, transcendental
from rlx.ops.arithmetic import select
from rlx.ops.stop_gradient import stop_gradient
from rlx.trace.flat import as_array

__all__ = [
    "add",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "subtract",
]


# ------------------------------------------------------------------ ways to reduce
def _masked(x: Any, where: Any, value: Any) -> Any:
    """x where the mask holds, elsewhere `value`."""
    if where is None:
        return x
    return select(broadcast_array(where, x.shape), x, scalar_array(value, x.dtype, True))


def _reducer(primitive: Any, combine: Function, neutral: int, prepare: Callable[[Any], Any]) -> Function:
    """A reduction by one primitive; `prepare` brings the operand into the dtype that it takes."""

    def reduce(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Any:
        x = as_array(operand(a))
        x = prepare(x if dtype is None else convert_to(x, to_dtype(dtype)))
        axes = canonical_axes(axis, x.ndim)
        result = primitive(_masked(x, where, neutral), axes=axes)
        result = reduction.keep_axes(result, x.shape, axes) if keepdims else result
        if initial is not None:
            result = combine(result, prepare(convert_to(operand(initial), x.dtype)))
        return result if dtype is None else convert_to(result, to_dtype(dtype))

    return reduce


def _as_truth(x: Any) -> Any:
    return elementwise.truth(x)


def _as_it_is(x: Any) -> Any:
    return x


def _extremum(reduce_by: Function) -> Function:
    def reduce(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Any:
        x = as_array(operand(a))
        x = x if dtype is None else convert_to(x, to_dtype(dtype))
        return reduce_by(x, axis=axis, keepdims=keepdims, initial=initial, where=where)

    return reduce


def _log_sum(combine: Function, scale: float) -> Function:
    """m + log(sum(exp((x - m) * scale))) / scale with m the largest element."""

    def reduce(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Any:
        x = inexact(a)
        x = _masked(x if dtype is None else convert_to(x, to_dtype(dtype)), where, -math.inf)
        axes = canonical_axes(axis, x.ndim)
        factor = scalar_array(scale, x.dtype, True)
        largest = stop_gradient(
            reductions.max(arithmetic.real(x) if x.dtype.kind == "c" else x, axes, None, True, -math.inf)
        )
        finite = comparison.less(arithmetic.absolute(largest), scalar_array(math.inf, largest.dtype, True))
        largest = convert_to(select(finite, largest, scalar_array(0, largest.dtype, True)), x.dtype)
        powers_of_rest = transcendental.exp(arithmetic.multiply(elementwise.subtract(x, largest), factor))
        total = transcendental.log(reductions.sum(powers_of_rest, axes, None, None, True))
        result = arithmetic.add(arithmetic.divide(total, factor), largest)
        result = result if keepdims else reshape(result, tuple(n for i, n in enumerate(x.shape) if i not in axes))
        return result if initial is None else combine(result, convert_to(operand(initial), x.dtype))

    return reduce


def _at(method: str) -> Function:
    """An update by a scatter."""

    def at(a: Any, indices: Any, b: Any) -> Any:
        return getattr(as_array(operand(a)).at[indices], method)(b)

    return at


# ------------------------------------------------------------------ the table
def _ufunc(function: Function, arity: int = 2, **options: Any) -> ufunc:
    made = ufunc(function, arity, 1, call=function, **options)
    made.__module__ = "rlx.numpy"
    return made


_e, _bits = elementwise, comparison
add = _ufunc(_e.add, identity=0, reduce=reductions.sum, accumulate=cumulative.cumsum, at=_at("add"))
multiply = _ufunc(_e.multiply, identity=1, reduce=reductions.prod, accumulate=cumulative.cumprod, at=_at("multiply"))
subtract = _ufunc(_e.subtract, at=_at("subtract"))
negative = _ufunc(_e.negative, 1)
maximum = _ufunc(_e.maximum, reduce=_extremum(reductions.max), at=_at("max"))
minimum = _ufunc(_e.minimum, reduce=_extremum(reductions.min), at=_at("min"))
logaddexp = _ufunc(powers.logaddexp, identity=-np.inf, reduce=_log_sum(powers.logaddexp, 1.0))
logaddexp2 = _ufunc(powers.logaddexp2, identity=-np.inf, reduce=_log_sum(powers.logaddexp2, math.log(2)))


def _bitwise(function: Function, primitive: Any, identity: int) -> ufunc:
    return _ufunc(function, identity=identity, reduce=_reducer(primitive, function, identity, _as_it_is))


bitwise_and = _bitwise(_e.bitwise_and, reduction.reduce_and, -1)
bitwise_or = _bitwise(_e.bitwise_or, reduction.reduce_or, 0)
bitwise_xor = _bitwise(_e.bitwise_xor, reduction.reduce_xor, 0)


def _logical(function: Function, primitive: Any, identity: bool) -> ufunc:
    return _ufunc(function, identity=identity, reduce=_reducer(primitive, function, identity, _as_truth))


logical_and = _logical(_e.logical_and, reduction.reduce_and, True)
logical_or = _logical(_e.logical_or, reduction.reduce_or, False)
logical_xor = _logical(_e.logical_xor, reduction.reduce_xor, False)
