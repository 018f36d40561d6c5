"""The steps of a program on several devices: parts and copies, in lanes that run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rlx.ir.program import Program, Var
from rlx.placement.segments import Segment

__all__ = ["HeldValue", "LaneStep", "makespan", "readers_of", "steps_of"]

HeldValue = tuple[Var, str]  # a value in a memory


class LaneStep(NamedTuple):
    """A part of a program, or a copy of a value to another memory (segment is None).

    lane: steps of one lane run in order. reads, writes: the values that must be there before, and are there after.
    """

    lane: str
    reads: tuple[HeldValue, ...]
    writes: tuple[HeldValue, ...]
    seconds: float
    segment: int | None = None


def steps_of(
    program: Program,
    segments: Sequence[Segment],
    memories: Sequence[str],
    home: str,
    seconds: Sequence[float],
    copy_seconds: Callable[[str, str, int], float],
) -> list[LaneStep]:
    """The steps of a program in order. Each value is copied once to each memory, from where it was made.

    memories, seconds: of each segment. home: the memory of the program's inputs and results. Each memory has a lane
    for kernels, because devices that share it share its processor too, and each direction between two has one.
    """
    where: dict[Var, list[str]] = {v: [home] for v in program.inputs}
    found: list[LaneStep] = []

    def bring(value: Var, target: str) -> None:
        if target not in where[value]:
            source = where[value][0]
            taken = copy_seconds(source, target, value.type.nbytes)
            found.append(LaneStep(f"{source} to {target}", ((value, source),), ((value, target),), taken))
            where[value].append(target)

    for number, (segment, memory) in enumerate(zip(segments, memories, strict=True)):
        for value in segment.program.inputs:
            bring(value, memory)
        made = [v for v in segment.program.outputs if isinstance(v, Var)]
        where.update((v, [memory]) for v in made)
        reads = tuple((v, memory) for v in segment.program.inputs)
        found.append(LaneStep(memory, reads, tuple((v, memory) for v in made), seconds[number], number))
    constants = dict(program.constants)
    for value in program.outputs:
        if isinstance(value, Var) and value not in constants:
            bring(value, home)
    return found


def makespan(steps: Sequence[LaneStep]) -> float:
    """The seconds of all steps if each starts when its lane is free and the values that it reads are there.

    >>> makespan([LaneStep("a", (), (), 1.0), LaneStep("b", (), (), 2.0), LaneStep("a", (), (), 0.5)])
    2.0
    """
    free: dict[str, float] = {}
    there: dict[HeldValue, float] = {}
    for step in steps:
        end = max([free.get(step.lane, 0.0), *(there.get(p, 0.0) for p in step.reads)]) + step.seconds
        free[step.lane] = end
        there |= dict.fromkeys(step.writes, end)
    return max(free.values(), default=0.0)


def readers_of(steps: Sequence[LaneStep], kept: Sequence[HeldValue]) -> Mapping[HeldValue, int]:
    """The number of steps that read each value in a memory, and one more for results."""
    found = dict.fromkeys(kept, 1)
    for step in steps:
        for place in step.reads:
            found[place] = found.get(place, 0) + 1
    return found
