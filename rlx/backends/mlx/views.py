"""Index maps as operations of MLX: a buffer read or written through strides.

A buffer's elements are an array of any shape, in row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlx.backends.mlx.library import MxArray, mx

__all__ = [
    "Dimension",
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
    """The shape of what an index map reads: 1 along dimensions that it does not move along."""
    return tuple(n if s else 1 for n, s in zip(extents, strides, strict=True))


def flat(array: MxArray) -> MxArray:
    """The elements in one dimension."""
    return array if array.ndim == 1 else mx.reshape(array, (-1,))


def reshaped(array: MxArray, shape: tuple[int, ...]) -> MxArray:
    """The elements in another shape."""
    return array if array.shape == shape else mx.reshape(array, shape)


def dimensions_of_whole(extents: Sequence[int], strides: Sequence[int], offset: int, size: int) -> list[int] | None:
    """The dimensions along which an index map reaches each of `size` elements once, outermost first; None if not so."""
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
    """What an index map reads: a reshape, a slice and a transposition where that is everything, else a strided view."""
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
    # a view of strides wants dense rows: a view itself, or a value that was broadcast, is made so
    steps = tuple(s if n != 1 else 0 for n, s in zip(shape, strides, strict=True))
    return mx.as_strided(mx.contiguous(flat(array)), shape, steps, offset)


def entries(
    array: MxArray, extents: Sequence[int], strides: Sequence[int], offset: int, distance: int, count: int | None
) -> MxArray | None:
    """What an index map reads in each of `count` entries that lie `distance` apart; None where entries meet.

    The first dimension are the entries; those that there is room for, if nothing says how many there are.
    """
    moving = _moving(extents, strides)
    first = offset + sum((d.size - 1) * d.stride for d in moving if d.stride < 0)
    reach = sum((d.size - 1) * abs(d.stride) for d in moving)
    room = (array.size - 1 - first - reach) // distance + 1
    inner = sum((d.size - 1) * abs(d.stride) for d in moving if abs(d.stride) < distance)
    size = room if count is None else count
    if first < 0 or not 0 < size <= room or inner >= distance:
        return None
    if any(distance <= abs(d.stride) < size * distance for d in moving):
        return None
    return read(array, (size, *extents), (distance, *strides), offset)


def _in_order(array: MxArray, moving: Sequence[Dimension], shape: tuple[int, ...]) -> MxArray:
    """Elements that lie as `moving` says, in the shape of the loop."""
    order = [d.number for d in moving]
    if order == sorted(order):
        return reshaped(array, shape)
    order += [n for n in range(len(shape)) if n not in order]
    places = [order.index(n) for n in range(len(shape))]
    return mx.transpose(reshaped(array, tuple(shape[n] for n in order)), places)


def _turned(array: MxArray, moving: Sequence[Dimension]) -> MxArray:
    """Backwards along the dimensions of negative strides."""
    if all(d.stride > 0 for d in moving):
        return array
    return array[tuple(slice(None, None, -1 if d.stride < 0 else None) for d in moving)]


def overwrite(
    array: MxArray | None, size: int, extents: Sequence[int], strides: Sequence[int], offset: int, value: MxArray
) -> MxArray | None:
    """A buffer of `size` after a value is written through an injective index map; None where that is no slice.

    The value has the shape that `shape_of` says. The buffer's array is None before it is first written.
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
    """A shape of the buffer of which the index map is a slice, and that slice; None where there is none."""
    steps = [abs(d.stride) for d in moving]
    first = offset - sum((d.size - 1) * -d.stride for d in moving if d.stride < 0)
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
    """Numbers of the elements that an index map reaches, counting dimension 0 from `begin` on."""
    rank = len(extents)
    total = mx.array(offset, mx.int64)
    for number, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        if stride:
            start = begin if number == 0 else 0
            along = mx.arange(start * stride, (start + extent) * stride, stride, dtype=mx.int64)
            total = total + mx.reshape(along, (extent,) + (1,) * (rank - number - 1))
    return total
