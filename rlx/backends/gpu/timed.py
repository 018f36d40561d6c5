"""A plan on a device with a queue, whose kernels are timed by the device's own clock."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.backends.gpu.engine import Engine
from rlx.backends.timing import Events, StepTime, TimedExecutable, TimedRun, TimedStep
from rlx.ir.kernels import Branch, Kernel, Plan, Scan, While
from rlx.storage import Storage

__all__ = ["Clock", "TimedDeviceExecutable", "timed_steps"]

_MOST_EVENTS = 100_000


def timed_steps(plan: Plan, launched: Callable[[Kernel], bool], path: str = "") -> list[TimedStep]:
    """The kernels of a plan, and the inner ones that the host drives, each after the loop or branch that contains it.

    launched: whether a kernel consists of launches, whatever it contains.
    """
    found = []
    for number, kernel in enumerate(plan.kernels):
        here = f"{path}{number}"
        found.append(TimedStep(here, kernel))
        if not launched(kernel):
            for name, inner in _inner_plans(kernel):
                found += timed_steps(inner, launched, f"{here}.{name}.")
    return found


def _inner_plans(kernel: Kernel) -> list[tuple[str, Plan]]:
    match kernel:
        case Scan():
            return [("body", kernel.body)]
        case While():
            return [("condition", kernel.condition), ("body", kernel.body)]
        case Branch():
            return [(f"branch{number}", branch) for number, branch in enumerate(kernel.branches)]
    return []


class Clock:
    """Time stamps of a run: before and after each kernel."""

    def __init__(self, engine: Engine, numbers: dict[Kernel, int]) -> None:
        self._engine = engine
        self._numbers = numbers
        self._stamps: list[tuple[int, int, Any, Any]] = []  # kernel, the kernel that contains it or -1, begin, end
        self._around = [-1]
        self._first = engine.stamp()

    @contextmanager
    def timing(self, kernel: Kernel) -> Generator[None]:
        """Record time stamps around the work queued in this context."""
        number = self._numbers[kernel]
        begin = self._engine.stamp()
        self._around.append(number)
        yield
        self._around.pop()
        self._stamps.append((number, self._around[-1], begin, self._engine.stamp()))

    def read(self) -> tuple[tuple[StepTime, ...], Events]:
        """The time of each kernel without its inner kernels, and the first events, once the work is done."""
        times, counts = [0.0] * len(self._numbers), [0] * len(self._numbers)
        rows = []
        for number, outer, begin, end in self._stamps:
            took = self._engine.nanoseconds(begin, end)
            times[number] += took
            counts[number] += 1
            if outer >= 0:
                times[outer] -= took
            start = self._engine.nanoseconds(self._first, begin)
            rows.append((number, round(start), round(start + took)))
        steps = (StepTime(max(0.0, took), count) for took, count in zip(times, counts, strict=True))
        rows = sorted(rows, key=lambda row: row[2])[:_MOST_EVENTS]
        return tuple(steps), Events(np.array(rows, np.int64).reshape(-1, 3))


class TimedDeviceExecutable(TimedExecutable):
    """The launches of a plan with time stamps between them, never as graphs. `run_stamped`: queues a timed run."""

    def __init__(
        self,
        steps: Sequence[TimedStep],
        engine: Engine,
        run_stamped: Callable[[Sequence[Storage], Clock], list[Storage]],
    ) -> None:
        self.steps = tuple(steps)
        self._engine = engine
        self._run = run_stamped

    def run(self, inputs: Sequence[Storage]) -> TimedRun:
        """Run, and wait for the end."""
        numbers = {step.kernel: n for n, step in enumerate(self.steps) if step.kernel is not None}
        with self._engine.lock, self._engine.stamping():
            clock = Clock(self._engine, numbers)
            outputs = self._run(inputs, clock)
            self._engine.finish()
            return TimedRun(outputs, *clock.read())
