"""Work that Ctrl-C does not leave half done.

Python raises a signal handler's exception in the main thread after any call: after taking a lock, before entering the
block that releases it; or after creating a file, before its name is stored. So atomic work runs in another thread. The
main thread waits for it; an interrupt ends the wait, not the work. The same holds for work that cannot check for Ctrl-C
while it runs: the main thread raises at once, and the work ends later, on memory that it keeps alive.
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

__all__ = ["abandonable", "in_background", "is_main_thread", "uninterrupted", "wait_for_background"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# locks that are held until work is done, and functions that stop the work
_running: dict[_thread.LockType, Callable[[], None]] = {}
_ending = False


def uninterrupted(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, run where signal handlers cannot raise: in another thread if the main thread calls it.

    It must not need a lock that the main thread holds: the main thread waits for it.

    >>> import threading
    >>> from rlx.interrupts import uninterrupted
    >>> uninterrupted(lambda: threading.get_ident() == threading.main_thread().ident)()
    False
    """

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not is_main_thread():
            return function(*args, **kwargs)
        return _awaited(lambda: function(*args, **kwargs), _nothing)

    return call


def _nothing() -> None:
    """Nothing to call for work that cannot be stopped."""


def abandonable(work: Callable[[], Result], stop: Callable[[], None] = _nothing) -> Result:
    """Return the result of `work()`, or raise its exception. In the main thread, Ctrl-C need not wait for its end.

    There the work runs in another thread; an interrupt calls `stop()` and is raised at once. The work may continue:
    it must own everything that it uses. It must not need a lock that the main thread holds. Process exit also calls
    `stop()`, and waits for work in any thread.

    >>> from rlx.interrupts import abandonable
    >>> abandonable(lambda: 42)
    42
    """
    if is_main_thread():
        return _awaited(work, stop)
    done = _thread.allocate_lock()
    done.acquire()
    _running[done] = stop
    try:
        if _ending:
            _running.pop(done, None)
            _wait_for_ever()
        return work()
    finally:
        _running.pop(done, None)
        done.release()
        if _ending:  # Python ends threads that acquire its lock then, which inside a C++ library aborts the process
            _wait_for_ever()


def _wait_for_ever() -> None:
    lock = _thread.allocate_lock()
    lock.acquire()
    lock.acquire()


def is_main_thread() -> bool:
    """Whether Python's signal handlers run in this thread."""
    return threading.get_ident() == threading.main_thread().ident


def _awaited(work: Callable[[], Result], stop: Callable[[], None]) -> Result:
    """Run work in another thread, and return its result or raise its exception; an interrupt calls `stop`."""
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
    """Run in a thread, which the process joins at exit; returns a lock that is held until the work is done.

    If no thread can be started (too many, or the process is exiting), the work runs in this call.
    """
    # not threading.Thread: an interrupt in its start() or join() can leave their locks taken
    done = _thread.allocate_lock()
    done.acquire()
    context = contextvars.copy_context()
    tools = threading.gettrace(), threading.getprofile()

    def run() -> None:
        expected = done in _running  # so that the process waits for it
        # an interrupt right after the start makes the caller take its own entry away
        own = _thread.allocate_lock()
        own.acquire()
        _running[own] = _nothing
        try:
            if expected or not _ending:
                _use_tools(*tools)
                context.run(work)
        finally:
            for lock in (own, done):
                _running.pop(lock, None)
                lock.release()

    if not _ending:
        started = False
        try:
            _running[done] = _nothing
            _thread.start_new_thread(run, ())
            started = True
            return done
        except RuntimeError:
            pass
        finally:
            if not started:
                _running.pop(done, None)
    work()
    done.release()
    return done


def _use_tools(trace: Any, profile: Any) -> None:
    """Install the trace functions that debuggers and coverage tools registered with threading."""
    if trace is not None:
        sys.settrace(trace)
    if profile is not None:
        sys.setprofile(profile)


def wait_for_background() -> None:
    """Wait for all background work that is running now."""
    for done in list(_running):
        with done:
            pass


def _end() -> None:
    """Libraries are torn down at process exit; no thread may be inside them then."""
    global _ending
    _ending = True
    for stop in list(_running.values()):
        stop()
    wait_for_background()


def _begin_child() -> None:
    """The parent's background threads do not run in a forked child."""
    _running.clear()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
