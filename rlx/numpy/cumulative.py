"""Running sums, products and differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import Array
from rlx.config import config
from rlx.errors import ShapeError
from rlx.ir.types import is_inexact
from rlx.numpy.floats import isnan
from rlx.numpy.manipulation import ravel
from rlx.numpy.placement import refuse_out
from rlx.numpy.promotion import (
    beside_arrays,
    broadcast_array,
    canonical_axis,
    convert_to,
    fill,
    operand,
    promote,
    scalar_array,
    to_dtype,
)
from rlx.numpy.reductions import summed_dtype
from rlx.ops import arithmetic, comparison, cumulative
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = [
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "ediff1d",
    "nancumprod",
    "nancumsum",
]


def _run(name: str, primitive: Any, a: Any, axis: int | None, dtype: Any) -> Any:
    x = as_array(operand(a, name))
    if axis is None:
        x, axis = ravel(x), 0
    number = canonical_axis(axis, x.ndim, name)
    wanted = to_dtype(dtype) if dtype is not None else config.default_int if x.dtype.kind == "b" else x.dtype
    if wanted.kind == "b":
        x = convert_to(x, wanted)
    working = np.dtype("i4") if wanted.kind == "b" else wanted
    return convert_to(primitive(convert_to(x, working), axis=number, reverse=False), wanted)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running sums.

    Args: a: array; axis: int (None: all elements in a row); dtype: of the sums.
    Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.cumsum(jnp.arange(4))
    Array([0, 1, 3, 6], dtype=int32)
    """
    refuse_out("cumsum", out)
    return _run("cumsum", cumulative.cumsum, a, axis, dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running products.

    Args: as `cumsum`. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.cumprod(jnp.arange(1, 5))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    refuse_out("cumprod", out)
    return _run("cumprod", cumulative.cumprod, a, axis, dtype)


def _without_nan(a: Any, value: int) -> Any:
    x = as_array(operand(a))
    return select(isnan(x), scalar_array(value, x.dtype, True), x) if is_inexact(x.dtype) else x


@replayed
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running sums in which NaN counts as 0.

    Args: as `cumsum`. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.nancumsum(jnp.array([1.0, jnp.nan, 2.0]))
    Array([1., 1., 3.], dtype=float32)
    """
    refuse_out("nancumsum", out)
    return cumsum(_without_nan(a, 0), axis, dtype)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running products in which NaN counts as 1.

    Args: as `cumsum`. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 2.0]))
    Array([2., 2., 4.], dtype=float32)
    """
    refuse_out("nancumprod", out)
    return cumprod(_without_nan(a, 1), axis, dtype)


def _standard(name: str, run: Any, start: int, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    array = as_array(operand(x, name))
    if array.ndim == 0 or (axis is None and array.ndim > 1):
        raise ShapeError(f"{name} got an array of shape {array.shape}.", "Name the axis to run along.")
    number = canonical_axis(0 if axis is None else axis, array.ndim, name)
    result = run(array, number, dtype)
    if not include_initial:
        return result
    shape = tuple(1 if i == number else n for i, n in enumerate(result.shape))
    return shapes.concatenate(fill(shape, start, result.dtype), result, axis=number)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """Running sums, by the array API standard.

    Args: x: array; axis: int, needed if x has several axes; dtype; include_initial: begin with 0.
    Returns: an array; small integers widen to the default one. Raises: ShapeError without axis for
    several axes.

    >>> import rlx.numpy as jnp
    >>> jnp.cumulative_sum(jnp.array([1, 2]), include_initial=True)
    Array([0, 1, 3], dtype=int32)
    """
    widened = summed_dtype(as_array(operand(x, "cumulative_sum")).dtype) if dtype is None else dtype
    return _standard("cumulative_sum", cumsum, 0, x, axis, widened, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """Running products, by the array API standard.

    Args: as `cumulative_sum`; the initial value is 1. Returns: an array; as in JAX, integers keep their dtype.

    >>> import rlx.numpy as jnp
    >>> jnp.cumulative_prod(jnp.array([2, 3]), include_initial=True)
    Array([1, 2, 6], dtype=int32)
    """
    return _standard("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


# ------------------------------------------------------------------ differences
@replayed
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Differences of neighbours.

    Args: a: array; n: how many times; axis; prepend, append: values put at the ends first.
    Returns: an array, shorter by n along the axis. Raises: ShapeError for negative n or 0-d a.

    >>> import rlx.numpy as jnp
    >>> jnp.diff(jnp.array([1, 4, 9]))
    Array([3, 5], dtype=int32)
    """
    x = as_array(operand(a, "diff"))
    if n < 0 or x.ndim == 0:
        raise ShapeError(f"diff got n={n} and an array of shape {x.shape}.", "Use n >= 0 and an axis.")
    if n == 0:
        return x
    number = canonical_axis(axis, x.ndim, "diff")
    parts = [x]
    _, prepend, append = beside_arrays(x, prepend, append)
    for end, front in ((prepend, True), (append, False)):
        if end is not None:
            part = as_array(operand(end, "diff"))
            if part.ndim == 0:
                part = broadcast_array(part, tuple(1 if i == number else s for i, s in enumerate(x.shape)))
            parts = [part, *parts] if front else [*parts, part]
    if len(parts) > 1:
        x = shapes.concatenate(*promote("diff", *parts), axis=number)
    subtract = comparison.not_equal if x.dtype.kind == "b" else arithmetic.subtract
    for _ in range(n):
        size = x.shape[number]
        if size == 0:
            break
        x = subtract(shapes.slice_along(x, 1, size, number), shapes.slice_along(x, 0, size - 1, number))
    return x


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """Differences of neighbours of all elements in a row.

    Args: ary: array; to_end, to_begin: values put after and before the differences.
    Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.ediff1d(jnp.array([1, 4, 9]))
    Array([3, 5], dtype=int32)
    """
    x = ravel(ary)
    parts = [diff(x)]
    if to_begin is not None:
        parts = [ravel(convert_to(operand(to_begin), x.dtype)), *parts]
    if to_end is not None:
        parts = [*parts, ravel(convert_to(operand(to_end), x.dtype))]
    return parts[0] if len(parts) == 1 else shapes.concatenate(*parts, axis=0)
