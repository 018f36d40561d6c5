"""Functions of HIP's library that CuPy does not use: launches whose groups run at the same time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx.errors import DeviceError

__all__ = ["Hip"]

_NAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "amdhip64_7.dll", "amdhip64_6.dll")
_KINDS = {"uint64": ctypes.c_uint64, "int64": ctypes.c_int64}


class Hip:
    """HIP's library, which CuPy has loaded; functions and streams are CuPy's handles."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def _checked(self, status: int) -> None:
        if status:
            self._library.hipGetErrorString.restype = ctypes.c_char_p
            words = self._library.hipGetErrorString(status).decode()
            raise DeviceError(f"ROCm: {words}.", "Compute on the CPU: rlx.default_device('cpu').")

    def resident(self, function: int, items: int) -> int:
        """The number of groups of `items` that run a function at the same time on a multiprocessor."""
        found = ctypes.c_int()
        self._checked(
            self._library.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                ctypes.byref(found), ctypes.c_void_p(function), ctypes.c_int(items), ctypes.c_size_t(0)
            )
        )
        return found.value

    def launch(self, function: int, groups: int, items: int, stream: int, arguments: Sequence[np.generic]) -> None:
        """Queue a function whose groups wait for one another."""
        held = [_KINDS[value.dtype.name](value.item()) for value in arguments]
        places = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        sizes = map(ctypes.c_uint, (groups, 1, 1, items, 1, 1, 0))
        self._checked(
            self._library.hipModuleLaunchCooperativeKernel(
                ctypes.c_void_p(function), *sizes, ctypes.c_void_p(stream), places
            )
        )

    @staticmethod
    @cache
    def loaded() -> Hip | None:
        """The library; None if it is not found."""
        for name in _NAMES:
            try:
                return Hip(ctypes.CDLL(name))
            except OSError:
                continue
        return None
