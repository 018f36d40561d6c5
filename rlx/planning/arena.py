"""Offsets in an arena: blocks whose lifetimes overlap do not share bytes.

Two plans are made, and the smaller arena wins. In order of time: each block takes the free run that
fits it best, in O(n log n). Largest first: each block takes the tightest gap between the placed
blocks that live at the same time, which suits blocks of very different sizes better, in O(n^2) with
small constants. It is tried only if the first plan needs more than the peak of live bytes. Finding the
least arena is NP-hard (Garey, Johnson: Computers and Intractability, problem SR2).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlx.ir.dims import is_sized
from rlx.ir.kernels import Buffer
from rlx.ir.size_functions import computed

__all__ = ["MemoryBlock", "Peak", "Placement", "most_live", "place", "place_by_size", "place_by_time"]

_LARGEST_BY_SIZE = 20_000  # more blocks than this are placed in order of time only


@dataclass(slots=True, eq=False)
class MemoryBlock:
    """Bytes that are needed from kernel `first` to kernel `last`, and the buffers stored in them."""

    size: int
    first: int
    last: int
    buffers: list[Buffer]


class Peak(NamedTuple):
    """Bytes live at once, and the first kernel in which they are."""

    size: int
    kernel: int


class Placement(NamedTuple):
    """The offset of each block, and the size of the arena."""

    offsets: list[int]
    size: int


def place(blocks: Sequence[MemoryBlock]) -> Placement:
    """The better of the two plans. Of blocks with symbolic sizes: places that are computed for each call's sizes."""
    if not any(is_sized(block.size) for block in blocks):
        return _place(blocks)
    spans = [(block.first, block.last) for block in blocks]

    def placed(*sizes: int) -> list[int]:
        found = _place([MemoryBlock(size, *span, []) for size, span in zip(sizes, spans, strict=True)])
        return [*found.offsets, found.size]

    *offsets, size = computed(placed, [block.size for block in blocks], len(blocks) + 1)
    return Placement(offsets, size)


def _place(blocks: Sequence[MemoryBlock]) -> Placement:
    found = place_by_time(blocks)
    if len(blocks) > _LARGEST_BY_SIZE or found.size == most_live(blocks).size:
        return found
    return min(found, place_by_size(blocks), key=lambda placement: placement.size)


def most_live(blocks: Sequence[MemoryBlock]) -> Peak:
    """The most bytes that are live at once: no arena can be smaller."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.size
    live = 0
    peak = Peak(0, 0)
    for position in sorted(changes):
        live += changes[position]
        if live > peak.size:
            peak = Peak(live, position)
    return peak


# ---------------------------------------------------------------- in order of time
def place_by_time(blocks: Sequence[MemoryBlock]) -> Placement:
    """Walk the kernels once: allocate each block at its first use, and free it after its last."""
    order = sorted(range(len(blocks)), key=lambda n: blocks[n].first)
    ending = sorted(range(len(blocks)), key=lambda n: blocks[n].last)
    offsets = [0] * len(blocks)
    pool = _FreeRuns()
    dead = 0
    for number in order:
        while blocks[ending[dead]].last < blocks[number].first:
            pool.give(offsets[ending[dead]], blocks[ending[dead]].size)
            dead += 1
        offsets[number] = pool.take(blocks[number].size)
    return Placement(offsets, pool.size)


class _FreeRuns:
    """Free runs of the arena: best fit, neighbours merged."""

    def __init__(self) -> None:
        self.size = 0
        self._by_size: list[tuple[int, int]] = []  # (length, start), sorted
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def take(self, length: int) -> int:
        """The start of a run of `length` bytes; the arena grows if none is free."""
        at = bisect.bisect_left(self._by_size, (length, -1))
        if at == len(self._by_size):
            return self._grow(length)
        found, start = self._by_size.pop(at)
        del self._starts[start], self._ends[start + found]
        if found > length:
            self._insert(start + length, found - length)
        return start

    def _grow(self, length: int) -> int:
        start = self._ends.get(self.size)
        if start is None:
            start = self.size
        else:  # extend the free run at the end of the arena
            self._remove(start)
        self.size = start + length
        return start

    def give(self, start: int, length: int) -> None:
        """Return a run."""
        before = self._ends.get(start)
        if before is not None:
            length += start - before
            self._remove(before)
            start = before
        after = self._starts.get(start + length)
        if after is not None:
            self._remove(start + length)
            length += after
        self._insert(start, length)

    def _insert(self, start: int, length: int) -> None:
        bisect.insort(self._by_size, (length, start))
        self._starts[start] = length
        self._ends[start + length] = start

    def _remove(self, start: int) -> None:
        length = self._starts.pop(start)
        del self._ends[start + length]
        self._by_size.pop(bisect.bisect_left(self._by_size, (length, start)))


# ---------------------------------------------------------------- largest first
def place_by_size(blocks: Sequence[MemoryBlock]) -> Placement:
    """Largest blocks first, each in the tightest gap among the placed ones that live with it."""
    order = sorted(range(len(blocks)), key=lambda n: (-blocks[n].size, blocks[n].first))
    offsets = [0] * len(blocks)
    arena = 0
    placed = _PlacedBlocks(len(blocks))
    for number in order:
        block = blocks[number]
        offset = offsets[number] = placed.gap(block)
        placed.add(block, offset)
        arena = max(arena, offset + block.size)
    return Placement(offsets, arena)


class _PlacedBlocks:
    """Placed blocks, as arrays in order of their offsets."""

    def __init__(self, limit: int) -> None:
        self._count = 0
        self._rows = np.zeros((4, limit), np.int64)  # offset, end, first, last

    def gap(self, block: MemoryBlock) -> int:
        """The offset of the tightest gap that takes the block, the lowest of equal ones."""
        begins, ends, first, last = self._rows[:, : self._count]
        beside = (first <= block.last) & (last >= block.first)
        begins, ends = begins[beside], ends[beside]
        if not len(begins):
            return 0
        # a gap opens where everything placed so far has ended, and closes where the next begins
        opened = np.concatenate(([0], np.maximum.accumulate(ends)))
        room = begins - opened[:-1]
        fits = np.flatnonzero(room >= block.size)
        return int(opened[fits[np.argmin(room[fits])]] if len(fits) else opened[-1])

    def add(self, block: MemoryBlock, offset: int) -> None:
        """Keep a placed block."""
        count, rows = self._count, self._rows
        at = int(np.searchsorted(rows[0, :count], offset))
        rows[:, at + 1 : count + 1] = rows[:, at:count]
        rows[:, at] = (offset, offset + block.size, block.first, block.last)
        self._count += 1
