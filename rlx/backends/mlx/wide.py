"""Scatters of 8-byte integers, which MLX lacks on Metal: its scatters take numbers of at most 4 bytes.

Numbers are written as pairs of words. Extrema compare the upper words, then the lower ones of equal upper words. Sums
are differences of running sums over the sorted places, which are exact, even if integers overflow.
"""

from __future__ import annotations

from rlx.backends.mlx.library import MxArray, is_on_gpu, mx

__all__ = ["is_refused", "place_wide", "scatter_wide"]


def is_refused(itemsize: int) -> bool:
    """Whether MLX's scatters refuse numbers of this size in bytes on the current unit."""
    return itemsize == 8 and is_on_gpu()


def place_wide(memory: MxArray, where: MxArray, numbers: MxArray) -> MxArray:
    """Memory with numbers at places along its first dimension; equal places have equal numbers."""
    numbers = mx.broadcast_to(numbers, (*where.shape, *memory.shape[1:]))
    words = _words(memory)
    words[where] = mx.reshape(_words(numbers), (*where.shape, *words.shape[1:]))
    return _joined(words, memory)


def scatter_wide(reducer: str, memory: MxArray, places: MxArray, numbers: MxArray) -> MxArray:
    """Memory with numbers combined into it at places along its first dimension: sums or extrema."""
    places = places.astype(mx.int64)
    places = mx.where(places < 0, places + memory.shape[0], places)
    return _sums(memory, places, numbers) if reducer == "add" else _extrema(reducer, memory, places, numbers)


def _sums(memory: MxArray, places: MxArray, numbers: MxArray) -> MxArray:
    ordered = mx.take(numbers, mx.argsort(places), axis=0)
    running = mx.concatenate([mx.zeros((1, *numbers.shape[1:]), numbers.dtype), mx.cumsum(ordered, axis=0)])
    counts = mx.zeros((memory.shape[0],), mx.int32).at[places].add(1)
    ends = mx.cumsum(counts)
    return memory + mx.take(running, ends, axis=0) - mx.take(running, ends - counts, axis=0)


def _extrema(reducer: str, memory: MxArray, places: MxArray, numbers: MxArray) -> MxArray:
    word = mx.int32 if memory.dtype == mx.int64 else mx.uint32
    (low, high), (new_low, new_high) = (_halves(array, word) for array in (memory, numbers))
    upper = _combined(reducer, high, places, new_high)
    nothing = mx.array(0 if reducer == "max" else 0xFFFFFFFF, mx.uint32)
    low = mx.where(high == upper, low, nothing)
    new_low = mx.where(new_high == mx.take(upper, places, axis=0), new_low, nothing)
    lower = _combined(reducer, low, places, new_low)
    return _joined(mx.stack([lower, mx.view(upper, mx.uint32)], axis=-1), memory)


def _combined(reducer: str, memory: MxArray, places: MxArray, numbers: MxArray) -> MxArray:
    at = memory.at[places]
    return at.maximum(numbers) if reducer == "max" else at.minimum(numbers)


def _words(array: MxArray) -> MxArray:
    """The lower and the upper word of each number, along a new last dimension."""
    return mx.reshape(mx.view(mx.contiguous(mx.reshape(array, (-1,))), mx.uint32), (*array.shape, 2))


def _halves(array: MxArray, upper: MxArray) -> tuple[MxArray, MxArray]:
    """The lower words, and the upper ones as numbers of an MLX dtype."""
    words = _words(array)
    return words[..., 0], mx.view(mx.contiguous(words[..., 1]), upper)


def _joined(words: MxArray, like: MxArray) -> MxArray:
    """Numbers from their words, with the dtype and the shape of another array."""
    return mx.reshape(mx.view(mx.contiguous(mx.reshape(words, (-1,))), like.dtype), like.shape)
