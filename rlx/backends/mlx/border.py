"""Between host memory and MLX: inputs are copied into MLX's memory, results are looked at where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rlx.backends.mlx.library import MxArray, dtype_of_memory, memory_dtype, mx
from rlx.ir.kernels import Buffer
from rlx.storage import Storage, from_numpy

__all__ = ["from_host", "received", "returned", "to_host"]


def from_host(array: np.ndarray) -> MxArray:
    """A copy of an array, of MLX's dtype for what its elements hold."""
    # without a dtype MLX makes float32 of float64
    return mx.array(array.reshape(-1).view(memory_dtype(array.dtype)), dtype_of_memory(array.dtype))


def to_host(array: MxArray, dtype: np.dtype) -> np.ndarray:
    """The elements of an array that is there, as a dense one of `dtype` that shares memory where it can."""
    return np.ascontiguousarray(np.asarray(array)).reshape(-1).view(dtype)


def received(storages: Sequence[Storage], buffers: Sequence[Buffer]) -> list[MxArray]:
    """MLX's arrays of a plan's inputs."""
    pairs = zip(storages, buffers, strict=True)
    return [from_host(storage.view((buffer.size,), buffer.dtype)) for storage, buffer in pairs]


def returned(arrays: Sequence[MxArray], buffers: Sequence[Buffer], constants: Iterable[MxArray]) -> list[Storage]:
    """Storages of a plan's results, without copies but of memory that another result or a constant has, too."""
    mx.eval(*arrays)
    return list(_apart([to_host(a, b.dtype) for a, b in zip(arrays, buffers, strict=True)], constants))


def _apart(arrays: Sequence[np.ndarray], constants: Iterable[MxArray]) -> Iterator[Storage]:
    taken = [_extent(np.asarray(c)) for c in constants]
    for array in arrays:
        start, stop = _extent(array)
        if any(start < end and begin < stop for begin, end in taken):
            array = array.copy()
        taken.append((start, stop))
        yield from_numpy(array)


def _extent(array: np.ndarray) -> tuple[int, int]:
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes
