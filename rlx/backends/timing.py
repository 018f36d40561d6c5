"""The results of a timed run of a plan: how long each kernel took, and when."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rlx.ir.kernels import Kernel
from rlx.storage import Storage

__all__ = ["Event", "Events", "StepTime", "TimedExecutable", "TimedRun", "TimedStep"]


class TimedStep(NamedTuple):
    """A timed kernel and its path.

    "3" is the plan's kernel 3, "3.body.0" the first kernel of the loop in its place; "condition" and
    "branch1" stand for a loop's condition and a branch. Kernels inside a loop that the backend
    compiles as a whole are not timed separately.
    """

    path: str
    kernel: Kernel | None


class StepTime(NamedTuple):
    """Nanoseconds that a kernel took in one run of the plan, and how often it ran.

    For a loop or a branch this excludes the time of the kernels inside, which is counted there.
    """

    nanoseconds: float
    runs: int


class Event(NamedTuple):
    """One run of a kernel: index of the step, begin and end in nanoseconds of one clock."""

    step: int
    begin: int
    end: int


class Events:
    """The first events of a run, in order: rows of [step, begin, end], read on demand."""

    __slots__ = ("_rows",)

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Event]:
        return (Event(*row) for row in self._rows.tolist())


class TimedRun(NamedTuple):
    """The results of a run, the time of each step, and its first events."""

    outputs: list[Storage]
    times: tuple[StepTime, ...]
    events: Events

    @property
    def seconds(self) -> float:
        """The total time of its kernels."""
        return sum(step.nanoseconds for step in self.times) / 1e9


class TimedExecutable(ABC):
    """A compiled plan that times its kernels. One run at a time."""

    steps: tuple[TimedStep, ...]

    @abstractmethod
    def run(self, inputs: Sequence[Storage]) -> TimedRun:
        """Run on dense inputs in the order of the plan's inputs."""
