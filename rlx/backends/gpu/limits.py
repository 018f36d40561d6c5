"""Limits: what the mapping of nests to grids knows of a device, as data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that launches are cut to.

    group: work-items of a group. warp: work-items that share a short row. units: groups that run at the same time, at
    least; fewer leave a part of the device idle. vector: bytes that an item loads and stores at once. vector_points:
    items that there have to be for each of them to take a vector. least_row: shorter rows are taken by one item each.
    warp_row: the longest row that a warp takes. tile: rows and columns of what is transposed in the memory of a group.
    held: elements of a row that an item keeps in registers, of each array; held_bytes: of all arrays at the same time.
    sorted_row: elements that a group sorts in its memory. loop_work: iterations of a loop's step that one group takes
    while the rest of the device is idle. wide: positions are 64 bits wide, even where 32 are enough.
    """

    group: int = 256
    warp: int = 32
    units: int = 264
    vector: int = 16
    vector_points: int = 1 << 16
    least_row: int = 32
    warp_row: int = 1024
    tile: int = 32
    held: int = 64
    held_bytes: int = 256
    sorted_row: int = 1024
    loop_work: int = 1 << 14
    wide: bool = False
