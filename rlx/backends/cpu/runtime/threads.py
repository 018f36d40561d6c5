"""The thread pool from Python: the number of threads, the pool, and fork.

Workers are plain system threads that never touch Python: they start when a region first needs
them, sleep between regions, and end with the process. A forked child starts its own.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path

import numpy as np

from rlx.backends.cpu.runtime.frame import (
    ACTIVE,
    CLOSED,
    CONDITION,
    MAIN_THREAD,
    MAXIMUM_THREADS,
    MUTEX,
    POOL_WORDS,
    SPIN,
    STARTED,
    THREADS,
    WORKERS,
)
from rlx.config import config
from rlx.errors import OptionError

__all__ = ["STABLE_THREADS", "dividing_threads", "get_num_threads", "pool_address", "set_num_threads", "worker_count"]

SPIN_NANOSECONDS = 30_000
STABLE_THREADS = 16  # products are cut for so many under config.deterministic


def available_processors() -> int:
    """The number of processors that this process may use: its affinity, or less if its container has a quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return min(count, _container_quota() or count)


def _container_quota() -> int | None:
    """Processors' worth of time that Linux grants the control group, rounded up."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else max(1, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        return None


def initial_threads() -> int:
    """RLX_NUM_THREADS, or every processor."""
    chosen = os.environ.get("RLX_NUM_THREADS")
    if not chosen:
        return min(available_processors(), MAXIMUM_THREADS)
    if not chosen.strip().isdigit() or int(chosen) < 1:
        raise ValueError(f"RLX_NUM_THREADS must be a positive integer, not {chosen!r}")
    return min(int(chosen), MAXIMUM_THREADS)


def _new_pool() -> np.ndarray:
    """The words of a pool. They are never freed: workers read them while Python shuts down."""
    memory = np.zeros(POOL_WORDS + 8, np.int64)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    skip = -memory.ctypes.data % 64 // 8
    pool = memory[skip : skip + POOL_WORDS]
    _reset(pool, initial_threads())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _reset(pool, int(pool[THREADS])))
    return pool


def _reset(pool: np.ndarray, threads: int) -> None:
    """A pool without workers, no region open."""
    pool[:] = 0
    pool[ACTIVE] = CLOSED
    pool[THREADS] = threads
    pool[SPIN] = SPIN_NANOSECONDS
    pool[MAIN_THREAD] = threading.main_thread().ident or 0
    if sys.platform != "win32":
        library = ctypes.CDLL(None)
        library.pthread_mutex_init(ctypes.c_void_p(pool[MUTEX:].ctypes.data), None)
        library.pthread_cond_init(ctypes.c_void_p(pool[CONDITION:].ctypes.data), None)


_pool = _new_pool()


def pool_address() -> int:
    """The address of the pool's words."""
    return int(_pool.ctypes.data)


def set_num_threads(number: int) -> None:
    """Run kernels on up to `number` threads, the calling one included.

    >>> import rlx
    >>> rlx.set_num_threads(1)
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise OptionError(f"set_num_threads got {number!r}.", "The number of threads is an integer.")
    if not 1 <= number <= MAXIMUM_THREADS:
        raise OptionError(
            f"set_num_threads got {number}.", f"The number of threads is 1 to {MAXIMUM_THREADS}."
        )
    _pool[THREADS] = number


def get_num_threads() -> int:
    """The number of threads that a kernel may use."""
    return int(_pool[THREADS])


def dividing_threads() -> int:
    """The number of threads for which products are cut in blocks: results' last bits depend on the cut."""
    return STABLE_THREADS if config.deterministic else get_num_threads()


def worker_count() -> tuple[int, int]:
    """The numbers of workers that were started, and that began to run."""
    pool = _pool
    return int(pool[WORKERS]), int(pool[STARTED])
