"""A launch whose arguments are in memory, in the form in which the driver reads them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["PackedLaunch"]

_SLOT = 8  # bytes: the size of the largest argument, and the alignment of each


class PackedLaunch:
    """A kernel, and memory for its arguments: for each array its address and an offset, then numbers.

    The driver is given the address of an array of pointers, one to each argument, and copies the arguments at the
    launch (CUDA Driver API, cuLaunchKernel). places: the arrays' arguments, which each launch sets.
    """

    __slots__ = ("_pointers", "_values", "address", "function", "kernel", "numbers", "places")

    def __init__(self, kernel: Any, arrays: int, numbers: Sequence[np.generic]) -> None:
        self.kernel, self.function, self.numbers = kernel, kernel.ptr, tuple(numbers)
        count = 2 * arrays + len(self.numbers)
        self._values = (ctypes.c_int64 * max(count, 1))()
        start = ctypes.addressof(self._values)
        for place, number in enumerate(self.numbers, 2 * arrays):
            ctypes.memmove(start + _SLOT * place, number.tobytes(), number.nbytes)
        self._pointers = (ctypes.c_uint64 * max(count, 1))(*range(start, start + _SLOT * count, _SLOT))
        self.places = (ctypes.c_int64 * (2 * arrays)).from_buffer(self._values)
        self.address = ctypes.addressof(self._pointers)
