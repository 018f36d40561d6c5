"""The numbers of row tiles and workers for a run of kernels."""

from __future__ import annotations

from functools import partial, reduce
from typing import NamedTuple

from rlx.ir.kernels import Contract, RowTiles
from rlx.ir.size_functions import computed, greatest, least

__all__ = ["RowTileForm", "row_tile_form"]

# a tile's results should stay in the cache of one core; products of fewer rows spend their time copying
_CACHE_BYTES = 1 << 19
_LEAST_ROWS = 96


class RowTileForm(NamedTuple):
    """row_tiles: runs of parts that a worker takes at a time, of at most `longest` parts."""

    row_tiles: int
    workers: int
    longest: int


def row_tile_form(kernel: RowTiles, threads: int) -> RowTileForm:
    """The form for a machine with `threads` threads."""
    written = sum(b.nbytes for b in {b for k in kernel.kernels for b in k.writes})
    most = reduce(least, (_most_row_tiles(k) for k in kernel.kernels if isinstance(k, Contract)), kernel.count)
    return RowTileForm(*computed(partial(_form, threads), (written, most, kernel.count), 3))


def _form(threads: int, written: int, most: int, count: int) -> RowTileForm:
    """written: bytes of results."""
    row_tiles = min(max(2 * threads, written // _CACHE_BYTES), max(most, threads), count)
    return RowTileForm(row_tiles, min(threads, row_tiles), -(-count // row_tiles))


def _most_row_tiles(kernel: Contract) -> int:
    """More row tiles would leave a product too few rows."""
    return kernel.batches * greatest(kernel.rows // _LEAST_ROWS, 1)
