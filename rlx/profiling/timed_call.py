"""A traced call, prepared for runs that time each kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rlx.array import is_concrete
from rlx.backends.timing import Events, TimedRun, TimedStep
from rlx.call.compiled import CompiledProgram
from rlx.call.jitted import Jitted
from rlx.config import config
from rlx.errors import InputTypeError
from rlx.explain.attribution import compiled_program, lines_of
from rlx.ir.kernels import Collective, all_kernels, nested_plans
from rlx.ir.program import Origin
from rlx.profiling.steady import Round

__all__ = ["TimedCall"]

SHORT_SECONDS = 1e-3
_T = TypeVar("_T")


class TimedCall:
    """A function and its arguments, compiled with timers."""

    def __init__(self, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        jitted = fun if isinstance(fun, Jitted) else Jitted(fun)
        self.name = jitted.name
        traced = jitted.trace(*args, **kwargs)
        backend = traced.backend()
        self.device = (jitted.device or config.device) if backend.memory.host else backend.memory.device.name
        compiled = CompiledProgram(traced.closed(), backend, jitted.memory_limit)
        leaves = [traced.leaves[i] for i in compiled.used]
        for leaf in leaves:
            if not is_concrete(leaf):
                raise InputTypeError(
                    f"profile runs {self.name}, but got {leaf.type!r} without values.",
                    "Give arrays; rlx.inspect works with shapes and dtypes only.",
                )
        self._executable = compiled.executable
        self._program = lambda: compiled_program(compiled.core, backend, jitted.memory_limit)
        self._storages = [leaf.storage() for leaf in compiled.brought(leaves)]
        self._timed = None if self._executable is None else self._executable.timed()
        self._call_seconds = math.inf  # in the latest round
        self._clock_first = False

    @property
    def steps(self) -> tuple[TimedStep, ...]:
        """The timed kernels; none if nothing is computed."""
        return () if self._timed is None else self._timed.steps

    def lines(self) -> dict[int, tuple[Origin, ...]]:
        """The user's lines of each kernel, by the kernel's id."""
        plan = None if self._executable is None else self._executable.plan
        return {} if plan is None else lines_of(self._program(), plan)

    @property
    def exchanges(self) -> bool:
        """Whether a run exchanges arrays with other processes."""
        own = [step.kernel for step in self.steps if step.kernel is not None]
        inner = [kernel for outer in own for plan in nested_plans(outer) for kernel in all_kernels(plan)]
        return any(isinstance(kernel, Collective) for kernel in (*own, *inner))

    def run(self) -> TimedRun:
        """One run, with the time of each kernel."""
        if self._timed is None:
            return TimedRun([], (), Events(np.empty((0, 3), np.int64)))
        return self._timed.run(self._storages)

    def plain_seconds(self) -> float:
        """The time of a run without timers, measured in Python."""
        start = time.perf_counter()
        if self._executable is not None:
            for storage in self._executable.run(self._storages):
                storage.wait()
        return time.perf_counter() - start

    def round(self) -> Round:
        """A run with timers and one without, in alternating order. Neither keeps its results: the memory for them is
        allocated by the first run.

        Short calls follow another call directly, as in a loop, so that both find the threads awake. Runs
        that exchange arrays always do, since processes may not agree on which calls are short.
        """
        self._clock_first = not self._clock_first
        if self._clock_first:
            timed, self._call_seconds = self._led_in(self._times), self._led_in(self.plain_seconds)
        else:
            self._call_seconds, timed = self._led_in(self.plain_seconds), self._led_in(self._times)
        return Round(timed, timed.seconds, self._call_seconds)

    def _times(self) -> TimedRun:
        return self.run()._replace(outputs=[])

    def _led_in(self, measure: Callable[[], _T]) -> _T:
        if self.exchanges or self._call_seconds < SHORT_SECONDS:
            self.plain_seconds()
        return measure()
