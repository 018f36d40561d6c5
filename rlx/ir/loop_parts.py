"""What loops take and give, by kinds; and marks that grow until a step of a loop leaves them as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

__all__ = ["ScanParts", "ScanResults", "WhileParts", "fixpoint"]

T = TypeVar("T")


class ScanParts(NamedTuple):
    """What a scan takes: constants, (initial) carries, and xs; of its body, slices are in the place of xs."""

    constants: Sequence[Any]
    carries: Sequence[Any]
    xs: Sequence[Any]

    @classmethod
    def of(cls, values: Sequence[Any], constants: int, carries: int) -> ScanParts:
        """The parts of operands, inputs or types, of which so many are of the first kinds."""
        lead = constants + carries
        return cls(values[:constants], values[constants:lead], values[lead:])


class ScanResults(NamedTuple):
    """What a scan gives: the last carries, and ys; of its body, the next carries and slices of ys."""

    carries: Sequence[Any]
    ys: Sequence[Any]

    @classmethod
    def of(cls, values: Sequence[Any], carries: int) -> ScanResults:
        """The parts of results, of which so many are carries."""
        return cls(values[:carries], values[carries:])


class WhileParts(NamedTuple):
    """What a while_loop takes: constants of its condition, constants of its body, (initial) carries."""

    condition_constants: Sequence[Any]
    body_constants: Sequence[Any]
    carries: Sequence[Any]

    @classmethod
    def of(cls, values: Sequence[Any], condition_constants: int, body_constants: int) -> WhileParts:
        """The parts of operands or types, of which so many are of the first kinds."""
        lead = condition_constants + body_constants
        return cls(values[:condition_constants], values[condition_constants:lead], values[lead:])

    @property
    def condition(self) -> list[Any]:
        """What the condition takes."""
        return [*self.condition_constants, *self.carries]

    @property
    def body(self) -> list[Any]:
        """What the body takes."""
        return [*self.body_constants, *self.carries]


def fixpoint(step: Callable[[list[bool]], tuple[T, Sequence[bool]]], marks: Sequence[bool]) -> tuple[T, list[bool]]:
    """What `step` makes of marks that it gives back as they are, and those marks; they may only grow.

    >>> fixpoint(lambda marks: (sum(marks), [True, *marks[:-1]]), [True, False, False])
    (3, [True, True, True])
    """
    current = list(marks)
    while True:
        found, grown = step(current)
        if list(grown) == current:
            return found, current
        current = list(grown)
