"""Handles of the driver, which are released with their last reference."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

__all__ = ["Handle"]


class Handle:
    """A block of memory, or an event: the number that the runtime has for it.

    The garbage collector finalises all objects of a cycle, and one of them may still give its block to a pool
    (DeviceStorage.__del__). A handle therefore ends with an array, which the collector does not track.
    """

    __slots__ = ("__weakref__", "_held", "ptr")

    def __init__(self, ptr: int, give_back: Callable[[int], None]) -> None:
        self.ptr = ptr
        self._held = np.empty(0, bool)
        weakref.finalize(self._held, _give_back, give_back, ptr).atexit = False


def _give_back(give_back: Callable[[int], None], ptr: int) -> None:
    """A failed device cannot free memory; waiting for a result raises the error, not this function."""
    try:
        give_back(ptr)
    except RuntimeError:
        pass
