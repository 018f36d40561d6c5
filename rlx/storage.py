"""Storage: a contiguous part of a device's memory; the host's storages, and the pool that recycles them."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from rlx.forks import reopen_after_fork

__all__ = [
    "AllocationError",
    "Blocks",
    "Device",
    "HostStorage",
    "Queue",
    "Storage",
    "aligned",
    "allocate",
    "clear_pool",
    "divided",
    "from_numpy",
    "padded",
    "pool_bytes",
    "queue_for",
    "take",
]

ALIGNMENT = 64
_POOL_LIMIT = 1 << 31  # bytes kept for reuse
_ATTEMPTS = 8  # buffers that are checked before a new one is allocated
_KEPT_BLOCKS = 4


class Device:
    """A device that runs programs and stores arrays: its platform's name and its number.

    A process's first device of a platform also equals the name: `x.device == "cpu"`. If the devices
    of a platform differ, `unit` names the kind of this one, and the device also equals the name with the unit:
    `x.device == "mlx:cpu"`. Numbers continue from process to process; `local_hardware_id` is the number within its
    process.

    >>> import rlx.numpy as jnp
    >>> device = jnp.ones(3).device
    >>> device.platform, device.id, device == "cpu"
    ('cpu', 0, True)
    """

    __slots__ = ("id", "local_hardware_id", "platform", "process_index", "unit")

    def __init__(self, platform: str, id: int = 0, unit: str = "", process_index: int = 0) -> None:
        self.platform = platform
        self.id = self.local_hardware_id = id
        self.unit = unit
        self.process_index = process_index

    def of_process(self, process_index: int, count: int) -> Device:
        """The corresponding device of another process, if each process has `count` of them."""
        other = Device(self.platform, process_index * count + self.local_hardware_id, self.unit, process_index)
        other.local_hardware_id = self.local_hardware_id
        return other

    @property
    def name(self) -> str:
        """Its name for `device=` and RLX_DEVICE."""
        return f"{self.platform}:{self.unit}" if self.unit else self.platform

    @property
    def device_kind(self) -> str:
        """The kind of device."""
        return self.platform

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other == f"{self.platform}:{self.unit or self.id}" or (
                self.local_hardware_id == 0 and other == self.platform
            )
        return isinstance(other, Device) and (self.platform, self.id) == (other.platform, other.id)

    def __hash__(self) -> int:
        return hash(self.platform)

    def __repr__(self) -> str:
        return f"Device({self.platform}:{self.unit or self.id})"


class Storage:
    """Memory of one device that an Array or a plan reads and writes; the storages of backends' memories derive from it.

    `pointer` is the address of the first byte used, in the device's address space. An asynchronous run may not have
    written it yet: `wait` waits for the run, and raises its error.
    """

    __slots__ = ("pointer",)
    pointer: int

    def view(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A contiguous NumPy array over the memory, sharing it. Raises TypeError if the host cannot address it."""
        raise TypeError(f"{type(self).__name__} is not memory that NumPy can address")

    def is_ready(self) -> bool:
        """Whether the run that writes it is done, or is known to have failed."""
        return True

    def wait(self) -> None:
        """Wait for the run that writes it; raises the run's error."""


