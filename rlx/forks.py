"""What a forked child must not inherit: locks that other threads of its parent held, and their work half done.

In a child only the thread that forked goes on. A lock that another one held stays held for ever, so those in Python are
made anew; native code and imports have locks of their own, so a fork waits until no other thread is inside them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["reopen_after_fork", "unforked"]

_owners: weakref.WeakSet[Any] = weakref.WeakSet()
_condition = threading.Condition()
_depth = threading.local()
_inside = 0
_closed = False


def reopen_after_fork(owner: Any) -> None:
    """In a forked child, the `_lock` of this module or object is a new one."""
    _owners.add(owner)


@contextmanager
def unforked() -> Generator[None, None, None]:
    """Work that is never in the middle when another thread forks: the fork waits, and meanwhile nobody begins."""
    global _inside
    depth = getattr(_depth, "value", 0)
    if not depth:
        with _condition:
            _condition.wait_for(lambda: not _closed)
            _inside += 1
    _depth.value = depth + 1
    try:
        yield
    finally:
        _depth.value = depth
        if not depth:
            with _condition:
                _inside -= 1
                _condition.notify_all()


def _close() -> None:
    """Before a fork; the condition stays held until after it."""
    global _closed
    own = bool(getattr(_depth, "value", 0))
    _condition.acquire()
    _condition.wait_for(lambda: not _closed)
    _closed = True
    _condition.wait_for(lambda: _inside == own)


def _open() -> None:
    """After a fork, in parent and child."""
    global _closed
    _closed = False
    _condition.notify_all()
    _condition.release()


def _begin_child() -> None:
    """Nobody waits in a child: those who did are threads of its parent."""
    global _closed, _condition
    _closed, _condition = False, threading.Condition()
    for owner in list(_owners):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close, after_in_parent=_open, after_in_child=_begin_child)
