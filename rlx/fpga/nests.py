"""Loop nests of layers: loops, and numbers that are affine in their counters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Limit", "Loop", "LoopNest", "nest_of"]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop. steps: by how much each walk moves in an iteration; reduced: its iterations are summed up."""

    extent: int
    reduced: bool
    steps: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Limit:
    """0 <= walk < extent: elsewhere there is no element."""

    walk: str
    extent: int


@dataclass(frozen=True, slots=True)
class LoopNest:
    """Loops from the outermost to the innermost, and the value of each walk in the first iteration."""

    loops: tuple[Loop, ...]
    starts: Mapping[str, int]

    @property
    def iterations(self) -> int:
        """The number of iterations of the innermost loop."""
        return math.prod(loop.extent for loop in self.loops)

    @property
    def reduction(self) -> int:
        """The number of terms of a sum."""
        return math.prod(loop.extent for loop in self.loops if loop.reduced)

    def bounds(self, walk: str) -> tuple[int, int]:
        """The least and the greatest value of a walk."""
        reach = [loop.steps.get(walk, 0) * (loop.extent - 1) for loop in self.loops]
        start = self.starts[walk]
        return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0)

    def changes(self, walk: str) -> list[int]:
        """By how much a walk changes where loop k advances and the loops inside it restart; last: all restart."""
        steps = [loop.steps.get(walk, 0) for loop in self.loops]
        reach = [step * (loop.extent - 1) for step, loop in zip(steps, self.loops, strict=True)]
        return [step - sum(reach[k + 1 :]) for k, step in enumerate(steps)] + [-sum(reach)]


def nest_of(loops: Sequence[tuple[int, bool, dict[str, int]]], starts: Mapping[str, int]) -> LoopNest:
    """A nest of (extent, reduced, steps), without loops of one iteration, and with as few loops as possible.

    >>> from rlx.fpga.nests import nest_of
    >>> nest = nest_of([(4, False, {"y": 6}), (3, False, {"y": 2}), (1, True, {}), (2, True, {"y": 0})], {"y": 0})
    >>> [(loop.extent, loop.reduced) for loop in nest.loops]
    [(12, False), (2, True)]
    """
    found: list[Loop] = []
    for extent, reduced, steps in loops:
        loop = Loop(extent, reduced, {walk: steps.get(walk, 0) for walk in starts})
        if extent == 1:
            continue
        if found and _continues(found[-1], loop):
            found[-1] = Loop(found[-1].extent * extent, reduced, loop.steps)
        else:
            found.append(loop)
    return LoopNest(tuple(found), dict(starts))


def _continues(outer: Loop, inner: Loop) -> bool:
    """Whether two loops are one: each walk arrives where the outer loop's next iteration begins."""
    same = all(outer.steps[walk] == step * inner.extent for walk, step in inner.steps.items())
    return same and outer.reduced == inner.reduced
