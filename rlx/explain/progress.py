"""Progress of long compilations: a line on standard error after two seconds, and one at the end."""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from rlx.config import config

__all__ = ["announced"]

PATIENCE = 2.0  # seconds without a report
_STEP = 1.0  # seconds between two pictures of a terminal's line


@contextmanager
def announced(name: str, size: int) -> Generator[None]:
    """Report a compilation if the block takes over two seconds; `size`: the number of equations.

    On a terminal the line counts the seconds; in a file or a notebook it appears once. RLX_PROGRESS=0 disables
    the report.
    """
    if not config.progress:
        yield
        return
    done = _thread.allocate_lock()
    done.acquire()
    # without a thread there is no report: that is not worth an error
    with suppress(RuntimeError):
        _thread.start_new_thread(_watch, (done, name, size, time.perf_counter()))
    try:
        yield
    finally:
        done.release()


def _watch(done: _thread.LockType, name: str, size: int, start: float) -> None:
    """Wait in a separate thread until the work is done, and report if that takes long."""
    if done.acquire(timeout=PATIENCE):
        return
    what = f"rlx: compiling {name} ({size} {'equation' if size == 1 else 'equations'})"
    screen = sys.stderr is not None and sys.stderr.isatty()
    _say(f"{what} ..." + ("" if screen else "\n"))
    while not done.acquire(timeout=_STEP if screen else -1):
        _say(f"\r{what} ... {time.perf_counter() - start:.0f} s")
    seconds = f"{time.perf_counter() - start:.1f} s"
    _say(f"\r{what} took {seconds}\n" if screen else f"rlx: compiled {name} in {seconds}\n")


def _say(text: str) -> None:
    with suppress(AttributeError, OSError, ValueError):  # there is no standard error, or it is closed
        sys.stderr.write(text)
        sys.stderr.flush()
