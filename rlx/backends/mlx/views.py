"""Index maps as operations of MLX: a buffer read or written through strides.

A buffer's elements are an array of any shape, in row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlx.backends.mlx.library import MxArray, mx

__all__ = [
    "Dimension",
    "EntryTable",
    "addresses",
    "dimensions_of_whole",
    "entries",
    "flat",
    "overwrite",
    "read",
    "reshaped",
    "shape_of",
]


class Dimension(NamedTuple):
    """A loop dimension that an index map moves along."""

    number: int
    size: int
    stride: int


def _moving(extents: Sequence[int], strides: Sequence[int]) -> list[Dimension]:
    """The dimensions along which addresses differ, the longest stride first."""
    pairs = zip(extents, strides, strict=True)
    found = [Dimension(number, size, stride) for number, (size, stride) in enumerate(pairs) if stride and size != 1]
    return sorted(found, key=lambda d: -abs(d.stride))


def shape_of(extents: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The shape of an index map's elements: 1 along dimensions that do not move it."""
    return tuple(n if s else 1 for n, s in zip(extents, strides, strict=True))


def flat(array: MxArray) -> MxArray:
    """The elements in one dimension."""
    return array if array.ndim == 1 else mx.reshape(array, (-1,))


def reshaped(array: MxArray, shape: tuple[int, ...]) -> MxArray:
    """The elements in another shape."""
    return array if array.shape == shape else mx.reshape(array, shape)


def dimensions_of_whole(extents: Sequence[int], strides: Sequence[int], offset: int, size: int) -> list[int] | None:
    """The dimensions along which an index map reaches each of `size` elements once, outermost first; None otherwise."""
    moving = _moving(extents, strides)
    return [d.number for d in moving] if _is_whole(moving, offset, size) else None


def _is_whole(moving: Sequence[Dimension], offset: int, size: int) -> bool:
    """Whether an index map reaches each element of a buffer once."""
    step = 1
    for dimension in reversed(moving):
        if dimension.stride != step:
            return False
        step *= dimension.size
    return offset == 0 and step == size


def read(array: MxArray, extents: Sequence[int], strides: Sequence[int], offset: int) -> MxArray:
    """The elements of an index map: a reshape, a slice and a transposition if possible, else a strided view."""
    shape = shape_of(extents, strides)
    if 0 in shape:
        return mx.zeros(shape, array.dtype)
    moving = _moving(extents, strides)
    if _is_whole(moving, offset, array.size):
        return _in_order(array, moving, shape)
    places = _slices(moving, offset, array.size)
    if places is not None:
        radices, slices = places
        part = reshaped(array, radices)[slices]
        return _in_order(_turned(part, moving), moving, shape)
    lowest, highest = _reach(moving, offset)
    assert 0 <= lowest and highest < array.size, "MLX does not check the bounds of a strided view"
    # a strided view needs a dense array: other views and broadcast values are copied first
    steps = tuple(s if n != 1 else 0 for n, s in zip(shape, strides, strict=True))
    return mx.as_strided(mx.contiguous(flat(array)), shape, steps, offset)


class EntryTable(NamedTuple):
    """Entries of a buffer along a first dimension; `origin`: the position of entry 0."""

    entries: MxArray
    origin: int

    def places(self, numbers: MxArray, distance: int) -> MxArray:
        """The positions of entries in the table, from their indices and the distance between them."""
        if distance > 0 and not self.origin:
            return numbers
        wide = numbers.astype(mx.int64)
        return self.origin + wide if distance > 0 else self.origin - wide


