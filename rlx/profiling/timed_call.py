"""A traced call made ready for runs that take the time of each kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rlx.array import ConcreteArray
from rlx.backends.timing import Events, TimedRun, TimedStep
from rlx.call.compiled import CompiledProgram
from rlx.call.jitted import Jitted
from rlx.config import config
from rlx.errors import InputTypeError
from rlx.profiling.steady import Round

__all__ = ["TimedCall"]

SHORT_SECONDS = 1e-3
_T = TypeVar("_T")


class TimedCall:
    """A function and its arguments, compiled with a clock."""

    def __init__(self, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        jitted = fun if isinstance(fun, Jitted) else Jitted(fun)
        self.name = jitted.name
        traced = jitted.trace(*args, **kwargs)
        backend = jitted.backend_for(traced._request, traced.program, traced._captured)
        self.device = (jitted.device or config.device) if backend.memory.host else backend.memory.device.name
        compiled = CompiledProgram(traced.closed(), backend, jitted.memory_limit)
        leaves = [traced._request.leaves[i] for i in compiled.used]
        for leaf in leaves:
            if not isinstance(leaf, ConcreteArray):
                raise InputTypeError(
                    f"profile runs {self.name}, and was given {leaf.type!r} without values.",
                    "Give arrays; rlx.inspect takes shapes and dtypes alone.",
                )
        self._executable = compiled.executable
        self._storages = [leaf.storage() for leaf in compiled.brought(leaves)]
        self._timed = None if self._executable is None else self._executable.timed()
        self._call_seconds = math.inf  # of the latest round
        self._clock_first = False

    @property
    def steps(self) -> tuple[TimedStep, ...]:
        """The kernels whose times are taken; none where nothing is computed."""
        return () if self._timed is None else self._timed.steps

    def run(self) -> TimedRun:
        """One run, with the time of each kernel."""
        if self._timed is None:
            return TimedRun([], (), Events(np.empty((0, 3), np.int64)))
        return self._timed.run(self._storages)

    def plain_seconds(self) -> float:
        """How long a run takes without a clock, from Python."""
        start = time.perf_counter()
        if self._executable is not None:
            for storage in self._executable.run(self._storages):
                storage.wait()
        return time.perf_counter() - start

    def round(self) -> Round:
        """A run with clocks and one without, which take turns to be the first. Neither keeps its results: memory for
        them is there after the first run.

        Where calls are short, each comes right behind another one, as in a loop, so that both find threads awake.
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
        if self._call_seconds < SHORT_SECONDS:
            self.plain_seconds()
        return measure()
