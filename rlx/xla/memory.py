"""Memory of PJRT devices: a storage is a jax array, with the shape in which XLA's programs read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.device_memory import Memory
from rlx.storage import AllocationError, Device, Storage
from rlx.xla.client import copied_to, jax, xla_error

__all__ = ["XlaMemory", "XlaStorage"]

Failed = Callable[[BaseException], BaseException]  # the error that waiting raises for an error of XLA


class XlaStorage(Storage):
    """The elements of an array as a jax array, computed or pending. It is immutable.

    failed: the error that waiting raises for XLA's.
    """

    __slots__ = ("_failed", "array")

    def __init__(self, array: Any, failed: Failed | None = None) -> None:
        self.array = array
        self._failed = failed

    @property
    def pointer(self) -> int:  # ty: ignore[incompatible-property-override]
        """The address in the device's address space; waits for the elements."""
        self.wait()
        return self.array.unsafe_buffer_pointer()

    def of_type(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """The elements as a jax array of this shape and dtype: itself, or a copy if it has others."""
        array = self.array
        if array.shape == shape and array.dtype == dtype:
            return array
        return copied_to(next(iter(array.devices())), self.view(shape, dtype))

    def view(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The elements on the host: in place for a processor's, otherwise a copy."""
        self.wait()
        return np.ascontiguousarray(np.asarray(self.array)).reshape(-1).view(dtype).reshape(shape)

    def is_ready(self) -> bool:
        """Whether the run that computes the elements is done."""
        return self.array.is_ready()

    def wait(self) -> None:
        """Wait for the elements; raises the error of the run that should have computed them."""
        try:
            self.array.block_until_ready()
        except xla_error() as error:
            raise (error if self._failed is None else self._failed(error)) from None


class XlaMemory(Memory):
    """The memory of one device of PJRT."""

    def __init__(self, device: Device, place: Any) -> None:
        super().__init__(device)
        self.place = place

    def allocate(self, nbytes: int) -> Storage:
        """Allocate memory of zeros."""
        return self.put(np.zeros(nbytes, np.uint8))

    def put(self, array: np.ndarray) -> Storage:
        """Copy an array to the device."""
        try:
            return XlaStorage(copied_to(self.place, array))
        except xla_error() as error:
            raise AllocationError(array.nbytes) from error

    def get(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The elements on the host."""
        return storage.view(shape, dtype)

    def synchronize(self) -> None:
        """Wait for a copy, which the device orders after all earlier work."""
        copied_to(self.place, np.zeros((), np.uint8)).block_until_ready()

    def pool_bytes(self) -> int:
        """The bytes in use, if the device counts them."""
        return (self.place.memory_stats() or {}).get("bytes_in_use", 0)

    def limits(self) -> str:
        """The memory that the device reports."""
        told = self.place.memory_stats() or {}
        return ", ".join(f"{name} {told[name]}" for name in ("bytes_in_use", "bytes_limit") if name in told)

    # -------------------------------------------------------------- jax's own arrays
    def adopt(self, value: Any) -> tuple[Storage, tuple[int, ...], np.dtype]:
        """A jax array as a storage, without a copy; its shape and dtype."""
        return XlaStorage(value), value.shape, np.dtype(value.dtype)

    def lend(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A jax array over a storage."""
        assert isinstance(storage, XlaStorage)
        return storage.of_type(shape, dtype)

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's device."""
        return tuple(jax().numpy.zeros((), device=self.place).__dlpack_device__())

    def dlpack(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype, stream: Any, max_version: Any) -> Any:
        """jax's capsule, after waiting for the elements."""
        storage.wait()
        return self.lend(storage, shape, dtype).__dlpack__(stream=stream, max_version=max_version)
