"""Ctrl-C in long native work: steps call `interrupted` after each iteration and each task, in native code.

Python runs signal handlers in the main thread only, so only that thread checks, between its own tasks.
"""

from __future__ import annotations

import sys

from rlx.backends.cpu.runtime.frame import (
    CLOCK,
    COUNTDOWN,
    INTERRUPTIBLE,
    MAIN_THREAD,
    PERIOD,
    POOL,
    SIGNALS_CHECKED,
    STOPPED,
    THREAD_STATE,
)
from rlx.backends.cpu.runtime.native import Word, external, maximum, minimum, native
from rlx.backends.cpu.runtime.system import current_system

__all__ = ["interrupted", "look_soon", "may_be_interrupted", "restore_thread", "save_thread", "thread_identity"]

nanoseconds = current_system().nanoseconds

save_thread = external("PyEval_SaveThread", "ptr")
restore_thread = external("PyEval_RestoreThread", "void", "ptr")
check_signals = external("PyErr_CheckSignals", "i32")
thread_identity = external("PyThread_get_thread_ident", "i32" if sys.platform == "win32" else "i64")

MILLISECOND = 1000000
LONGEST_PERIOD = 1 << 20


@native
def interrupted(slots: Word) -> int:
    """Check for Ctrl-C from time to time; 1 once a signal handler has raised, or the call was abandoned."""
    if not slots[INTERRUPTIBLE]:
        return slots[STOPPED]
    slots[COUNTDOWN] -= 1
    if slots[COUNTDOWN] > 0:
        return 0
    return look_for_signals(slots)


@native
def look_for_signals(slots: Word) -> int:
    """Read the clock, a few milliseconds apart, and check signals every 50 ms."""
    if slots[STOPPED]:
        return 1
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
    if status != 0:
        slots[STOPPED] = 1
        slots[COUNTDOWN] = 0
    return status != 0


@native
def look_soon(slots: Word) -> int:
    """Long work begins or ends: the next check reads the clock, regardless of earlier steps."""
    slots[PERIOD] = 1
    slots[COUNTDOWN] = 1
    return 0


@native
def may_be_interrupted(slots: Word) -> int:
    """Whether this thread is the one that asks, for tasks that do not know which thread runs them."""
    if not slots[INTERRUPTIBLE]:
        return 0
    return thread_identity() == slots[POOL][MAIN_THREAD]
