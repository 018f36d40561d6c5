"""Between host memory and MLX: what comes in is copied into MLX's memory, what goes out is looked at where it lies."""

from __future__ import annotations

import numpy as np

from rlx.backends.mlx.library import MxArray, dtype_of_memory, mx
from rlx.ir.types import memory_dtype

__all__ = ["from_host", "to_host"]


def from_host(array: np.ndarray) -> MxArray:
    """A copy of an array, of MLX's dtype for what its elements hold."""
    # without a dtype MLX makes float32 of float64
    return mx.array(array.reshape(-1).view(memory_dtype(array.dtype)), dtype_of_memory(array.dtype))


def to_host(array: MxArray, dtype: np.dtype) -> np.ndarray:
    """The elements of an array that is there, as a dense one of `dtype` that shares memory where it can."""
    return np.ascontiguousarray(np.asarray(array)).reshape(-1).view(dtype)
