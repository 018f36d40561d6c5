"""rlx.scipy.ndimage: interpolation of images at given coordinates."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.types import is_complex, is_inexact
from rlx.numpy.promotion import convert_to, operand
from rlx.offered_names import offer_names
from rlx.trace.flat import as_array

__all__ = ["map_coordinates"]

offer_names(globals())


# ------------------------------------------------------------------ boundaries
def _mirrored(index: Array, size: int) -> Array:
    """... 2 1 | 0 1 2 | 1 0 ...: the outermost points occur once."""
    if size == 1:
        return jnp.zeros_like(index)
    last = size - 1
    return jnp.abs((index + last) % (2 * last) - last)


def _reflected(index: Array, size: int) -> Array:
    """... 1 0 | 0 1 2 | 2 1 ...: the outermost points occur twice."""
    folded = index % (2 * size)
    return jnp.minimum(folded, 2 * size - 1 - folded)


_OUTSIDE: dict[str, Callable[[Array, int], Array]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}


# ------------------------------------------------------------------ neighbours of a coordinate
Neighbour = tuple[Array, Any]


def _rounded(x: Array) -> Array:
    """To the nearest integer, halves away from zero."""
    if is_complex(x.dtype):
        return lax.complex(lax.round(jnp.real(x)), lax.round(jnp.imag(x)))
    return lax.round(x) if is_inexact(x.dtype) else x


def _nearest(coordinate: Array) -> list[Neighbour]:
    return [(convert_to(_rounded(coordinate), np.dtype("i4")), jnp.ones((), coordinate.dtype))]


def _linear(coordinate: Array) -> list[Neighbour]:
    below = jnp.floor(coordinate)
    share = coordinate - below
    index = convert_to(below, np.dtype("i4"))
    return [(index, 1 - share), (index + 1, share)]


_NEIGHBOURS = {0: _nearest, 1: _linear}


def map_coordinates(
    input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0
) -> Array:
    """An image at given coordinates, between its points by interpolation.

    Args:
      input: an array of n axes.
      coordinates: n arrays of equal shape, a coordinate along each axis; (n, ...) is as good.
      order: 0: the nearest point, 1: linear interpolation.
      mode: the values outside: "constant" (cval), "nearest" (the last point), "wrap", "mirror"
        or "reflect" (which repeats the outermost points).
      cval: a number.

    Returns: an array of the coordinates' shape and the input's dtype, differentiable with respect to
    both. Raises: ShapeError for another number of coordinates, UnsupportedError for another order or mode.

    >>> import rlx, rlx.numpy as jnp
    >>> rlx.scipy.ndimage.map_coordinates(jnp.array([0.0, 10.0, 20.0]), [jnp.array([0.5, 1.25])], order=1)
    Array([ 5. , 12.5], dtype=float32)
    """
    image = as_array(operand(input, "map_coordinates"))
    if len(coordinates) != image.ndim:
        raise ShapeError(
            f"map_coordinates got {len(coordinates)} coordinates for an array of {image.ndim} axes.",
            "Pass a sequence of one array of coordinates for each axis.",
        )
    if mode not in _OUTSIDE:
        raise UnsupportedError(f"map_coordinates has no mode {mode!r}.", f"Use one of {', '.join(_OUTSIDE)}.")
    if order not in _NEIGHBOURS:
        raise UnsupportedError(f"map_coordinates has no order {order!r}.", "Use 0 or 1.")
    fill = convert_to(cval, image.dtype)
    axes = []
    for coordinate, size in zip(coordinates, image.shape, strict=True):
        found = _NEIGHBOURS[order](as_array(operand(coordinate, "map_coordinates")))
        axes.append([(_OUTSIDE[mode](index, size), weight, size) for index, weight in found])
    total = functools.reduce(operator.add, (_term(image, corner, mode, fill) for corner in itertools.product(*axes)))
    return convert_to(total if is_inexact(image.dtype) else _rounded(total), image.dtype)


def _term(image: Array, corner: Sequence[tuple[Array, Any, int]], mode: str, fill: Any) -> Array:
    """One neighbour of each coordinate, with its weight."""
    value = image[tuple(index for index, _, _ in corner)]
    if mode == "constant":
        inside = [(index >= 0) & (index < size) for index, _, size in corner]
        value = jnp.where(functools.reduce(operator.and_, inside), value, fill)
    return functools.reduce(operator.mul, [weight for _, weight, _ in corner]) * value
