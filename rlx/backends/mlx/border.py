"""The border between host memory and MLX: inputs are copied into MLX's memory, results are viewed in place."""

from __future__ import annotations

import numpy as np

from rlx.backends.mlx.library import MxArray, dtype_of_memory, mx
from rlx.ir.types import memory_dtype

__all__ = ["from_host", "to_host"]


def from_host(array: np.ndarray) -> MxArray:
    """A copy of an array, with the MLX dtype for its elements."""
    # without a dtype MLX converts float64 to float32
    return mx.array(array.reshape(-1).view(memory_dtype(array.dtype)), dtype_of_memory(array.dtype))


def to_host(array: MxArray, dtype: np.dtype) -> np.ndarray:
    """The elements of a computed array as a dense NumPy array of `dtype`, sharing memory if possible."""
    return np.ascontiguousarray(np.asarray(array)).reshape(-1).view(dtype)
