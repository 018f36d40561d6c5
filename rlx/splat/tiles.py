"""Lists of the splats that may touch each tile of an image, from front to back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import rlx.numpy as jnp
from rlx import lax
from rlx.array import Array
from rlx.splat.projection import Footprints

__all__ = ["TileLists", "count_intersections", "tile_grid", "tile_lists"]

_MOST = np.iinfo(np.int32).max


class TileLists(NamedTuple):
    """order: int32 (capacity,), numbers of splats, tile by tile and each from front to back. starts, ends: int32
    (tiles,), the part of `order` of each tile. origins: (tiles, 2), the first pixel's corner of each tile. total: the
    intersections of splats with tiles; those over the capacity are missing.
    """

    order: Array
    starts: Array
    ends: Array
    origins: Array
    total: Array


def tile_grid(width: int, height: int, tile: int) -> tuple[int, int]:
    """Tiles in a row, and rows of tiles."""
    return -(-width // tile), -(-height // tile)


def _spans(seen: Footprints, grid: tuple[int, int], tile: int) -> tuple[Array, Array]:
    """The first tile of each splat, and its numbers of tiles: int32 (N, 2); (0, 0) if it is not visible."""
    limits = jnp.array(grid, seen.lows.dtype)
    lows = jnp.clip(jnp.floor(lax.stop_gradient(seen.lows) / tile), 0, limits)
    highs = jnp.clip(jnp.ceil(lax.stop_gradient(seen.highs) / tile), 0, limits)
    shown = seen.visible[:, None]
    first = jnp.where(shown, lows, 0).astype(np.int32)
    return first, jnp.where(shown, jnp.maximum(highs - lows, 0), 0).astype(np.int32)


def count_intersections(seen: Footprints, width: int, height: int, tile: int) -> Array:
    """How many tiles each splat touches: int32 (N,)."""
    _, spans = _spans(seen, tile_grid(width, height, tile), tile)
    return spans[:, 0] * spans[:, 1]


def tile_lists(seen: Footprints, width: int, height: int, tile: int, capacity: int) -> TileLists:
    """The lists, with room for `capacity` intersections.

    Splats are sorted by depth first, and their intersections stably by tile then: two sorts of 32-bit keys. Equal
    depths keep the order of the splats.
    """
    columns, rows = tile_grid(width, height, tile)
    tiles = columns * rows
    first, spans = _spans(seen, (columns, rows), tile)
    origins = _origins(columns, rows, tile, seen.means.dtype)
    if 0 in (len(spans), capacity):
        empty = jnp.zeros(tiles, np.int32)
        total = jnp.sum((spans[:, 0] * spans[:, 1]).astype(np.int64))
        return TileLists(jnp.zeros(capacity, np.int32), empty, empty, origins, total)
    depth = jnp.where(seen.visible, lax.stop_gradient(seen.depths), jnp.inf)
    by_depth = jnp.argsort(depth, stable=True).astype(np.int32)
    counts = (spans[:, 0] * spans[:, 1])[by_depth]
    ends = jnp.cumsum(counts.astype(np.int64))
    total = ends[-1]
    ends = jnp.minimum(ends, capacity).astype(np.int32)
    starts = jnp.concatenate([jnp.zeros(1, np.int32), ends])[:-1]
    ranks = _ranks(starts, capacity)
    splat = by_depth[ranks]
    local = jnp.arange(capacity, dtype=np.int32) - starts[ranks]
    across = jnp.maximum(spans[splat, 0], 1)
    column, row = first[splat, 0] + local % across, first[splat, 1] + local // across
    inside = jnp.arange(capacity) < total
    key = jnp.where(inside, row * columns + column, tiles)
    sorted_places = jnp.argsort(key, stable=True)
    sizes = jnp.zeros(tiles + 1, np.int32).at[key].add(1)[:tiles]
    tile_ends = jnp.cumsum(sizes).astype(np.int32)
    return TileLists(splat[sorted_places], tile_ends - sizes, tile_ends, origins, total)


def _ranks(starts: Array, capacity: int) -> Array:
    """For each of `capacity` places, the last of the intervals that begin at it or before; starts increase from 0."""
    marks = jnp.zeros(capacity, np.int32).at[starts].add(1, mode="drop")
    return jnp.cumsum(marks).astype(np.int32) - 1


def _origins(columns: int, rows: int, tile: int, dtype: Any) -> Array:
    """The first corner of each tile in pixels, (tiles, 2)."""
    y, x = np.divmod(np.arange(columns * rows), columns)
    return jnp.asarray(np.stack([x * tile, y * tile], -1), dtype)
