"""Ctrl-C in long native loops: steps ask `interrupted` after each turn, in native code."""

from __future__ import annotations

from rlx.backends.cpu.runtime.frame import (
    CLOCK,
    COUNTDOWN,
    INTERRUPTIBLE,
    PERIOD,
    SIGNALS_CHECKED,
    THREAD_STATE,
)
from rlx.backends.cpu.runtime.native import Word, external, maximum, minimum, native
from rlx.backends.cpu.runtime.parallel_regions import nanoseconds

__all__ = ["interrupted", "restore_thread", "save_thread"]

save_thread = external("PyEval_SaveThread", "ptr")
restore_thread = external("PyEval_RestoreThread", "void", "ptr")
check_signals = external("PyErr_CheckSignals", "i32")

MILLISECOND = 1000000
LONGEST_PERIOD = 1 << 20


@native
def interrupted(slots: Word) -> int:
    """Now and then look for Ctrl-C; 1 when a signal handler raised."""
    if not slots[INTERRUPTIBLE]:
        return 0
    slots[COUNTDOWN] -= 1
    if slots[COUNTDOWN] > 0:
        return 0
    return look_for_signals(slots)


@native
def look_for_signals(slots: Word) -> int:
    """Read the clock, keep its readings some milliseconds apart, check signals each 50 ms."""
    now = nanoseconds()
    since = now - slots[CLOCK]
    slots[CLOCK] = now
    if since < MILLISECOND:
        slots[PERIOD] = minimum(2 * slots[PERIOD], LONGEST_PERIOD)
    if since > 10 * MILLISECOND:
        slots[PERIOD] = maximum(slots[PERIOD] // 16, 1)
    slots[COUNTDOWN] = slots[PERIOD]
    if now - slots[SIGNALS_CHECKED] < 50 * MILLISECOND:
        return 0
    slots[SIGNALS_CHECKED] = now
    restore_thread(slots[THREAD_STATE])
    status = check_signals()
    slots[THREAD_STATE] = save_thread()
    return status != 0
