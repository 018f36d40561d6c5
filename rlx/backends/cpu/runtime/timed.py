"""A plan with a clock step after every kernel, for profiles."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

import numpy as np

from rlx.backends.base import Executable
from rlx.backends.cpu.runtime import executor
from rlx.backends.cpu.runtime.table import TimeLog
from rlx.backends.timing import Events, StepTime, TimedExecutable, TimedRun
from rlx.forks import reopen_after_fork
from rlx.storage import Storage

__all__ = ["TimedNativeExecutable"]

EVENTS = 100_000  # that one run keeps; times and counts have no limit
_UNCOUNTED = 2  # clock steps before the first kernel


class TimedNativeExecutable(TimedExecutable):
    """Runs the same kernels as its executable; only the table differs."""

    def __init__(self, executable: Executable, clock: TimeLog, frame: np.ndarray) -> None:
        """executable: for a timed table; clock: the table's; frame: the initial contents of its frames."""
        self._executable = executable
        cells = clock.steps
        self.steps = cells[_UNCOUNTED:]
        self._first_event = executor.LOG_HEAD + executor.CELL_WORDS * len(cells)
        self._log = np.zeros(self._first_event + executor.EVENT_WORDS * EVENTS, np.int64)
        frame[clock.slot] = self._log.ctypes.data
        self._lock = threading.Lock()
        reopen_after_fork(self)
        self._overhead = sys.maxsize  # of one clock step, in nanoseconds

    def run(self, inputs: Sequence[Storage]) -> TimedRun:
        """Run, and read the log. The clock's own cost is subtracted."""
        with self._lock:
            self._log[: self._first_event] = 0
            self._log[executor.NEXT_EVENT] = self._first_event
            self._log[executor.EVENTS_END] = len(self._log)
            outputs = self._executable.run(inputs)
            cells = self._log[executor.LOG_HEAD : self._first_event].reshape(-1, executor.CELL_WORDS)
            self._overhead = min(self._overhead, int(cells[_UNCOUNTED - 1, 0]))
            times = tuple(
                StepTime(max(0, total - self._overhead * count), count) for total, count in cells[_UNCOUNTED:].tolist()
            )
            return TimedRun(outputs, times, self._events())

    def _events(self) -> Events:
        words = self._log[self._first_event : self._log[executor.NEXT_EVENT]]
        rows = words.reshape(-1, executor.EVENT_WORDS)[_UNCOUNTED:].copy()
        rows[:, 0] = (rows[:, 0] - executor.LOG_HEAD) // executor.CELL_WORDS - _UNCOUNTED
        return Events(rows)