def entries(
    array: MxArray, extents: Sequence[int], strides: Sequence[int], offset: int, distance: int, count: int | None
) -> EntryTable | None:
    """The elements that an index map reads in each entry of a table; None if entries overlap or do not fit.

    Entry n starts `distance * n` elements after `offset`, or before it if `distance` is negative. The indices are
    known to be from 0 to `count` - 1. If `count` is None, they may be negative and the table has all entries of the
    buffer.
    """
    moving = _moving(extents, strides)
    apart = abs(distance)
    lowest, highest = _reach(moving, offset)
    before, behind = lowest // apart, (array.size - 1 - highest) // apart
    if count is not None:
        wanted = (count - 1, 0) if distance < 0 else (0, count - 1)
        if wanted[0] > before or wanted[1] > behind:
            return None
        before, behind = wanted
    size = before + 1 + behind
    inner = sum((d.size - 1) * abs(d.stride) for d in moving if abs(d.stride) < apart)
    if before < 0 or behind < 0 or inner >= apart:
        return None
    if any(apart <= abs(d.stride) < size * apart for d in moving):
        return None
    table = read(array, (size, *extents), (apart, *strides), offset - before * apart)
    return EntryTable(table, before)


def _reach(moving: Sequence[Dimension], offset: int) -> tuple[int, int]:
    """The first and the last element that an index map reaches."""
    steps = [(d.size - 1) * d.stride for d in moving]
    return offset + sum(s for s in steps if s < 0), offset + sum(s for s in steps if s > 0)


def _in_order(array: MxArray, moving: Sequence[Dimension], shape: tuple[int, ...]) -> MxArray:
    """The elements in the layout `moving`, in the shape of the loop."""
    order = [d.number for d in moving]
    if order == sorted(order):
        return reshaped(array, shape)
    order += [n for n in range(len(shape)) if n not in order]
    places = [order.index(n) for n in range(len(shape))]
    return mx.transpose(reshaped(array, tuple(shape[n] for n in order)), places)


def _turned(array: MxArray, moving: Sequence[Dimension]) -> MxArray:
    """Reverse the dimensions of negative strides."""
    if all(d.stride > 0 for d in moving):
        return array
    return array[tuple(slice(None, None, -1 if d.stride < 0 else None) for d in moving)]


def overwrite(
    array: MxArray | None, size: int, extents: Sequence[int], strides: Sequence[int], offset: int, value: MxArray
) -> MxArray | None:
    """A buffer of `size` after a value is written through an injective index map; None if that is not a slice.

    The value has the shape of `shape_of`. The buffer's array is None before it is first written.
    """
    moving = _moving(extents, strides)
    if 0 in value.shape:
        return array if array is not None else mx.zeros((size,), value.dtype)
    order = [d.number for d in moving]
    order += [n for n in range(value.ndim) if n not in order]
    if _is_whole(moving, offset, size):
        return value if order == sorted(order) else mx.transpose(value, order)
    places = _slices(moving, offset, size)
    if places is None:
        return None
    radices, slices = places
    whole = mx.zeros(radices, value.dtype) if array is None else mx.reshape(array, radices)
    ordered = value if order == sorted(order) else mx.transpose(value, order)
    whole[slices] = _turned(mx.reshape(ordered, tuple(d.size for d in moving)), moving)
    return whole


def _slices(
    moving: Sequence[Dimension], offset: int, size: int
) -> tuple[tuple[int, ...], tuple[slice | int, ...]] | None:
    """A shape of the buffer in which the index map is a slice, and that slice; None if there is none."""
    steps = [abs(d.stride) for d in moving]
    first, _ = _reach(moving, offset)
    lengths = [size, *steps]
    radices: list[int] = []
    slices: list[slice | int] = []
    for place, dimension in enumerate(moving):
        length, step = lengths[place], steps[place]
        if length % step:
            return None
        begin = first % length // step
        if begin + dimension.size > length // step:
            return None
        radices.append(length // step)
        slices.append(slice(begin, begin + dimension.size))
    rest = lengths[-1]
    if rest > 1:
        radices.append(rest)
        slices.append(first % rest)
    return tuple(radices), tuple(slices)


def addresses(extents: Sequence[int], strides: Sequence[int], offset: int, begin: int) -> MxArray:
    """Indices of the elements that an index map reaches, with dimension 0 starting at `begin`."""
    rank = len(extents)
    total = mx.array(offset, mx.int64)
    for number, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        if stride:
            start = begin if number == 0 else 0
            along = mx.arange(start * stride, (start + extent) * stride, stride, dtype=mx.int64)
            total = total + mx.reshape(along, (extent,) + (1,) * (rank - number - 1))
    return total
