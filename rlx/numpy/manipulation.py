"""Shapes: reshaping, moving axes, broadcasting, flipping, repeating."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.array import Array, is_array_or_numpy
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.size_functions import whole_number
from rlx.numpy.placement import check_placement
from rlx.numpy.promotion import (
    broadcast_array,
    broadcast_operands,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    operand,
)
from rlx.ops import shape as shapes
from rlx.trace.flat import as_array, is_float0
from rlx.trace.replay import replayed, replayed_in_traces

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "rollaxis",
    "rot90",
    "squeeze",
    "swapaxes",
    "tile",
    "transpose",
]


def _array(value: Any, name: str) -> Array:
    return as_array(operand(value, name))


# ------------------------------------------------------------------ reshaping
def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Array:
    """The same elements in another shape.

    Args: a: array; shape: int or ints, one of them may be -1; order: "C", "F" (first axis fastest).
    Returns: an array. Raises: ShapeError if the sizes are incompatible.

    >>> import rlx.numpy as jnp
    >>> jnp.reshape(jnp.arange(4), (2, -1))
    Array([[0, 1],
           [2, 3]], dtype=int32)
    """
    check_placement(None, out_sharding)
    x = _array(a, "reshape")
    sizes = fitting_shape(x, shape)
    if order == "F":
        backwards = shapes.reshape(transpose(x), shape=sizes[::-1])
        return transpose(backwards)
    if order not in ("C", "A", "K"):
        raise UnsupportedError(f"reshape has no order {order!r}.", 'Use "C" or "F".')
    return x if sizes == x.shape else shapes.reshape(x, shape=sizes)


def fitting_shape(x: Any, shape: Any) -> tuple[int, ...]:
    """A shape argument with its -1 replaced."""
    if is_array_or_numpy(shape):
        sizes = canonical_shape(shape, "reshape", smallest=-1)
    elif isinstance(shape, Iterable):
        sizes = tuple(map(whole_number, shape))
    else:
        sizes = (whole_number(shape),)
    if -1 not in sizes:
        return sizes
    rest = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) > 1 or rest == 0 or x.size % rest:
        raise ShapeError(
            f"reshape cannot bring shape {x.shape} to {sizes}.",
            "At most one size may be -1, and the others must divide the number of elements.",
        )
    return tuple(x.size // rest if n == -1 else n for n in sizes)


def ravel(a: Any, order: str = "C", *, out_sharding: Any = None) -> Array:
    """All elements in one axis.

    Args: a: array; order: "C" or "F". Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.ravel(jnp.ones((2, 2))).shape
    (4,)
    """
    return reshape(a, (_array(a, "ravel").size,), order, out_sharding=out_sharding)


def expand_dims(a: Any, axis: Any) -> Array:
    """Axes of size 1 inserted.

    Args: a: array; axis: int or ints, positions in the result. Returns: an array.
    Raises: ShapeError for an axis that the result does not have.

    >>> import rlx.numpy as jnp
    >>> jnp.expand_dims(jnp.ones(3), (0, -1)).shape
    (1, 3, 1)
    """
    x = _array(a, "expand_dims")
    count = len(axis) if isinstance(axis, Sequence) else 1
    return shapes.expand_dims(x, canonical_axes(axis, x.ndim + count, "expand_dims"))


@replayed_in_traces
def squeeze(a: Any, axis: Any = None) -> Array:
    """Axes of size 1 removed.

    Args: a: array; axis: int or ints (None: all of size 1). Returns: an array.
    Raises: ShapeError for an axis of another size.

    >>> import rlx.numpy as jnp
    >>> jnp.squeeze(jnp.ones((1, 3, 1))).shape
    (3,)
    """
    x = _array(a, "squeeze")
    if axis is None:
        axes: tuple[int, ...] = tuple(i for i, n in enumerate(x.shape) if n == 1)
    else:
        axes = canonical_axes(axis, x.ndim, "squeeze")
    return shapes.squeeze(x, axes) if axes else x


# ------------------------------------------------------------------ moving axes
def transpose(a: Any, axes: Sequence[int] | None = None) -> Array:
    """Axes in another order.

    Args: a: array; axes: the new order (None: reversed). Returns: an array.
    Raises: ShapeError unless axes is a permutation.

    >>> import rlx.numpy as jnp
    >>> jnp.transpose(jnp.ones((2, 3))).shape
    (3, 2)
    """
    x = _array(a, "transpose")
    if axes is None:
        order = tuple(range(x.ndim))[::-1]
    else:
        order = tuple(canonical_axis(i, x.ndim, "transpose") for i in axes)
    return x if order == tuple(range(x.ndim)) else shapes.transpose(x, permutation=order)


def permute_dims(a: Any, /, axes: Sequence[int]) -> Array:
    """Axes in another order; `transpose` in the array API standard.

    Args: a: array; axes: the new order. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.permute_dims(jnp.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Array:
    """The last two axes swapped.

    Args: x: array of two or more axes. Returns: an array. Raises: ShapeError for fewer axes.

    >>> import rlx.numpy as jnp
    >>> jnp.matrix_transpose(jnp.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    array = _array(x, "matrix_transpose")
    if array.ndim < 2:
        raise ShapeError(f"matrix_transpose got an array of shape {array.shape}.", "It needs two axes or more.")
    return swapaxes(array, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """Two axes swapped.

    Args: a: array; axis1, axis2: ints. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.swapaxes(jnp.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = _array(a, "swapaxes")
    first, second = [canonical_axis(i, x.ndim, "swapaxes") for i in (axis1, axis2)]
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return transpose(x, order)


def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    """Axes moved to other positions, the others in order.

    Args: a: array; source, destination: int or ints. Returns: an array; of dtype float0, as tangents of integers
      have it, one of NumPy's.
    Raises: ShapeError if their numbers differ.

    >>> import rlx.numpy as jnp
    >>> jnp.moveaxis(jnp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    if is_float0(a):
        return np.moveaxis(a, source, destination)  # programs have no float0: NumPy's result
    x = _array(a, "moveaxis")
    origin = canonical_axes(source, x.ndim, "moveaxis")
    target = canonical_axes(destination, x.ndim, "moveaxis")
    if len(origin) != len(target):
        raise ShapeError(
            f"moveaxis got {len(origin)} axes to move to {len(target)} positions.",
            "Give one position for each axis.",
        )
    order = [i for i in range(x.ndim) if i not in origin]
    for position, axis in sorted(zip(target, origin, strict=True)):
        order.insert(position, axis)
    return transpose(x, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """An axis moved before another one.

    Args: a: array; axis: to move; start: the axis before which it is inserted. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.rollaxis(jnp.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = _array(a, "rollaxis")
    moved = canonical_axis(axis, x.ndim, "rollaxis")
    before = start + x.ndim if start < 0 else start
    if not 0 <= before <= x.ndim:
        raise ShapeError(f"rollaxis got start={start} for {x.ndim} axes.", "It must be an axis.")
    return moveaxis(x, moved, before - 1 if moved < before else before)


# ------------------------------------------------------------------ broadcasting
@replayed
def broadcast_to(array: Any, shape: Any, *, out_sharding: Any = None) -> Array:
    """An array repeated along new axes and axes of size 1.

    Args: array; shape: int or ints. Returns: an array of that shape.
    Raises: ShapeError if it does not broadcast.

    >>> import rlx.numpy as jnp
    >>> jnp.broadcast_to(jnp.arange(2), (2, 2))
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    check_placement(None, out_sharding)
    return broadcast_array(_array(array, "broadcast_to"), canonical_shape(shape, "broadcast_to"))


def broadcast_arrays(*args: Any) -> list[Array]:
    """Arrays broadcast against one another.

    Args: args: arrays. Returns: a list of arrays of one shape.
    Raises: ShapeError if they do not broadcast.

    >>> import rlx.numpy as jnp
    >>> [x.shape for x in jnp.broadcast_arrays(jnp.ones(3), jnp.ones((2, 1)))]
    [(2, 3), (2, 3)]
    """
    return broadcast_operands([_array(x, "broadcast_arrays") for x in args], "broadcast_arrays")


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape to which shapes broadcast.

    Args: shapes: tuples of ints. Returns: a tuple. Raises: ShapeError if there is none.

    >>> import rlx.numpy as jnp
    >>> jnp.broadcast_shapes((3,), (2, 1))
    (2, 3)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"Incompatible shapes for broadcasting: {', '.join(map(str, shapes))}.",
            "Axes are aligned from the last one and must be equal or 1.",
        ) from None


def _at_least(name: str, arys: Sequence[Any], lift: Any) -> Any:
    arrays = [lift(_array(a, name)) for a in arys]
    return arrays[0] if len(arrays) == 1 else arrays


def atleast_1d(*arys: Any) -> Any:
    """Arrays with one axis at least.

    Args: arys: arrays. Returns: an array, or a list of arrays.

    >>> import rlx.numpy as jnp
    >>> jnp.atleast_1d(3.0).shape
    (1,)
    """
    return _at_least("atleast_1d", arys, lambda x: reshape(x, (1,)) if x.ndim == 0 else x)


def atleast_2d(*arys: Any) -> Any:
    """Arrays with two axes at least; new ones go in front.

    Args: arys: arrays. Returns: an array, or a list of arrays.

    >>> import rlx.numpy as jnp
    >>> jnp.atleast_2d(jnp.ones(3)).shape
    (1, 3)
    """
    return _at_least("atleast_2d", arys, lambda x: reshape(x, (1,) * (2 - x.ndim) + x.shape) if x.ndim < 2 else x)


def atleast_3d(*arys: Any) -> Any:
    """Arrays with three axes at least, placed as NumPy does.

    Args: arys: arrays. Returns: an array, or a list of arrays.

    >>> import rlx.numpy as jnp
    >>> jnp.atleast_3d(jnp.ones(3)).shape
    (1, 3, 1)
    """

    def lift(x: Array) -> Array:
        if x.ndim >= 3:
            return x
        return reshape(x, {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}[x.ndim])

    return _at_least("atleast_3d", arys, lift)


# ------------------------------------------------------------------ flipping and tiling
def flip(m: Any, axis: Any = None) -> Array:
    """Elements in opposite order.

    Args: m: array; axis: int or ints (None: all). Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.flip(jnp.arange(3))
    Array([2, 1, 0], dtype=int32)
    """
    x = _array(m, "flip")
    axes = canonical_axes(axis, x.ndim, "flip")
    return shapes.reverse(x, axes=axes) if axes else x


def fliplr(m: Any) -> Array:
    """Elements in opposite order along the second axis.

    Args: m: array of two or more axes. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.fliplr(jnp.array([[1, 2]]))
    Array([[2, 1]], dtype=int32)
    """
    return flip(m, 1)


def flipud(m: Any) -> Array:
    """Elements in opposite order along the first axis.

    Args: m: array of one or more axes. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.flipud(jnp.array([1, 2]))
    Array([2, 1], dtype=int32)
    """
    return flip(m, 0)


@replayed
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotated by quarter turns in the plane of two axes.

    Args: m: array; k: number of turns, from the first axis towards the second; axes.
    Returns: an array. Raises: ShapeError unless the axes differ.

    >>> import rlx.numpy as jnp
    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    x = _array(m, "rot90")
    first, second = canonical_axes(axes, x.ndim, "rot90")
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (first, second))
    if turns == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second)


@replayed
def tile(A: Any, reps: Any) -> Array:
    """An array repeated as a whole.

    Args: A: array; reps: int or ints, one for each axis from the last. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.tile(jnp.arange(2), 2)
    Array([0, 1, 0, 1], dtype=int32)
    """
    x = _array(A, "tile")
    counts = canonical_shape(reps, "tile", "repetitions")
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    sizes = (1,) * (rank - x.ndim) + x.shape
    kept = [i for i in range(rank) if sizes[i] != 1]
    x = shapes.reshape(x, shape=tuple(sizes[i] for i in kept))
    spread = tuple(n for pair in zip(counts, sizes, strict=True) for n in pair)
    x = shapes.broadcast_in_dim(x, shape=spread, dims=tuple(2 * i + 1 for i in kept))
    return shapes.reshape(x, shape=tuple(c * n for c, n in zip(counts, sizes, strict=True)))
