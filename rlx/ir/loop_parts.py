"""The operands and results of loops by kind, and the fixpoint of marks over a loop's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

__all__ = ["ScanParts", "ScanResults", "WhileParts", "fixpoint"]

T = TypeVar("T")


class ScanParts(NamedTuple):
    """The operands of a scan: constants, (initial) carries, and xs. For its body, slices take the place of xs."""

    constants: Sequence[Any]
    carries: Sequence[Any]
    xs: Sequence[Any]

    @classmethod
    def of(cls, values: Sequence[Any], constants: int, carries: int) -> ScanParts:
        """Split operands, inputs or types, given the numbers of constants and carries."""
        lead = constants + carries
        return cls(values[:constants], values[constants:lead], values[lead:])


class ScanResults(NamedTuple):
    """The results of a scan: the last carries, and ys. For its body: the next carries, and slices of ys."""

    carries: Sequence[Any]
    ys: Sequence[Any]

    @classmethod
    def of(cls, values: Sequence[Any], carries: int) -> ScanResults:
        """Split results, given the number of carries."""
        return cls(values[:carries], values[carries:])


class WhileParts(NamedTuple):
    """The operands of a while_loop: constants of its condition, constants of its body, (initial) carries."""

    condition_constants: Sequence[Any]
    body_constants: Sequence[Any]
    carries: Sequence[Any]

    @classmethod
    def of(cls, values: Sequence[Any], condition_constants: int, body_constants: int) -> WhileParts:
        """Split operands or types, given the numbers of constants."""
        lead = condition_constants + body_constants
        return cls(values[:condition_constants], values[condition_constants:lead], values[lead:])

    @property
    def condition(self) -> list[Any]:
        """The condition's operands."""
        return [*self.condition_constants, *self.carries]

    @property
    def body(self) -> list[Any]:
        """The body's operands."""
        return [*self.body_constants, *self.carries]


def fixpoint(step: Callable[[list[bool]], tuple[T, Sequence[bool]]], marks: Sequence[bool]) -> tuple[T, list[bool]]:
    """The result of `step` on marks that it returns unchanged, and these marks. Marks may only grow.

    >>> fixpoint(lambda marks: (sum(marks), [True, *marks[:-1]]), [True, False, False])
    (3, [True, True, True])
    """
    current = list(marks)
    while True:
        found, grown = step(current)
        if list(grown) == current:
            return found, current
        current = list(grown)
