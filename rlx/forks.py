"""Fork safety: a forked child must not inherit locks held by other threads of its parent, nor their unfinished work.

Only the thread that forked runs in a child. A lock held by another thread would stay locked forever, so Python locks
are replaced; native code and imports have their own locks, so a fork waits until no other thread is inside them.
"""

from __future__ import annotations

import _imp
import importlib
import logging  # noqa: F401  its hook takes a lock before a fork: hooks run last to first, so this one must run earlier
import os
import sys
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:
        """functools.cached_property without the lock that it has in Python 3.11, one for all instances."""

        def __init__(self, function: Any) -> None:
            self.function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # of two threads that compute the value, both get the first one stored
            return instance.__dict__.setdefault(self.name, self.function(instance))


__all__ = ["cached_property", "reopen_after_fork", "unforked"]

# Python's own table of a lock for each module that is being imported: nothing public says which they are
_module_locks: dict[str, Any] = getattr(importlib, "_bootstrap").__dict__.get("_module_locks", {})  # noqa: B009
_owners: weakref.WeakSet[Any] = weakref.WeakSet()
# No lock guards these two, so that Ctrl-C in a fork cannot leave a lock taken: each side first announces its action,
# then checks the other side's announcement.
_inside: set[int] = set()  # the threads in work that a fork must not interrupt
_forking: dict[str, int] = {}  # "thread": the thread that forks
PAUSE = 0.0005  # seconds
PACKAGES = {"rlx", "llvmlite", "numba", "numpy", "scipy"}  # imported where they are first needed, by any thread


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


def _import_locks(me: int) -> list[tuple[str, int | None]]:
    """Which of the modules that rlx imports have a lock, with the thread that holds it, other than `me`."""
    locks = [(name, found()) for name, found in list(_module_locks.items()) if name.partition(".")[0] in PACKAGES]
    return [(name, lock.owner) for name, lock in locks if lock is not None and lock.owner != me]


def _stop_imports(me: int) -> bool:
    """Whether no other thread is importing one of those modules. If so, none begins until `_resume_imports`."""
    _imp.acquire_lock()
    if all(owner is None for _, owner in _import_locks(me)):
        return True
    _resume_imports()
    return False


def _resume_imports() -> None:
    try:
        while True:
            _imp.release_lock()
    except RuntimeError:  # this thread holds the lock no more
        pass


def _close() -> None:
    """Before a fork: wait for the others. Interrupts are delayed as well, since hooks cannot cancel the fork."""
    me = threading.get_ident()
    late: BaseException | None = None
    while True:
        try:
            while _forking.setdefault("thread", me) != me or _inside - {me}:
                time.sleep(PAUSE)
            if _stop_imports(me):
                break
            _forking.clear()  # the import may have to enter
            time.sleep(PAUSE)
        except BaseException as error:
            late = error
    if late is not None:
        raise late


def _resume() -> None:
    _forking.clear()
    _resume_imports()


def _begin_child() -> None:
    """In a child, no other thread is inside: the others are threads of its parent."""
    me = threading.get_ident()
    for name, _ in _import_locks(me):  # another thread may have been about to take or to wait for one of them
        _module_locks.pop(name, None)
    _resume()
    _inside.intersection_update({me})
    for owner in list(_owners):
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close, after_in_parent=_resume, after_in_child=_begin_child)
