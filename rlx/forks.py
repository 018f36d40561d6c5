"""Fork safety: a forked child must not inherit locks held by other threads of its parent, nor their unfinished work.

Only the thread that forked runs in a child. A lock held by another thread would stay locked forever, so Python locks
are replaced; native code and imports have their own locks, so a fork waits until no other thread is inside them.
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
# No lock guards these two, so that Ctrl-C in a fork cannot leave a lock taken: each side first announces its action,
# then checks the other side's announcement.
_inside: set[int] = set()  # the threads in work that a fork must not interrupt
_forking: dict[str, int] = {}  # "thread": the thread that forks
PAUSE = 0.0005  # seconds


def reopen_after_fork(owner: Any) -> None:
    """Replace the `_lock` of this module or object in forked children."""
    _owners.add(owner)


@contextmanager
def unforked() -> Generator[None, None, None]:
    """Work that no other thread's fork interrupts: the fork waits, and no thread enters meanwhile.

    For threads that interrupts do not reach: see rlx.interrupts.
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
    """Before a fork: wait for the others. Interrupts are delayed as well, since hooks cannot cancel the fork."""
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
    """In a child, no other thread is inside: the others are threads of its parent."""
    _forking.clear()
    _inside.intersection_update({threading.get_ident()})
    for owner in list(_owners):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close, after_in_parent=_forking.clear, after_in_child=_begin_child)
