"""Work that Ctrl-C never finds half done.

What a signal handler raises, Python raises in the main thread, behind any call there: when a lock was taken and the
block that gives it back not entered, when a file was made and nobody knows its name. So what must be whole runs in
another thread. The main one waits for it; an interrupt ends the wait, not the work. So does what cannot look for
Ctrl-C while it runs: the main thread raises at once, and the work ends behind it, on memory that it holds.
"""

from __future__ import annotations

import _thread
import atexit
import contextvars
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["abandonable", "in_background", "uninterrupted", "wait_for_background"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_running: set[_thread.LockType] = set()
_ending = False


def uninterrupted(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, run where no signal handler raises anything: in a thread of its own if the main thread calls it.

    It must not need a lock that the main thread holds: that one waits.

    >>> import threading
    >>> from rlx.interrupts import uninterrupted
    >>> uninterrupted(lambda: threading.get_ident() == threading.main_thread().ident)()
    False
    """

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if threading.get_ident() != threading.main_thread().ident:
            return function(*args, **kwargs)
        return _awaited(lambda: function(*args, **kwargs))

    return call


def abandonable(work: Callable[[], Result], stop: Callable[[], None]) -> Result:
    """What `work()` returns; what it raises is raised here. In the main thread, Ctrl-C need not wait for its end.

    There the work runs in a thread of its own; an interrupt calls `stop()` and is raised at once. The work may go on:
    what it uses must be its own. It must not need a lock that the main thread holds.

    >>> from rlx.interrupts import abandonable
    >>> abandonable(lambda: 42, lambda: None)
    42
    """
    if threading.get_ident() != threading.main_thread().ident:
        return work()
    return _awaited(work, stop)


def _awaited(work: Callable[[], Result], stop: Callable[[], None] = lambda: None) -> Result:
    """What work returns or raises in another thread; `stop` is called where the wait is interrupted."""
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, work()))
        except BaseException as error:
            outcome[:] = [(False, error)]

    waited = False
    try:
        with in_background(run):
            waited = True
    finally:
        if not waited:
            stop()
    succeeded, value = outcome.pop()
    if succeeded:
        return value
    try:
        raise value
    finally:
        del value  # its traceback refers to this frame


def in_background(work: Callable[[], None]) -> _thread.LockType:
    """Run in a thread, which the process waits for at its end; returns a lock that is held until the work is done.

    Where no thread can be started (too many, or the process ends) the work is done here and now.
    """
    # not threading.Thread: an interrupt in its start() or join() can leave their locks taken
    done = _thread.allocate_lock()
    done.acquire()
    context = contextvars.copy_context()
    tools = threading.gettrace(), threading.getprofile()

    def run() -> None:
        expected = done in _running  # so that the process waits for it
        _running.add(done)
        try:
            if expected or not _ending:
                _use_tools(*tools)
                context.run(work)
        finally:
            _running.discard(done)
            done.release()

    if not _ending:
        started = False
        try:
            _running.add(done)
            _thread.start_new_thread(run, ())
            started = True
            return done
        except RuntimeError:
            pass
        finally:
            if not started:
                _running.discard(done)
    work()
    done.release()
    return done


def _use_tools(trace: Any, profile: Any) -> None:
    """What debuggers and measurements of coverage asked threading for."""
    if trace is not None:
        sys.settrace(trace)
    if profile is not None:
        sys.setprofile(profile)


def wait_for_background() -> None:
    """Return when nothing runs that is running now."""
    for done in list(_running):
        with done:
            pass


def _end() -> None:
    """Libraries take themselves apart as the process ends; nobody may be inside them then."""
    global _ending
    _ending = True
    wait_for_background()


def _begin_child() -> None:
    """What runs in the parent's threads does not run in a forked child."""
    _running.clear()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
