"""Limits: what the mapping of nests to grids knows of a device, as data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LaunchCosts", "Limits"]


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """Seconds that work takes beside what it does. None of them has been measured here.

    queued: a launch that others wait behind. recorded: one of a graph. barrier: all groups of a launch wait for one
    another. read: the host waits for a value of the device, and queues what follows.
    """

    queued: float = 2e-6
    recorded: float = 0.6e-6
    barrier: float = 1.5e-6
    read: float = 15e-6


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that launches are cut to.

    group: work-items of a group. warp: work-items that share a short row. units: groups that run at the same time, at
    least; fewer leave a part of the device idle. vector: bytes that an item loads and stores at once. vector_points:
    items that there have to be for each of them to take a vector. least_row: shorter rows are taken by one item each.
    warp_row: the longest row that a warp takes. tile: rows and columns of what is transposed in the memory of a group.
    held: elements of a row that an item keeps in registers, of each array; held_bytes: of all arrays at the same time.
    sorted_row: elements that a group sorts in its memory. loop_work: iterations of a loop's step that one group takes
    while the rest of the device is idle. wide: positions are 64 bits wide, even where 32 are enough. group_bytes:
    of the memory that a group shares. together: groups that may wait for one another in a launch, at most; 0 where the
    device does not promise that they run at the same time. together_work: iterations of a loop's step beside which
    launches cost nothing. graph_launches: how many a graph may have; 0 where there are none. costs: of launches.
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
    group_bytes: int = 48 << 10
    together: int = 0
    together_work: int = 1 << 24
    graph_launches: int = 0
    costs: LaunchCosts = LaunchCosts()
