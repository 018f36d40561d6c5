"""Statistics of samples: mode, ranks, and the standard error of the mean."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.config import config
from rlx.errors import UnsupportedError
from rlx.ir.types import is_inexact
from rlx.numpy.promotion import canonical_axes, canonical_axis, operand, promote_inexact
from rlx.trace.flat import as_array

__all__ = ["ModeResult", "mode", "rankdata", "sem"]


class ModeResult(NamedTuple):
    """The most frequent values, and how often they occur."""

    mode: Array
    count: Array


def _check_policy(name: str, policy: str) -> None:
    if policy not in ("propagate", "omit", "raise"):
        raise ValueError(f"{name} has no nan_policy {policy!r}: use 'propagate'.")
    if policy != "propagate":
        raise UnsupportedError(f"{name}(nan_policy={policy!r}) is not there.", "Handle NaN before.")


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis; among equally frequent ones the smallest.

    Args: a: array; axis: int (None: all elements); nan_policy: only "propagate": NaN is a value like
    others; keepdims: keep the axis with size 1. Returns: (mode, count); of no elements NaN and 0.
    Raises: ValueError or UnsupportedError for another nan_policy.

    >>> import numpy as np, rlx
    >>> found = rlx.scipy.stats.mode(np.array([3, 1, 3, 2]))
    >>> found.mode.item(), found.count.item()
    (3, 2)
    """
    _check_policy("mode", nan_policy)
    x = jnp.atleast_1d(as_array(operand(a, "mode")))
    kept = [1] * x.ndim
    if axis is None:
        x = jnp.ravel(x)
    else:
        position = canonical_axis(axis, x.ndim, "mode")
        kept = [1 if d == position else n for d, n in enumerate(x.shape)]
        x = jnp.moveaxis(x, position, -1)
    shape = tuple(kept) if keepdims else x.shape[:-1]
    if 0 in x.shape:
        empty = jnp.full(shape, jnp.nan, config.default_float)
        return ModeResult(empty, jnp.zeros(shape, config.default_float))
    ordered = jnp.sort(x, axis=-1)
    places = lax.broadcasted_iota(config.default_int, ordered.shape, ordered.ndim - 1)
    starts = lax.cummax(jnp.where(_begins_run(ordered), places, 0), axis=ordered.ndim - 1)
    # the length of the run so far: largest at the end of the first of the longest runs
    lengths = places - starts + 1
    longest = jnp.argmax(lengths, axis=-1, keepdims=True)
    found, count = (jnp.take_along_axis(v, longest, axis=-1) for v in (ordered, lengths))
    return ModeResult(jnp.reshape(found, shape), jnp.reshape(count, shape))


def _begins_run(ordered: Array) -> Array:
    """Where a sorted array (along its last axis) differs from the element before; NaN equals NaN."""
    before, after = ordered[..., :-1], ordered[..., 1:]
    differs = before != after
    if is_inexact(ordered.dtype):
        differs = differs & ~(jnp.isnan(before) & jnp.isnan(after))
    first = jnp.ones((*ordered.shape[:-1], 1), bool)
    return jnp.concatenate([first, differs], axis=-1)


def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """Ranks from 1 on, in ascending order.

    Args: a: array; method: the rank of equal elements: "average", "min", "max", "dense" (min without
    gaps) or "ordinal" (in order of occurrence); axis: int (None: of all elements, as a 1-d array);
    nan_policy: only "propagate": where there is a NaN, all ranks are NaN. Returns: an array of the
    default float. Raises: ValueError for another method or nan_policy, UnsupportedError for "omit"
    and "raise".

    >>> import numpy as np, rlx
    >>> rlx.scipy.stats.rankdata(np.array([10.0, 30.0, 10.0])).tolist()
    [1.5, 3.0, 1.5]
    """
    _check_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"rankdata has no method {method!r}: use average, min, max, dense or ordinal.")
    x = as_array(operand(a, "rankdata"))
    position = 0 if axis is None else canonical_axis(axis, x.ndim, "rankdata")
    lined = jnp.ravel(x) if axis is None else jnp.moveaxis(x, position, -1)
    ranks = lax.convert_element_type(_ranks(lined, method), config.default_float)
    if is_inexact(lined.dtype):
        ranks = jnp.where(jnp.any(jnp.isnan(lined), axis=-1, keepdims=True), jnp.nan, ranks)
    return ranks if axis is None else jnp.moveaxis(ranks, -1, position)


def _ranks(x: Array, method: str) -> Array:
    """Ranks along the last axis."""
    if not x.shape[-1]:
        return x
    last = x.ndim - 1
    order = jnp.argsort(x, axis=-1, stable=True)
    back = jnp.argsort(order, axis=-1, stable=True)
    if method == "ordinal":
        return back + 1
    begins = _begins_run(jnp.take_along_axis(x, order, axis=-1))
    if method == "dense":
        return jnp.take_along_axis(jnp.cumsum(begins, axis=-1), back, axis=-1)
    places = lax.broadcasted_iota(config.default_int, x.shape, last)
    lowest = lax.cummax(jnp.where(begins, places, 0), axis=last) + 1
    ends = jnp.concatenate([begins[..., 1:], jnp.ones((*x.shape[:-1], 1), bool)], axis=-1)
    highest = lax.cummin(jnp.where(ends, places, x.shape[-1]), axis=last, reverse=True) + 1
    chosen = {"min": lowest, "max": highest, "average": (lowest + highest) / 2}[method]
    return jnp.take_along_axis(chosen, back, axis=-1)


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Array:
    """The standard error of the mean: the standard deviation over the root of the number of elements.

    Args: a: array; axis: int (None: all); ddof: delta degrees of freedom of the deviation;
    nan_policy: "propagate", or "omit" to leave NaN out; keepdims: keep the axis with size 1. Returns: a
    floating array. Raises: ValueError for another nan_policy.

    >>> import numpy as np, rlx
    >>> round(rlx.scipy.stats.sem(np.array([1.0, 2.0, 3.0])).item(), 4)
    0.5774
    """
    (x,) = promote_inexact("sem", a)
    if nan_policy == "propagate":
        size = math.prod(x.shape[i] for i in canonical_axes(axis, x.ndim, "sem"))
        deviation = jnp.std(x, axis=axis, ddof=ddof, keepdims=keepdims)
        return deviation / np.sqrt(size).item() if size else deviation * jnp.nan
    if nan_policy != "omit":
        raise ValueError(f"sem has no nan_policy {nan_policy!r}: use 'propagate' or 'omit'.")
    count = jnp.sum(~jnp.isnan(x), axis=axis, keepdims=keepdims)
    deviation = jnp.nanstd(x, axis=axis, ddof=ddof, keepdims=keepdims)
    return deviation / jnp.sqrt(lax.convert_element_type(count, x.dtype))
