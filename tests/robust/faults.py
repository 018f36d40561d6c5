"""Faults at every point of some files, one after another, as SQLite's tests do it.

`sweep` runs a piece of work again and again. In the n-th run an exception is raised at the n-th point that the work
comes to in the given files, until a run comes to fewer; after each, what is left must be sound. Kinds of faults:

- "interrupt": KeyboardInterrupt in the main thread, at the points where Python raises what a signal handler raises:
  where a function begins, and behind the call of a C function, whose effect is there and whose result is lost. These
  are the points in the files, and in functions of other files that they call, a few calls deep.
- "failure": MemoryError in any thread, in the place of a call that the files make.
- "disk": OSError (no space left) in the place of a call of the operating system.

Releasing what is held (locks, descriptors) has its effect in each kind: there it does not fail.
"""

from __future__ import annotations

import errno
import gc
import itertools
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

from rlx.interrupts import wait_for_background

__all__ = ["Fault", "descriptors", "raised", "sweep"]

DEEP = 3  # calls into other files
RELEASES = {"close", "closerange", "release", "__exit__", "discard", "clear", "locked", "get_ident"}


class Fault:
    """An exception to be raised at a point, counted from 0; `point` says where it was, once it has been."""

    def __init__(self, kind: str, files: Iterable[ModuleType], number: int) -> None:
        self.kind = kind
        self.files = {module.__file__ for module in files}
        self.left = number
        self.point: str | None = None
        self.raised: BaseException | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """What sys.setprofile calls."""
        if self.point is not None or not self.is_point(frame, event, argument):
            return
        self.left -= 1
        if self.left < 0:
            name = getattr(argument, "__name__", "") if event.startswith("c_") else frame.f_code.co_name
            self.point = f"{event} {name} ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})"
            self.raised = self.error()
            raise self.raised

    def error(self) -> BaseException:
        """What is raised."""
        if self.kind == "disk":
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return KeyboardInterrupt() if self.kind == "interrupt" else MemoryError()

    def is_point(self, frame: FrameType, event: str, argument: Any) -> bool:
        """Whether the exception could come here. What a finalizer raises is printed, and comes nowhere."""
        if frame.f_code.co_name == "__del__":
            return False
        if self.kind == "interrupt":
            here = threading.get_ident() == threading.main_thread().ident
            return here and event in ("call", "c_return") and self.is_near(frame)
        if event == "call" and self.kind == "failure":
            caller = frame.f_back
            return caller is not None and caller.f_code.co_filename in self.files
        if event != "c_call" or argument.__name__ in RELEASES or frame.f_code.co_filename not in self.files:
            return False
        return self.kind == "failure" or getattr(argument, "__module__", "") == os.open.__module__

    def is_near(self, frame: FrameType | None) -> bool:
        """Whether a frame is of the files, or called from there."""
        for _ in range(1 + DEEP):
            if frame is None:
                return False
            if frame.f_code.co_filename in self.files:
                return True
            frame = frame.f_back
        return False


@contextmanager
def raised(fault: Fault, reaches: bool = True) -> Generator[None, None, None]:
    """The fault happens in what is run here, or in threads begun here; its exception ends here if it `reaches` here."""
    threading.setprofile(fault)
    try:
        sys.setprofile(fault)
        try:
            yield
        finally:
            sys.setprofile(None)
    except BaseException as error:
        if not reaches or fault.raised not in _chain(error):
            raise
        cycle: list[object] = [error]  # so that the collector takes apart what it holds, in any order
        cycle.append(cycle)
    finally:
        threading.setprofile(None)


def _chain(error: BaseException) -> list[BaseException]:
    """An error and those that it came in the place of: a library may fail again while it tidies up."""
    found: list[BaseException] = [error]
    while (error := found[-1].__cause__ or found[-1].__context__ or found[-1]) not in found:
        found.append(error)
    return found


def sweep(
    kind: str,
    files: Iterable[ModuleType],
    prepare: Callable[[int], Callable[[], object]],
    check: Callable[[int], None],
    first: int = 0,
    step: int = 1,
    reaches: bool = True,
) -> int:
    """Raise at points `first`, `first` + `step` and so on of what `prepare(number)` returns; how many there were.

    After each one `check(number)` says whether all is sound. What an error holds has gone by then. `reaches`: the
    work may raise what was raised in it.
    """
    files = list(files)
    for number in itertools.count(first, step):
        fault = Fault(kind, files, number)
        work = prepare(number)
        with raised(fault, reaches):
            work()
        fault.raised = None
        wait_for_background()
        gc.collect()
        if fault.point is None:
            return (number - first) // step
        try:
            check(number)
        except BaseException as error:
            error.add_note(f"after {kind} number {number}, at {fault.point}")
            raise
    raise AssertionError


def descriptors() -> int:
    """How many files this process has open; 0 where nobody says."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
