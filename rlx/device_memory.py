"""Memory: the interface to a backend's memory, and the host's memory, which several backends share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from rlx.storage import Device, Storage, allocate, clear_pool, pool_bytes

__all__ = ["HostMemory", "Memory", "host_memory"]


class Memory(ABC):
    """The memory of one device: arrays hold storages of it, and programs of its backend read and write them.

    Safe to use from several threads at once. `host`: NumPy computes on it in place. `addressable`: the host can read
    its storages in place (`Storage.view`), without a copy.

    >>> from rlx.device_memory import host_memory
    >>> import numpy as np
    >>> storage = host_memory.put(np.arange(3))
    >>> host_memory.device, host_memory.get(storage, (3,), np.dtype(int)).tolist()
    (Device(cpu:0), [0, 1, 2])
    """

    host = False
    addressable = False

    def __init__(self, device: Device) -> None:
        self.device = device

    @abstractmethod
    def allocate(self, nbytes: int) -> Storage:
        """Allocate uninitialised memory of this size in bytes. Raises AllocationError."""

    @abstractmethod
    def put(self, array: np.ndarray) -> Storage:
        """A copy of a C-contiguous array's elements; the array may be overwritten after the return."""

    @abstractmethod
    def get(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The elements as a C-contiguous NumPy array. Waits for the run that writes them; raises its error."""

    def take_from(self, memory: Memory, storage: Storage, nbytes: int) -> Storage | None:
        """A copy of the first bytes of another memory's storage, without the host; None if that is impossible.

        Raises AllocationError.
        """
        return None

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all pending work. Errors stay with the arrays of their runs."""

    def pool_bytes(self) -> int:
        """Bytes that are kept for reuse or in use, if the memory counts them."""
        return 0

    def capacity(self) -> int | None:
        """The bytes that programs can use; None if unknown."""
        return None

    def limits(self) -> str:
        """The memory in use and its limits, for rlx.print_environment_info; "" if unknown."""
        return ""

    def clear_pool(self) -> None:  # noqa: B027  a memory need not have a pool
        """Free the memory that is kept for reuse."""

    def adopt(self, value: Any) -> tuple[Storage, tuple[int, ...], np.dtype]:
        """An array of the library that computes on this memory as a storage, without a copy; its shape and dtype."""
        raise TypeError(f"{type(value).__name__} is not an array of {self.device!r}")

    def borrow(self, value: Any, may_copy: bool) -> tuple[Storage, tuple[int, ...], np.dtype]:
        """As `adopt`, over the same memory, even if its owner can write to it.

        Memory that kernels cannot use directly is copied, or, if copies are not allowed, refused with a BufferError.
        """
        del may_copy
        return self.adopt(value)

    def lend(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """An array of that library over a storage, without a copy. Raises DtypeError if it has no such dtype."""
        raise TypeError(f"{self.device!r} has no arrays of another library")

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's (device type, device number). Raises BufferError if other libraries cannot read the memory."""
        raise BufferError(f"{self.device!r} has no number in DLPack: request a copy on the host, dl_device=(1, 0)")

    def dlpack(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype, stream: Any, max_version: Any) -> Any:
        """A DLPack capsule over the memory; work that the consumer queues on `stream` runs after the pending work.

        max_version: the newest version that the consumer reads, as (major, minor); None for versions before 1.0.
        Raises: BufferError as above.
        """
        raise BufferError(f"{self.device!r} does not export memory: request a copy on the host, dl_device=(1, 0)")

    def cuda_array_interface(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
        """The memory's CUDA array interface. Raises AttributeError if the memory is not CUDA's."""
        raise AttributeError(f"an array on {self.device!r} has no __cuda_array_interface__")

    def number_at(self, pointer: int) -> int:
        """The number of the device of this kind that an address belongs to."""
        del pointer
        return self.device.id


class HostMemory(Memory):
    """The machine's main memory, pooled: every array over it is also a NumPy array."""

    host = True
    addressable = True

    def allocate(self, nbytes: int) -> Storage:
        """Pooled memory, 64-byte aligned."""
        return allocate(nbytes)

    def put(self, array: np.ndarray) -> Storage:
        """A copy in pooled memory."""
        storage = allocate(array.nbytes)
        storage.view(array.shape, array.dtype)[...] = array
        return storage

    def get(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The memory itself."""
        return storage.view(shape, dtype)

    def synchronize(self) -> None:
        """Nothing is pending on the host."""

    def pool_bytes(self) -> int:
        """The bytes of the pool, in use or free."""
        return pool_bytes()

    def clear_pool(self) -> None:
        """Drop every pooled buffer; buffers in use live as long as their arrays."""
        clear_pool()

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's device: the CPU."""
        return (1, 0)

    def dlpack(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype, stream: Any, max_version: Any) -> Any:
        """NumPy's capsule."""
        return storage.view(shape, dtype).__dlpack__(stream=stream, max_version=max_version)


host_memory = HostMemory(Device("cpu"))
