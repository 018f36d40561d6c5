"""Memory of a device with a queue: arrays stay there, and what is given back is used again."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import numpy as np

from rlx.backends.base import failed_run
from rlx.backends.gpu.engine import Engine, View
from rlx.device_memory import Memory
from rlx.errors import DeviceError
from rlx.ir.kernels import Kernel
from rlx.storage import AllocationError, Device, Storage

__all__ = ["DeviceMemory", "DeviceStorage", "Pool"]

_LEAST = 256  # bytes; devices want such alignment
_PARTS = 8  # sizes between two powers of two


def _rounded(nbytes: int) -> int:
    """The size of a block that so many bytes are taken from: one of a few, so that blocks fit again."""
    step = max(_LEAST, (1 << max(nbytes - 1, 1).bit_length()) // (2 * _PARTS))
    return max(_LEAST, -(-nbytes // step) * step)


class Pool:
    """Blocks of a device's memory. What was given back may be taken at once: the queue runs in order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.nbytes = 0
        self._free: defaultdict[int, list[View]] = defaultdict(list)
        self._returned: deque[View] = deque()  # by whoever collects garbage, who may not wait for a lock

    def take(self, nbytes: int) -> View:
        """A block of at least so many bytes, uninitialised. Raises AllocationError."""
        size = _rounded(nbytes)
        with self.engine.lock:
            self._collect()
            if self._free[size]:
                return self._free[size].pop()
            block = self._fresh(size)
            if block is None:
                self.clear()
                block = self.engine.allocate(size)
            self.nbytes += size
            return block

    def _fresh(self, size: int) -> View | None:
        try:
            return self.engine.allocate(size)
        except AllocationError:
            return None

    def give(self, block: View) -> None:
        """Give a block back that `take` gave."""
        self._returned.append(block)

    def clear(self) -> None:
        """Give the device back what nobody uses, once its work is done."""
        with self.engine.lock:
            self._collect()
            if self.nbytes:
                self.engine.finish()
            self.nbytes -= sum(block.nbytes for blocks in self._free.values() for block in blocks)
            self._free.clear()

    def _collect(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._free[block.nbytes].append(block)


class DeviceStorage(Storage):
    """A block of a pool, which has it back when the storage goes. `mark`: the end of the run that writes it."""

    __slots__ = ("_kernels", "_mark", "_pool", "view_on_device")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self._pool = pool
        self._mark: Any = None
        self._kernels: tuple[Kernel, ...] = ()
        self.view_on_device = pool.take(nbytes)
        self.pointer = pool.engine.address(self.view_on_device)

    def written_by(self, mark: Any, kernels: tuple[Kernel, ...]) -> None:
        """A run of these kernels, which is over at the mark, writes it."""
        self._mark, self._kernels = mark, kernels

    def is_ready(self) -> bool:
        """Whether the run is over."""
        return self._mark is None or self._pool.engine.is_done(self._mark)

    def wait(self) -> None:
        """Wait until the run is over; raises its error, with the user's lines."""
        if self._mark is None:
            return
        try:
            self._pool.engine.wait(self._mark)
        except DeviceError as error:
            raise failed_run(error, self._kernels) from None
        self._mark = None

    def __del__(self) -> None:
        view = getattr(self, "view_on_device", None)
        if view is not None:
            self._pool.give(view)


class DeviceMemory(Memory):
    """The memory of an engine's device."""

    def __init__(self, device: Device, engine: Engine) -> None:
        super().__init__(device)
        self.engine = engine
        self.pool = Pool(engine)

    def allocate(self, nbytes: int) -> Storage:
        """A block of the pool."""
        return DeviceStorage(self.pool, nbytes)

    def put(self, array: np.ndarray) -> Storage:
        """A copy on the device."""
        storage = DeviceStorage(self.pool, array.nbytes)
        if array.nbytes:
            with self.engine.lock:
                self.engine.write(storage.view_on_device.part(0, array.nbytes), array.reshape(-1).view(np.uint8))
        return storage

    def get(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A copy on the host."""
        assert isinstance(storage, DeviceStorage)
        storage.wait()
        array = np.empty(shape, dtype)
        if array.nbytes:
            with self.engine.lock:
                view = storage.view_on_device.part(0, array.nbytes)
                self.engine.read(view, array.reshape(-1).view(np.uint8))
        return array

    def synchronize(self) -> None:
        """Wait for the queue. Where nothing was ever allocated, nothing was queued."""
        if self.pool.nbytes:
            self.engine.finish()

    def pool_bytes(self) -> int:
        """Bytes of all blocks."""
        return self.pool.nbytes

    def clear_pool(self) -> None:
        """Give back what is free."""
        self.pool.clear()
