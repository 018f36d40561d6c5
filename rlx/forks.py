"""What a forked child must not inherit: locks that other threads of its parent held, and their work half done.

In a child only the thread that forked goes on. A lock that another one held stays held for ever, so those in Python are
made anew; native code has locks of its own, so a fork waits until no thread is inside it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["Gate", "reopen_after_fork"]

_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def reopen_after_fork(owner: Any) -> None:
    """In a forked child, the `_lock` of this module or object is a new one."""
    _owners.add(owner)


def _reopen() -> None:
    for owner in list(_owners):
        owner._lock = threading.RLock()


class Gate:
    """Work that is never in the middle when the process forks: a fork waits for it, and nobody begins meanwhile.

    One thread does not enter twice.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._closed = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._open)

    @contextmanager
    def entered(self) -> Generator[None, None, None]:
        """Be inside."""
        with self._condition:
            self._condition.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._inside -= 1
                self._condition.notify_all()

    def _close(self) -> None:
        self._condition.acquire()
        self._closed = True
        self._condition.wait_for(lambda: not self._inside)

    def _open(self) -> None:
        # this thread holds the condition since _close, in the child too; waiting threads are the parent's only
        self._closed = False
        self._condition.notify_all()
        self._condition.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reopen)
