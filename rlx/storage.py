"""Storage: a run of host memory with an address, and the pool that recycles it."""

from __future__ import annotations

import sys
import threading
from collections import deque

import numpy as np

__all__ = ["Storage", "allocate", "clear_pool", "from_numpy", "pool_bytes"]

ALIGNMENT = 64
_POOL_LIMIT = 1 << 31  # bytes kept for reuse


class Storage:
    """Memory that an Array or a plan reads and writes.

    `memory` is a C-contiguous NumPy array that owns its bytes (views made of it keep it alive), `pointer` the address of
    the first byte used, `offset` bytes into it.
    """

    __slots__ = ("memory", "offset", "pointer")

    def __init__(self, memory: np.ndarray, pointer: int, offset: int = 0) -> None:
        self.memory = memory
        self.pointer = pointer
        self.offset = offset

    def view(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A contiguous NumPy array over the memory, sharing it."""
        return np.ndarray(shape, dtype, self.memory, self.offset)


def from_numpy(array: np.ndarray) -> Storage:
    """The storage of a C-contiguous array, without a copy."""
    return Storage(array, array.__array_interface__["data"][0])


_pool: dict[int, deque[Storage]] = {}
_bytes = 0
_lock = threading.Lock()


def _size_class(nbytes: int) -> int:
    """Round up so that near sizes share buffers: 64-byte steps, then eighths of a power of two."""
    if nbytes <= 512:
        return max(64, (nbytes + 63) & ~63)
    step = 1 << max(6, nbytes.bit_length() - 4)
    return (nbytes + step - 1) & -step


def _fresh(size: int) -> Storage:
    raw = np.empty(size + ALIGNMENT, np.uint8)
    address = raw.__array_interface__["data"][0]
    offset = -address % ALIGNMENT
    return Storage(raw, address + offset, offset)


def allocate(nbytes: int) -> Storage:
    """Memory for `nbytes`, uninitialised, 64-byte aligned; reused once nothing refers to it."""
    global _bytes
    size = _size_class(nbytes)
    queue = _pool.get(size)
    if queue is None:
        queue = _pool.setdefault(size, deque())
    # free again when only the pool refers to the storage and only the storage to its memory
    for _ in range(min(len(queue), 8)):
        try:
            storage = queue.popleft()
        except IndexError:
            break
        if sys.getrefcount(storage) == 2 and sys.getrefcount(storage.memory) == 2:
            queue.append(storage)
            return storage
        queue.append(storage)
    storage = _fresh(size)
    with _lock:
        if _bytes + size <= _POOL_LIMIT:
            _bytes += size
            queue.append(storage)
    return storage


def pool_bytes() -> int:
    """Bytes that the pool holds, in use or free."""
    return _bytes


def clear_pool() -> None:
    """Forget every pooled buffer; those in use live on with their arrays."""
    global _bytes
    with _lock:
        _pool.clear()
        _bytes = 0
