"""Products of groups of rows with a quantised matrix for each: of all matrices one is decoded at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, InputTypeError, ShapeError
from rlx.quant.arrays import QuantizedArray
from rlx.quant.products import dequant_matmul
from rlx.trace.flat import as_array

__all__ = ["dequant_ragged_dot"]


class _Tiles(NamedTuple):
    """Rows cut into tiles of one group each; the last one of a group may reach beyond it.

    starts, ends: the first row of each group, and the first row after it; first, last: the same for its tiles.
    """

    size: int
    count: int
    starts: Array
    ends: Array
    first: Array
    last: Array


def dequant_ragged_dot(x: Any, weight: QuantizedArray, group_sizes: Any) -> Array:
    """Products of groups of rows with a quantised matrix for each, as rlx.lax.ragged_dot's: mixtures of experts.

    Args:
      x: floating numbers of shape [m, k]: the rows of the first group, then the rows of the second group, and so on.
      weight: a QuantizedArray of shape [groups, k, n] with axis -2, or [groups, n, k] with axis -1.
      group_sizes: integers [groups]: how many rows each group has.

    Returns an array of shape [m, n] and of x's dtype; rows after the last group are 0. It is differentiable in x.

    Raises InputTypeError if the weight is not quantised, ShapeError for incompatible shapes, DtypeError for
    sizes that are not integers, and the errors of dequant_matmul.

    >>> import numpy as np
    >>> from rlx import quant
    >>> w = quant.quantize(np.stack([np.eye(32), 2 * np.eye(32)]).astype(np.float32), "int8/32")
    >>> quant.dequant_ragged_dot(np.ones((3, 32), np.float32), w, np.array([1, 2])).round(2)[:, 0]
    Array([1., 2., 2.], dtype=float32)
    """
    if not isinstance(weight, QuantizedArray):
        raise InputTypeError(
            f"dequant_ragged_dot got {type(weight).__name__} for a weight.",
            "Quantise it first, with rlx.quant.quantize.",
        )
    rows, sizes = as_array(x, "dequant_ragged_dot's x"), as_array(group_sizes, "group_sizes")
    if weight.ndim != 3 or rows.ndim != 2 or sizes.shape != weight.elements.shape[:1]:
        raise ShapeError(
            f"dequant_ragged_dot got x of {list(rows.shape)}, a weight of {list(weight.shape)} and sizes of"
            f" {list(sizes.shape)}.",
            "x must be a matrix, and the weight a stack with one matrix per size.",
        )
    if sizes.dtype.kind not in "iu":
        raise DtypeError(f"dequant_ragged_dot got sizes of {sizes.dtype}.", "Give integers.")
    if not rows.shape[0]:
        return jnp.zeros((0, weight.elements.shape[1]), rows.dtype)
    tiles = _tiles(rows.shape[0], sizes.astype(np.int32))
    return _rows_of_groups(_products(rows, weight, tiles), rows.shape[0], tiles)


def _tiles(rows: int, sizes: Array) -> _Tiles:
    """Tiles of about a group's share, so that there are at most twice as many as groups, or as rows."""
    groups = sizes.shape[0]
    size = 1 << max(0, (rows // groups).bit_length() - 1)
    ends, counts = jnp.cumsum(sizes), -(-sizes // size)
    last = jnp.cumsum(counts)
    return _Tiles(size, rows if size == 1 else rows // size + groups, ends - sizes, ends, last - counts, last)


def _products(x: Array, weight: QuantizedArray, tiles: _Tiles) -> Array:
    """The products of each tile's rows [tiles * size, n]; undefined for unused tiles and rows after a group."""
    parts = [None if p is None else jnp.asarray(p) for p in (weight.elements, weight.plain_scales, weight.zeros)]

    def product(number: Any) -> Array:
        group = _group_of(number, tiles.last)
        first = tiles.starts[group] + tiles.size * (number - tiles.first[group])
        given = x[jnp.minimum(first + jnp.arange(tiles.size), x.shape[0] - 1)]
        one = (None if part is None else part[group] for part in parts)
        return dequant_matmul(given, QuantizedArray(*one, weight.global_scale, weight.scheme, weight.axis))

    def nothing(number: Any) -> Array:
        return jnp.zeros((tiles.size, weight.elements.shape[1]), x.dtype)

    def step(none: None, number: Any) -> tuple[None, Array]:
        return none, lax.cond(number < tiles.last[-1], product, nothing, number)

    _, found = lax.scan(step, None, jnp.arange(tiles.count, dtype=np.int32))
    return found.reshape(tiles.count * tiles.size, -1)


def _rows_of_groups(found: Array, rows: int, tiles: _Tiles) -> Array:
    """The index of each row's product in the tiles' products."""
    row = jnp.arange(rows, dtype=np.int32)
    group = _group_of(row, tiles.ends)
    place = tiles.size * tiles.first[group] + row - tiles.starts[group]
    return jnp.where((row < tiles.ends[-1])[:, None], found[jnp.minimum(place, found.shape[0] - 1)], 0)


def _group_of(number: Any, ends: Array) -> Array:
    """The group with that number in it, by the first number behind each group; the last one for all that follow."""
    return jnp.minimum(jnp.searchsorted(ends, number, side="right"), ends.shape[0] - 1)
