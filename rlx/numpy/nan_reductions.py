"""Reductions that leave NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import Array
from rlx.ir.scalar import neutral
from rlx.ir.types import is_complex, is_inexact
from rlx.numpy import reductions
from rlx.numpy.floats import isnan
from rlx.numpy.placement import refuse_out
from rlx.numpy.promotion import broadcast_array, convert_to, float_of, operand, scalar_array, to_dtype
from rlx.ops import arithmetic, comparison, transcendental
from rlx.ops.arithmetic import select
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = [
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]


def _replaced(name: str, a: Any, reducer: str) -> tuple[Any, Any]:
    """The array with a reducer's neutral element for NaN, and where NaN was (None for dtypes without it)."""
    x = as_array(operand(a, name))
    if not is_inexact(x.dtype):
        return x, None
    missing = isnan(x)
    return select(missing, scalar_array(neutral(reducer, x.dtype), x.dtype, True), x), missing


@replayed
def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The sum of the elements that are not NaN.

    Args: as `sum`. Returns: an array; 0 where all are NaN.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nansum(jnp.array([1.0, jnp.nan])))
    1.0
    """
    refuse_out("nansum", out)
    x, _ = _replaced("nansum", a, "add")
    return reductions.sum(x, axis, dtype, keepdims=keepdims, initial=initial, where=where)


@replayed
def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The product of the elements that are not NaN.

    Args: as `prod`. Returns: an array; 1 where all are NaN.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanprod(jnp.array([2.0, jnp.nan])))
    2.0
    """
    refuse_out("nanprod", out)
    x, _ = _replaced("nanprod", a, "mul")
    return reductions.prod(x, axis, dtype, keepdims=keepdims, initial=initial, where=where)


def _all_missing(missing: Any, axis: Any, keepdims: bool, where: Any, result: Any) -> Any:
    """NaN instead of results for which everything was NaN."""
    if missing is None:
        return result
    nothing = reductions.all(missing, axis, keepdims=keepdims, where=where)
    return select(nothing, scalar_array(np.nan, result.dtype, True), result)


@replayed
def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The largest element that is not NaN.

    Args: as `max`. Returns: an array; NaN where all are NaN.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanmax(jnp.array([1.0, jnp.nan])))
    1.0
    """
    refuse_out("nanmax", out)
    x, missing = _replaced("nanmax", a, "max")
    result = reductions.max(x, axis, keepdims=keepdims, initial=initial, where=where)
    return result if initial is not None else _all_missing(missing, axis, keepdims, where, result)


@replayed
def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The smallest element that is not NaN.

    Args: as `min`. Returns: an array; NaN where all are NaN.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanmin(jnp.array([1.0, jnp.nan])))
    1.0
    """
    refuse_out("nanmin", out)
    x, missing = _replaced("nanmin", a, "min")
    result = reductions.min(x, axis, keepdims=keepdims, initial=initial, where=where)
    return result if initial is not None else _all_missing(missing, axis, keepdims, where, result)


def _position(name: str, find: Any, reducer: str, a: Any, axis: int | None, keepdims: bool | None) -> Any:
    x, missing = _replaced(name, a, reducer)
    found = find(x, axis, keepdims=keepdims)
    if missing is None:
        return found
    nothing = reductions.all(missing, axis, keepdims=bool(keepdims))
    return select(nothing, scalar_array(-1, found.dtype, True), found)


@replayed
def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the first largest element that is not NaN.

    Args: as `argmax`. Returns: an integer array; -1 where all are NaN.

    >>> import rlx.numpy as jnp
    >>> jnp.nanargmax(jnp.array([jnp.nan, 1.0])).item()
    1
    """
    refuse_out("nanargmax", out)
    return _position("nanargmax", reductions.argmax, "max", a, axis, keepdims)


@replayed
def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the first smallest element that is not NaN.

    Args: as `argmin`. Returns: an integer array; -1 where all are NaN.

    >>> import rlx.numpy as jnp
    >>> jnp.nanargmin(jnp.array([jnp.nan, 1.0])).item()
    1
    """
    refuse_out("nanargmin", out)
    return _position("nanargmin", reductions.argmin, "min", a, axis, keepdims)


def _present(missing: Any, axis: Any, keepdims: bool, where: Any, dtype: np.dtype) -> Any:
    return reductions.sum(comparison.bitwise_not(missing), axis, dtype, keepdims=keepdims, where=where)


@replayed
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Array:
    """The mean of the elements that are not NaN.

    Args: as `mean`. Returns: a floating array; NaN where all are NaN.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanmean(jnp.array([1.0, jnp.nan, 3.0])))
    2.0
    """
    refuse_out("nanmean", out)
    x, missing = _replaced("nanmean", a, "add")
    if missing is None:
        return reductions.mean(x, axis, dtype, keepdims=keepdims, where=where)
    total = reductions.sum(x, axis, dtype, keepdims=keepdims, where=where)
    return arithmetic.divide(total, _present(missing, axis, keepdims, where, total.dtype))


@replayed
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False,
    where: Any = None, mean: Any = None, correction: float | None = None,
) -> Array:  # fmt: skip
    """The variance of the elements that are not NaN.

    Args: as `var`. Returns: a floating array; NaN where too few remain.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanvar(jnp.array([1.0, jnp.nan, 3.0])))
    1.0
    """
    refuse_out("nanvar", out)
    x = as_array(operand(a, "nanvar"))
    reductions.check_spread("nanvar", x.dtype, dtype, ddof, correction)
    freedom = ddof if correction is None else correction
    if not is_inexact(x.dtype):
        return reductions.var(x, axis, dtype, ddof=freedom, keepdims=keepdims, where=where, mean=mean)
    center = nanmean(x, axis, keepdims=True, where=where) if mean is None else operand(mean)
    missing = isnan(x)
    center = convert_to(center, x.dtype)
    # NaN are replaced before they meet a function, whose derivative would be NaN
    deviation = arithmetic.subtract(select(missing, broadcast_array(center, x.shape), x), center)
    squares = arithmetic.square(deviation)
    if is_complex(x.dtype):
        parts = arithmetic.real(deviation), arithmetic.imag(deviation)
        squares = arithmetic.add(*[arithmetic.square(p) for p in parts])
    wanted = None if dtype is None else to_dtype(dtype)
    real = None if wanted is None else float_of(wanted)  # the sum of real squares
    total = reductions.sum(squares, axis, real, keepdims=keepdims, where=where)
    count = _present(missing, axis, keepdims, where, total.dtype)
    divisor = arithmetic.subtract(count, scalar_array(freedom, total.dtype, True))
    enough = comparison.less(scalar_array(0, total.dtype, True), divisor)
    nan = scalar_array(np.nan, total.dtype, True)
    result = select(enough, arithmetic.divide(total, divisor), nan)
    return result if wanted is None else convert_to(result, wanted)


@replayed
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False,
    where: Any = None, mean: Any = None, correction: float | None = None,
) -> Array:  # fmt: skip
    """The standard deviation of the elements that are not NaN.

    Args: as `var`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.nanstd(jnp.array([1.0, jnp.nan, 3.0])))
    1.0
    """
    refuse_out("nanstd", out)
    return transcendental.sqrt(
        nanvar(a, axis, dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean, correction=correction)
    )
