"""Drivers and libraries with their own threads: they do not survive a fork, and must be idle at process exit.

Each has an owner, whose `lock` a thread holds while it calls the driver.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import weakref
from collections.abc import Callable
from typing import Any

from rlx.errors import DeviceError

__all__ = ["finish_at_exit", "refuse_after_fork"]

_INTERRUPTED = 128 + signal.SIGINT  # the exit status, as in shells

_devices: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_finishers: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


class _LostLock:
    """The lock of a driver in a forked child."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __enter__(self) -> None:
        raise DeviceError(
            f"The device {self.device!r} was used before this process was forked, and does not work in a forked "
            "child: the threads of its driver exist only in the parent.",
            "Start processes with spawn, multiprocessing.get_context('spawn'), or let the child compute on the CPU: "
            "with rlx.default_device('cpu').",
        )

    def __exit__(self, *error: object) -> None:
        """Nothing to release."""


def refuse_after_fork(owner: Any, device: str) -> None:
    """Make `with owner.lock` raise DeviceError in a forked child."""
    _devices[owner] = device


def finish_at_exit(owner: Any, finish: Callable[[Any], None]) -> None:
    """At process exit, call `finish(owner)` and keep `owner.lock`: other threads wait for it forever.

    A thread inside a driver that is being torn down would abort the process.
    """
    _finishers[owner] = finish


def _end() -> None:
    finished = False
    try:
        for owner, finish in list(_finishers.items()):
            if not isinstance(owner.lock, _LostLock):
                owner.lock.acquire()
                finish(owner)
        finished = True
    except KeyboardInterrupt:
        pass
    if not finished:  # otherwise the driver would wait for its work while it is unloaded
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_INTERRUPTED)


def _begin_child() -> None:
    for owner, device in list(_devices.items()):
        owner.lock = _LostLock(device)


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
