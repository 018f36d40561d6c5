"""What a forked child must not inherit: locks that other threads of its parent held, and their work half done.

In a child only the thread that forked goes on. A lock that another one held stays held for ever, so those in Python are
made anew; native code and imports have locks of their own, so a fork waits until no other thread is inside them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["reopen_after_fork", "unforked"]

_owners: weakref.WeakSet[Any] = weakref.WeakSet()
# No lock guards these two, so that Ctrl-C in a fork leaves none taken: each side first says what it is about to do,
# then looks what the other one said.
_inside: set[int] = set()  # the threads in work that no fork may find in the middle
_forking: dict[str, int] = {}  # "thread": which one forks
PAUSE = 0.0005  # seconds


def reopen_after_fork(owner: Any) -> None:
    """In a forked child, the `_lock` of this module or object is a new one."""
    _owners.add(owner)


@contextmanager
def unforked() -> Generator[None, None, None]:
    """Work that is never in the middle when another thread forks: the fork waits, and meanwhile nobody begins.

    It is for threads that no interrupt reaches: see rlx.interrupts.
    """
    me = threading.get_ident()
    if me in _inside:
        yield
        return
    try:
        _inside.add(me)
        while _forking.get("thread", me) != me:
            _inside.discard(me)
            time.sleep(PAUSE)
            _inside.add(me)
        yield
    finally:
        _inside.discard(me)


def _close() -> None:
    """Before a fork: wait for the others. An interrupt waits, too, since hooks cannot call the fork off."""
    me = threading.get_ident()
    late: BaseException | None = None
    while True:
        try:
            while _forking.setdefault("thread", me) != me or _inside - {me}:
                time.sleep(PAUSE)
            break
        except BaseException as error:
            late = error
    if late is not None:
        raise late


def _begin_child() -> None:
    """Nobody else is inside in a child: the others are threads of its parent."""
    _forking.clear()
    _inside.intersection_update({threading.get_ident()})
    for owner in list(_owners):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close, after_in_parent=_forking.clear, after_in_child=_begin_child)
