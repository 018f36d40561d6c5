"""A clock to subtract readings of, and a way to empty the processor's caches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from rlx.errors import OptionError

__all__ = ["CacheBuster", "Tick", "time_ns"]

Result = TypeVar("Result")
CACHE_BYTES = 32 << 20
LINE_BYTES = 64


class Tick:
    """A reading of a monotonic clock; its methods return the elapsed time in their unit.

    >>> from rlx.bench import Tick
    >>> start = Tick.now()
    >>> 0 <= start.elapsed_ms() <= start.elapsed_us()
    True
    """

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    @classmethod
    def now(cls) -> Tick:
        """The reading of this moment."""
        return cls(time.perf_counter_ns())

    def elapsed_ns(self) -> int:
        """Nanoseconds since this reading."""
        return time.perf_counter_ns() - self.nanoseconds

    def elapsed_us(self) -> float:
        """Microseconds since this reading."""
        return self.elapsed_ns() / 1e3

    def elapsed_ms(self) -> float:
        """Milliseconds since this reading."""
        return self.elapsed_ns() / 1e6

    def __sub__(self, earlier: Tick) -> int:
        """Nanoseconds from an earlier reading to this one."""
        return self.nanoseconds - earlier.nanoseconds

    def __repr__(self) -> str:
        return f"Tick({self.nanoseconds})"


def time_ns(function: Callable[[], Result]) -> tuple[Result, int]:
    """The result of a function without arguments, and its time in nanoseconds.

    Results of rlx are there when a call returns; other libraries may have to be waited for in the function.

    >>> from rlx.bench import time_ns
    >>> result, nanoseconds = time_ns(lambda: 6 * 7)
    >>> result, nanoseconds > 0
    (42, True)
    """
    start = time.perf_counter_ns()
    result = function()
    return result, time.perf_counter_ns() - start


class CacheBuster:
    """Memory that is traversed to evict other data from the processor's caches.

    Args:
      nbytes: how much memory; 32 MB if left out. It has to be more than the last cache holds.

    Raises OptionError for less than a line of cache.

    >>> from rlx.bench import CacheBuster
    >>> CacheBuster(1 << 20).thrash()
    """

    def __init__(self, nbytes: int = CACHE_BYTES) -> None:
        if nbytes < LINE_BYTES:
            raise OptionError(f"CacheBuster got {nbytes} bytes.", f"Write at least {LINE_BYTES}, a line of cache.")
        self._words = np.zeros(nbytes // 8, np.int64)

    def thrash(self) -> None:
        """Write to every line of the memory."""
        self._words[:: LINE_BYTES // 8] += 1
