"""Ranges of numbers: steps, even spacing, constant ratios."""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, overload

import numpy as np

from rlx.array import Array, is_array, is_array_or_numpy, is_concrete, wrap
from rlx.errors import ConcretizationTypeError, DtypeError, OptionError, ShapeError
from rlx.ir.types import dtype_kind, is_complex, is_inexact
from rlx.numpy.creation import count_along
from rlx.numpy.placement import check_placement, placed
from rlx.numpy.promotion import (
    SCALARS,
    broadcast_array,
    canonical_axis,
    concretization_error,
    convert_to,
    fill,
    not_made,
    operand,
    promote,
    promote_inexact,
    result_of,
    scalar_array,
    to_dtype,
)
from rlx.ops import arithmetic, transcendental
from rlx.ops import shape as shapes
from rlx.trace.builder import is_traced, state
from rlx.trace.replay import replayed
from rlx.transforms.moving import refuse_moving

__all__ = ["arange", "geomspace", "linspace", "logspace"]


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """Numbers from start up to, not including, stop.

    Args: start, stop, step: numbers known while tracing; one argument is the stop.
    dtype: of the result. Returns: a 1-d array.
    Raises: ConcretizationTypeError if a bound is traced; OptionError for the step 0.

    >>> import rlx.numpy as jnp
    >>> jnp.arange(1, 7, 2)
    Array([1, 3, 5], dtype=int32)
    """
    check_placement(device, out_sharding)
    bounds = [_static_number(v) for v in (start, stop, step) if v is not None]
    given = [operand(v, "arange") for v in (start, stop, step) if v is not None]
    wanted = result_of(*given)[0] if dtype is None else to_dtype(dtype)
    if any(is_complex(v.dtype) if is_array(v) else isinstance(v, complex) for v in given):
        raise DtypeError("arange got a complex number.", "Complex numbers have no order: use linspace, or parts.")
    if step is not None and not bounds[-1]:
        raise OptionError("arange got step=0.", "Pass a positive or negative step, or linspace(start, stop, num).")
    if stop is None and step is not None:
        bounds, stop = [0, bounds[0], bounds[1]], 0
    simple = len(bounds) == 1 and stop is None and wanted.kind != "b"
    if simple and state.builder is not None:
        size = max(0, math.ceil(bounds[0]))
        return placed(count_along((size,), 0, wanted), device, out_sharding)
    try:
        if is_inexact(wanted) and wanted.itemsize < 8:
            values = np.arange(*[np.float64(b) for b in bounds]).astype(wanted)
        else:
            values = np.arange(*bounds, dtype=wanted)
    except (MemoryError, ValueError) as error:
        low, high, by = [0, *bounds, 1] if len(bounds) == 1 else [*bounds, 1][:3]
        raise not_made(error, (max(0, math.ceil((high - low) / by)),), wanted) from None
    return placed(wrap(values), device, out_sharding)


def _static_number(value: Any) -> Any:
    if is_traced(value):
        known = value.known()
        if known is None:
            raise concretization_error(
                "arange got a traced bound: the length of its result would depend on values.",
                "Pass Python numbers, mark the argument static in jit, or use rlx.lax.fori_loop.",
            )
        refuse_moving(value, "A bound of arange", ConcretizationTypeError)
        value = known
    if is_array_or_numpy(value) or isinstance(value, np.generic):
        return np.asarray(value.numpy() if is_concrete(value) else value).item()
    return value if isinstance(value, SCALARS) else operator.index(value)


