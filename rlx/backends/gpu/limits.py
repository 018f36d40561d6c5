"""Limits: the numbers that the mapping of nests to grids uses about a device."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REGISTER_BYTES", "LaunchCosts", "Limits"]

REGISTER_BYTES = 255 * 4  # of a work-item on NVIDIA's GPUs; AMD's have as many or more


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """Assumed overheads in seconds. None of them has been measured.

    queued: a launch with others waiting after it. recorded: a launch in a graph. barrier: all groups of a launch wait
    for one another. read: the host waits for a value of the device, then queues the next work.
    """

    queued: float = 2e-6
    recorded: float = 0.6e-6
    barrier: float = 1.5e-6
    read: float = 15e-6


@dataclass(frozen=True, slots=True)
class Limits:
    """The sizes that launches respect.

    group: work-items of a group. warp: work-items that share a short row. units: groups that run at the same time, at
    least; with fewer, a part of the device is idle. vector: bytes that a work-item loads and stores at once.
    vector_points: the smallest number of work-items for which each of them takes a vector. least_row: a shorter row is
    processed by one work-item. warp_row: the longest row that a warp takes. tile: rows and columns of a transposed tile
    in the memory of a group. held: elements of a row that a work-item keeps in registers, per array; held_bytes: of all
    arrays at the same time. large_group: work-items of a group that takes a row too long for the registers of `group`;
    no more than `group`: there are no such groups. sorted_row: elements that a group sorts in its memory. loop_work:
    the number of iterations of a loop's step that one group takes while the rest of the device is idle. wide: positions
    have 64 bits, even if 32 are enough. group_bytes: the memory that a group shares. together: the largest number of
    groups that may wait for one another in a launch; 0 if the device does not guarantee that they run at the same time.
    together_work: the number of iterations of a loop's step for which the cost of launches is negligible.
    together_resident: groups of such a launch on one multiprocessor; without a bound, compilers spill registers to run
    more. product_rate: multiplications of a product in the time of one iteration that moves values. parted: groups per
    unit when rows are cut in parts, because groups wait at barriers. graph_launches: the largest number of launches of
    a graph; 0 if there are no graphs. turns: the largest number of iterations of loops that a work-item runs in a
    launch; 0 if there is no such bound. costs: of launches. least_group_bytes: the memory that groups share on every
    device.
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
    large_group: int = 1024
    sorted_row: int = 1024
    loop_work: int = 1 << 14
    wide: bool = False
    group_bytes: int = 48 << 10
    together: int = 0
    together_work: int = 1 << 24
    together_resident: int = 2
    product_rate: int = 16
    parted: int = 4
    graph_launches: int = 0
    turns: int = 0
    costs: LaunchCosts = LaunchCosts()
    least_group_bytes: int = 1 << 15
