"""Memory of MLX: arrays of the device are mx.arrays, which the host and other libraries read without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.backends.mlx.border import from_host, to_host
from rlx.backends.mlx.library import (
    ALIKE,
    MlxDevice,
    MxArray,
    at_work,
    computed,
    computing_on,
    dtype_of_memory,
    mx,
)
from rlx.backends.mlx.mistakes import gigabytes, memory_in_use, memory_limits
from rlx.device_memory import Memory
from rlx.errors import DtypeError
from rlx.ir.types import dtype_of, memory_dtype
from rlx.storage import Device, Storage

__all__ = ["MlxMemory", "MlxStorage"]

Failed = Callable[[BaseException], BaseException]  # the error that waiting raises for an error of MLX


class MlxStorage(Storage):
    """The elements of an array as an mx.array of one dimension (see ir.types.memory_dtype), computed or pending.

    The array is never assigned to, so that several storages may share it.
    """

    __slots__ = ("_error", "_failed", "array")

    def __init__(self, array: MxArray, failed: Failed | None = None, error: Exception | None = None) -> None:
        self.array = array
        self._failed = failed
        self._error = error

    @property
    def pointer(self) -> int:  # ty: ignore[incompatible-property-override]
        """The address; waits for the elements."""
        return to_host(self.array, np.dtype(np.uint8)).__array_interface__["data"][0]

    def typed(self, dtype: np.dtype) -> MxArray:
        """The elements as MLX's numbers of `dtype`."""
        wanted = dtype_of_memory(dtype)
        return self.array if self.array.dtype == wanted else mx.view(self.array, wanted)

    def view(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """NumPy's array over MLX's memory."""
        self.wait()
        return to_host(self.array, dtype).reshape(shape)

    def is_ready(self) -> bool:
        """True, after waiting: MLX does not report whether an array is computed."""
        if self._error is None:
            self._error = computed((self.array,))
        return True

    def wait(self) -> None:
        """Wait for the elements; raises the error of the run that should have computed them."""
        self.is_ready()
        if self._error is not None:
            raise self._error if self._failed is None else self._failed(self._error)


class MlxMemory(Memory):
    """MLX's allocations, for its processor and its GPU alike; `unit`: the unit of operations on arrays here."""

    addressable = True

    def __init__(self, device: Device, unit: MlxDevice) -> None:
        super().__init__(device)
        self.unit = unit

    def allocate(self, nbytes: int) -> Storage:
        """Allocate memory of zeros."""
        with computing_on(self.unit), at_work():
            return MlxStorage(mx.zeros((nbytes,), mx.uint8))

    def put(self, array: np.ndarray) -> Storage:
        """Copy an array to MLX's memory."""
        with computing_on(self.unit), at_work():
            return MlxStorage(from_host(array))

    def get(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The memory itself."""
        return storage.view(shape, dtype)

    def synchronize(self) -> None:
        """Wait for the operations on the unit's stream."""
        with computing_on(self.unit), at_work():
            mx.synchronize(self.unit.stream)

    def pool_bytes(self) -> int:
        """The bytes of MLX's memory, in use or kept for reuse."""
        return mx.get_active_memory() + mx.get_cache_memory()

    def limits(self) -> str:
        """The memory that MLX reports, and Metal's numbers for the GPU."""
        with at_work():
            kept = mx.set_cache_limit(0)  # the only way to read it
            mx.set_cache_limit(kept)
        return f"{memory_in_use()}; {', '.join(memory_limits())}; at most {gigabytes(kept)} are kept for reuse"

    def clear_pool(self) -> None:
        """Free the memory that MLX keeps for reuse."""
        mx.clear_cache()

    # -------------------------------------------------------------- MLX's own arrays
    def adopt(self, value: MxArray) -> tuple[Storage, tuple[int, ...], np.dtype]:
        """An mx.array as a storage, without a copy if it is dense; its shape and dtype."""
        dtype = _dtype_of(value)
        with computing_on(self.unit), at_work():
            # a new handle: assigning to elements of the given array changes only that array
            elements = mx.contiguous(mx.reshape(value, (-1,)))
            wanted = dtype_of_memory(dtype)
            return MlxStorage(elements if elements.dtype == wanted else mx.view(elements, wanted)), value.shape, dtype

    def lend(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> MxArray:
        """An mx.array over a storage, without a copy. Raises DtypeError if MLX has no such dtype."""
        assert isinstance(storage, MlxStorage)
        wanted = _counterpart(dtype)
        with computing_on(self.unit), at_work():
            elements = storage.typed(dtype)
            return mx.reshape(elements if elements.dtype == wanted else mx.view(elements, wanted), shape)

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's device: the processor's, or Metal's."""
        return tuple(mx.zeros((0,)).__dlpack_device__())

    def dlpack(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype, stream: Any, max_version: Any) -> Any:
        """MLX's capsule, after waiting for the elements."""
        storage.wait()
        return self.lend(storage, shape, dtype).__dlpack__()


def _counterpart(dtype: np.dtype) -> Any:
    """The equal dtype of MLX."""
    if dtype.name in ALIKE:
        return ALIKE[dtype.name]
    if memory_dtype(dtype) == dtype:
        return dtype_of_memory(dtype)
    raise DtypeError(
        f"MLX has no {dtype.name}, so an array of this dtype has no mx.array.",
        "Convert it first: x.astype(...) to float32 or complex64.",
    )


def _dtype_of(value: MxArray) -> np.dtype:
    """The rlx dtype of an mx.array's dtype."""
    name = str(value.dtype).rpartition(".")[2]
    return dtype_of(name.rstrip("_"))