class HostStorage(Storage):
    """Memory of the host, which only its user writes.

    `memory` is a C-contiguous NumPy array that owns its bytes (views of the array keep it alive),
    `pointer` the address of the first byte used, `offset` bytes into it.
    """

    __slots__ = ("memory", "offset")

    def __init__(self, memory: np.ndarray, pointer: int, offset: int = 0) -> None:
        self.memory = memory
        self.pointer = pointer
        self.offset = offset

    def view(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A contiguous NumPy array over the memory, sharing it."""
        return np.ndarray(shape, dtype, self.memory, self.offset)


def from_numpy(array: np.ndarray) -> Storage:
    """The storage of a C-contiguous array, without a copy."""
    return HostStorage(array, array.__array_interface__["data"][0])


_pool: dict[int, Queue] = {}
_bytes = 0
_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])


def aligned(nbytes: int) -> int:
    """The next multiple of ALIGNMENT."""
    return (nbytes + ALIGNMENT - 1) & -ALIGNMENT


def padded(nbytes: int) -> int:
    """The bytes up to the next aligned address after a block: nonzero even for an empty block."""
    return max(ALIGNMENT, aligned(nbytes))


def _size_class(nbytes: int) -> int:
    """Round up so that similar sizes share buffers: 64-byte steps, then eighths of a power of two."""
    if nbytes <= 512:
        return padded(nbytes)
    step = 1 << max(6, nbytes.bit_length() - 4)
    return (nbytes + step - 1) & -step


class AllocationError(MemoryError):
    """The machine cannot allocate `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes cannot be allocated")
        self.size = size


def _fresh(size: int) -> HostStorage:
    try:
        raw = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):  # ValueError: the size exceeds the address space
        raise AllocationError(size) from None
    address = raw.__array_interface__["data"][0]
    offset = -address % ALIGNMENT
    return HostStorage(raw, address + offset, offset)


def _counts_alone(queue: deque[HostStorage]) -> tuple[int, int]:
    """The reference counts of a storage that only a local variable holds, and of its memory."""
    storage = queue.popleft()
    return getrefcount(storage), getrefcount(storage.memory)


# measured as in `take`: a call adds a reference to its argument, but from Python 3.14 on not to a local variable
_STORAGE_ALONE, _MEMORY_ALONE = _counts_alone(deque([_fresh(ALIGNMENT)]))


def allocate(nbytes: int) -> Storage:
    """Memory for `nbytes`, uninitialised, 64-byte aligned; reused once nothing refers to it."""
    return take(queue_for(nbytes))


class Queue(deque[HostStorage]):
    """Pooled storages of one size."""

    __slots__ = ("size",)
    size: int


def queue_for(nbytes: int) -> Queue:
    """The queue from which memory for `nbytes` is taken."""
    size = _size_class(nbytes)
    queue = _pool.get(size)
    if queue is None:
        queue = Queue()
        queue.size = size
        queue = _pool.setdefault(size, queue)
    return queue


def take(queue: Queue) -> Storage:
    """A free storage of the queue, or a new one."""
    # free if only the pool refers to the storage and only the storage to its memory; free storages
    # stay at the front, so that storages in use gather at the back
    for _ in range(_ATTEMPTS if len(queue) > _ATTEMPTS else len(queue)):
        try:
            storage = queue.popleft()
        except IndexError:
            break
        if getrefcount(storage) == _STORAGE_ALONE and getrefcount(storage.memory) == _MEMORY_ALONE:
            queue.appendleft(storage)
            return storage
        queue.append(storage)
    return _pooled(queue)


def _pooled(queue: Queue) -> HostStorage:
    """A new storage, which the queue keeps unless the pool is full."""
    global _bytes
    storage = _fresh(queue.size)
    with _lock:
        if _bytes + queue.size <= _POOL_LIMIT:
            _bytes += queue.size
            queue.append(storage)
    return storage


def divided(sizes: Sequence[int]) -> list[Storage]:
    """A new storage for each size, uninitialised; their memory is one array, which nothing else refers to."""
    ends = list(itertools.accumulate(map(padded, sizes)))
    return _parts_of(ends[-1], [0, *ends[:-1]])


def _parts_of(size: int, offsets: Sequence[int]) -> list[Storage]:
    whole = _fresh(size)
    memory, pointer, start = whole.memory, whole.pointer, whole.offset
    return [HostStorage(memory, pointer + at, start + at) for at in offsets]


class Blocks:
    """Memory for several small results of a call at once: parts of a block that is reused as a whole."""

    __slots__ = ("_blocks", "_offsets", "_references", "_size")

    def __init__(self, sizes: Sequence[int]) -> None:
        self._offsets: list[int] = []
        self._size = 0
        for nbytes in sizes:
            self._offsets.append(self._size)
            self._size += padded(nbytes)
        self._blocks: deque[list[Storage]] = deque(maxlen=_KEPT_BLOCKS)
        self._references = 0

    def take(self) -> list[Storage]:
        """A storage for each size, uninitialised; all of them are free, or none is."""
        blocks = self._blocks
        for _ in range(len(blocks)):
            try:
                block = blocks.popleft()
            except IndexError:
                break
            # hold references before the block is put back, where another thread can find it
            storages = block[:]
            if _references(storages) == self._references:
                blocks.appendleft(block)
                return storages
            blocks.append(block)
        return self._fresh()

    def _fresh(self) -> list[Storage]:
        block = _parts_of(self._size, self._offsets)
        storages = block[:]
        self._references = _references(storages)
        self._blocks.append(block)
        return storages


def _references(storages: Any) -> int:
    """The reference counts of the storages of one memory, and of that memory."""
    return sum(map(getrefcount, storages)) + getrefcount(storages[0].memory)


def pool_bytes() -> int:
    """The bytes of the pool, in use or free."""
    return _bytes


def clear_pool() -> None:
    """Drop every pooled buffer; buffers in use live as long as their arrays."""
    global _bytes
    with _lock:
        for queue in _pool.values():
            queue.clear()
        _bytes = 0