@overload
def linspace(
    start: Any,
    stop: Any,
    num: int = ...,
    endpoint: bool = ...,
    retstep: Literal[False] = ...,
    dtype: Any = ...,
    axis: int = ...,
    *,
    device: Any = ...,
) -> Array: ...
@overload
def linspace(
    start: Any,
    stop: Any,
    num: int = ...,
    endpoint: bool = ...,
    retstep: bool = ...,
    dtype: Any = ...,
    axis: int = ...,
    *,
    device: Any = ...,
) -> Any: ...
@replayed
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """Evenly spaced numbers from start to stop.

    Args: start, stop: numbers or arrays that broadcast; num: number of elements; endpoint: whether stop is
    the last one; retstep: return the step too; axis: the position of the new axis.
    Returns: an array, or (array, step). Raises: ShapeError for negative num.

    >>> import rlx.numpy as jnp
    >>> jnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    check_placement(device)
    num = operator.index(num)
    if num < 0:
        raise ShapeError(f"linspace got num={num}.", "The number of samples cannot be negative.")
    first, last = promote_inexact("linspace", start, stop)
    wanted = first.dtype if dtype is None else to_dtype(dtype)
    if dtype is not None and is_inexact(wanted):
        # at the wanted precision from the start, also where Python numbers have the default one
        wide = np.promote_types(first.dtype, wanted) if wanted.kind in "fc" and first.dtype.kind in "fc" else wanted
        first, last = [convert_to(v, wide) for v in (operand(start), operand(stop))]
    computed, sizes = first.dtype, np.broadcast_shapes(first.shape, last.shape)
    first, last = [broadcast_array(convert_to(x, computed), sizes) for x in (first, last)]
    divisor = num - 1 if endpoint else num
    if num > 1:
        step = arithmetic.divide(arithmetic.subtract(last, first), scalar_array(divisor, computed, True))
        values = _between(first, last, num, divisor, endpoint)
    else:
        step = fill((), np.nan, computed)
        if num == 1 and not endpoint:
            step = arithmetic.subtract(last, first)
        values = broadcast_array(shapes.reshape(first, shape=(1, *sizes)), (1, *sizes)) if num else None
    if values is None:
        values = fill((0, *sizes), 0, computed)
    values = _move_first(values, canonical_axis(axis, values.ndim, "linspace"))
    if not is_inexact(wanted) and dtype_kind(wanted) in "iu":
        values = arithmetic.floor(values)
    values = convert_to(values, wanted)
    return (values, step) if retstep else values


def _between(first: Any, last: Any, num: int, divisor: int, endpoint: bool) -> Any:
    """start * (1 - t) + stop * t with t = i / divisor; the last one exactly stop."""
    dtype, sizes = first.dtype, first.shape
    real = np.dtype(f"f{dtype.itemsize // 2}") if is_complex(dtype) else dtype
    index = count_along((num if not endpoint else num - 1,), 0, real)
    step = arithmetic.divide(index, scalar_array(divisor, real, True))
    step = shapes.reshape(convert_to(step, dtype), shape=(index.shape[0], *(1,) * len(sizes)))
    front, back = [shapes.reshape(x, shape=(1, *sizes)) for x in (first, last)]
    one = scalar_array(1, dtype, True)
    values = arithmetic.add(arithmetic.multiply(front, arithmetic.subtract(one, step)), arithmetic.multiply(back, step))
    return shapes.concatenate(values, back, axis=0) if endpoint else values


def _move_first(x: Any, axis: int) -> Any:
    if axis == 0:
        return x
    order = list(range(1, x.ndim))
    order.insert(axis, 0)
    return shapes.transpose(x, permutation=tuple(order))


@replayed
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Array:
    """base to the powers linspace(start, stop).

    Args: as linspace, and base: a number. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.logspace(0, 2, 3, base=2.0)
    Array([1., 2., 4.], dtype=float32)
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    base, exponents = promote("logspace", operand(base), exponents)
    values = arithmetic.power(base, exponents)
    return values if dtype is None else convert_to(values, to_dtype(dtype))


@replayed
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Array:
    """Numbers from start to stop, each a constant multiple of the one before.

    Args: as linspace. Returns: an array. The ends are exact.

    >>> import rlx.numpy as jnp
    >>> jnp.geomspace(1, 8, 4).round(4)
    Array([1., 2., 4., 8.], dtype=float32)
    """
    first, last = promote_inexact("geomspace", start, stop)
    computed, sizes = first.dtype, np.broadcast_shapes(first.shape, last.shape)
    first, last = [broadcast_array(convert_to(x, computed), sizes) for x in (first, last)]
    signs = arithmetic.sign(first)
    logs = [transcendental.log(arithmetic.divide(x, signs)) for x in (first, last)]
    exponents = linspace(*logs, num=num, endpoint=endpoint)
    values = arithmetic.multiply(transcendental.exp(exponents), signs)
    values = _with_exact_ends(values, first, last, num, endpoint)
    values = _move_first(values, canonical_axis(axis, values.ndim, "geomspace"))
    return values if dtype is None else convert_to(values, to_dtype(dtype))


def _with_exact_ends(values: Any, first: Any, last: Any, num: int, endpoint: bool) -> Any:
    if num == 0:
        return values
    parts = [shapes.reshape(first, shape=(1, *first.shape))]
    inner = num - 1 if endpoint and num > 1 else num
    parts.append(shapes.slice_along(values, 1, inner, 0))
    if inner < num:
        parts.append(shapes.reshape(last, shape=(1, *last.shape)))
    return shapes.concatenate(*parts, axis=0)
