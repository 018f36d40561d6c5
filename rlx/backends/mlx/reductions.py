"""Reductions and running combinations over MLX, in the dtype of the combined values."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from rlx.backends.mlx.library import MxArray, dtype_of_memory, mx
from rlx.backends.mlx.scalar import combine, constant
from rlx.backends.mlx.wide import is_refused, scatter_wide
from rlx.ir.scalar import neutral
from rlx.ir.types import dtype_kind

__all__ = ["cumulate", "reduce", "scatter"]


def reduce(reducer: str, array: MxArray, axes: tuple[int, ...], dtype: np.dtype) -> MxArray:
    """The combination of an array over axes, which are kept with size 1."""
    if not axes:
        return array
    if any(array.shape[n] == 0 for n in axes):
        shape = tuple(1 if n in axes else size for n, size in enumerate(array.shape))
        return mx.broadcast_to(constant(neutral(reducer, dtype), dtype), shape)
    if 0 in array.shape:
        return mx.zeros(tuple(1 if n in axes else size for n, size in enumerate(array.shape)), array.dtype)
    if dtype_kind(dtype) == "b":
        reducer = {"and": "min", "or": "max"}.get(reducer, reducer)
    native = _BOOLS if dtype_kind(dtype) == "b" else _REDUCTIONS
    if reducer not in native:
        return _halved(reducer, array, axes)
    result = native[reducer](array, axis=axes, keepdims=True)
    wanted = dtype_of_memory(dtype)
    # MLX widens sums and products of small integers
    return result if result.dtype == wanted else result.astype(wanted)


def _halved(reducer: str, array: MxArray, axes: tuple[int, ...]) -> MxArray:
    """Halves combined until one element is left: for reducers that MLX lacks."""
    kept = [n for n in range(array.ndim) if n not in axes]
    shape = tuple(1 if n in axes else size for n, size in enumerate(array.shape))
    rows = mx.reshape(mx.transpose(array, [*kept, *axes]), (prod(shape), -1))
    while (size := rows.shape[1]) > 1:
        half = size // 2
        combined = combine(reducer, rows[:, :half], rows[:, half : 2 * half])
        rows = mx.concatenate([combined, rows[:, 2 * half :]], axis=1) if size % 2 else combined
    return mx.reshape(rows, shape)


_REDUCTIONS: dict[str, Callable[..., MxArray]] = {"add": mx.sum, "mul": mx.prod, "min": mx.min, "max": mx.max}
_BOOLS: dict[str, Callable[..., MxArray]] = {"min": mx.all, "max": mx.any}


def cumulate(reducer: str, array: MxArray, dtype: np.dtype) -> MxArray:
    """The running combination along the last axis."""
    if 0 in array.shape:
        return array
    if dtype_kind(dtype) == "b":
        reducer = {"and": "min", "or": "max"}.get(reducer, reducer)
    if reducer in _CUMULATIONS:
        result = _CUMULATIONS[reducer](array, axis=-1)
        wanted = dtype_of_memory(dtype)
        return result if result.dtype == wanted else result.astype(wanted)
    size, step = array.shape[-1], 1
    while step < size:
        combined = combine(reducer, array[..., :-step], array[..., step:])
        array = mx.concatenate([array[..., :step], combined], axis=-1)
        step *= 2
    return array


_CUMULATIONS: dict[str, Callable[..., MxArray]] = {
    "add": mx.cumsum,
    "mul": mx.cumprod,
    "min": mx.cummin,
    "max": mx.cummax,
}


def scatter(reducer: str, memory: MxArray, places: MxArray, numbers: MxArray) -> MxArray:
    """Memory of one dimension with numbers combined into it at places."""
    if is_refused(memory.dtype.size):
        return scatter_wide(reducer, memory, places, numbers)
    result = _SCATTERS[reducer](memory.at[places], numbers)
    if reducer not in ("min", "max") or not mx.issubdtype(memory.dtype, mx.floating):
        return result
    # MLX loses a NaN that is followed by a number
    undefined = mx.isnan(memory).at[places].maximum(mx.isnan(numbers))
    return mx.where(undefined, constant(np.nan, np.dtype(np.float32)).astype(memory.dtype), result)


_SCATTERS: dict[str, Callable[..., MxArray]] = {
    "add": lambda at, numbers: at.add(numbers),
    "mul": lambda at, numbers: at.multiply(numbers),
    "min": lambda at, numbers: at.minimum(numbers),
    "max": lambda at, numbers: at.maximum(numbers),
    # of bools; bitwise scatters of integers run on the host
    "and": lambda at, numbers: at.minimum(numbers),
    "or": lambda at, numbers: at.maximum(numbers),
}
