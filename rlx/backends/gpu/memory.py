"""Memory of a device with a queue: arrays stay there, and what is given back is used again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import numpy as np

from rlx.backends.base import failed_run
from rlx.backends.gpu.dlpack import Lent, lend
from rlx.backends.gpu.engine import Engine, View
from rlx.device_memory import Memory
from rlx.errors import DeviceError
from rlx.ir.kernels import Kernel
from rlx.storage import AllocationError, Device, Storage

__all__ = ["BorrowedStorage", "DeviceMemory", "DeviceStorage", "Pool", "rounded"]

_LEAST = 256  # bytes; devices want such alignment
_PARTS = 8  # sizes between two powers of two


def rounded(nbytes: int) -> int:
    """The size of a block that so many bytes are taken from: one of a few, so that blocks fit again."""
    step = max(_LEAST, (1 << max(nbytes - 1, 1).bit_length()) // (2 * _PARTS))
    return max(_LEAST, -(-nbytes // step) * step)


class Pool:
    """Blocks of a device's memory. What was given back may be taken at once: the queue runs in order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.nbytes = 0
        self._free: defaultdict[int, list[View]] = defaultdict(list)
        # by whoever collects garbage, who may not wait for a lock: blocks, those that other libraries have read, and
        # what gives memory back to other libraries, first as it comes, then with the end of all that may read it
        self._returned: deque[View] = deque()
        self._parted: deque[View] = deque()
        self.forgets: WeakSet[Any] = WeakSet()  # what keeps blocks that it can do without: see `forget`
        self._releases: deque[Callable[[], None]] = deque()
        self._awaited: deque[tuple[Any, Callable[[], None]]] = deque()

    def take(self, nbytes: int) -> View:
        """A block of at least so many bytes, uninitialised. Raises AllocationError."""
        size = rounded(nbytes)
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

    def part_with(self, block: View) -> None:
        """Give a block back for good: another library may still be reading it, and the device waits for that."""
        self._parted.append(block)

    def release(self, release: Callable[[], None]) -> None:
        """Give another library's memory back, once all work so far is done."""
        self._releases.append(release)

    def clear(self) -> None:
        """Give the device back what nobody uses, once its work is done."""
        with self.engine.lock:
            for keeper in [*self.forgets]:
                keeper.forget()
            self._collect()
            if self.nbytes or self._awaited:
                self.engine.finish()
            self._collect()
            self.nbytes -= sum(block.nbytes for blocks in self._free.values() for block in blocks)
            self._free.clear()

    def _collect(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._free[block.nbytes].append(block)
        while self._parted:
            self.nbytes -= self._parted.popleft().nbytes
        while self._releases:
            self._awaited.append((self.engine.mark(), self._releases.popleft()))
        while self._awaited and self.engine.is_done(self._awaited[0][0]):
            self._awaited.popleft()[1]()


class DeviceStorage(Storage):
    """A block of a pool, which has it back when the storage goes. `mark`: the end of the run that writes it.

    `is_lent`: whether other libraries were given its address.
    """

    __slots__ = ("_kernels", "_mark", "_pool", "is_lent", "view_on_device")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self._pool = pool
        self._mark: Any = None
        self._kernels: tuple[Kernel, ...] = ()
        self.is_lent = False
        self.view_on_device = self._taken(nbytes)
        self.pointer = pool.engine.address(self.view_on_device)

    def _taken(self, nbytes: int) -> View:
        return self._pool.take(nbytes)

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
            (self._pool.part_with if self.is_lent else self._pool.give)(view)


class BorrowedStorage(DeviceStorage):
    """Memory of another library, which has it back when the storage goes and all that may read it is done."""

    __slots__ = ("_lent",)

    def __init__(self, pool: Pool, lent: Lent) -> None:
        self._lent = lent
        super().__init__(pool, lent.nbytes)

    def _taken(self, nbytes: int) -> View:
        return View(self._pool.engine.borrowed(self._lent.pointer), self._lent.offset, nbytes)

    def __del__(self) -> None:
        if hasattr(self, "view_on_device"):
            self._pool.release(self._lent.release)


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

    def take_from(self, memory: Memory, storage: Storage, nbytes: int) -> Storage | None:
        """A copy over the bus, which the queues of both devices wait for where they have to."""
        if not isinstance(memory, DeviceMemory) or not self.engine.reaches(memory.engine):
            return None
        assert isinstance(storage, DeviceStorage)
        target = DeviceStorage(self.pool, nbytes)
        if nbytes:
            first, second = sorted((self.engine, memory.engine), key=lambda engine: engine.number)
            with first.lock, second.lock:
                views = (target.view_on_device.part(0, nbytes), storage.view_on_device.part(0, nbytes))
                self.engine.copy_from(memory.engine, *views)
                target.written_by(self.engine.mark(), storage._kernels)
        return target

    # ------------------------------------------------------------------ other libraries
    def borrow(self, value: Any) -> tuple[Storage, tuple[int, ...], np.dtype]:
        """Another library's array on this device, over the same memory; what it has queued comes first.

        Raises: BufferError for one that is not contiguous, or whose dtype rlx has not.
        """
        with self.engine.lock:
            lent = self.engine.taken(value)
        return BorrowedStorage(self.pool, lent), lent.shape, lent.dtype

    def adopt(self, value: Any) -> tuple[Storage, tuple[int, ...], np.dtype]:
        """A copy on the device of another library's array, which may be written to at once."""
        borrowed, shape, dtype = self.borrow(value)
        assert isinstance(borrowed, DeviceStorage)
        storage = DeviceStorage(self.pool, borrowed.view_on_device.nbytes)
        with self.engine.lock:
            self.engine.copy(storage.view_on_device, borrowed.view_on_device)
            self.engine.finish()
        return storage, shape, dtype

    def dlpack_device(self) -> tuple[int, int]:
        """The kind of device, and its number."""
        return self.engine.dlpack_device

    def dlpack(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype, stream: Any, max_version: Any) -> Any:
        """A capsule over the memory; what is queued on `stream` from now on comes after what writes it."""
        assert isinstance(storage, DeviceStorage)
        view = storage.view_on_device
        start = self.engine.address(View(view.memory, 0, view.nbytes))
        capsule = lend(storage, start, view.start, shape, dtype, self.engine.dlpack_device, max_version)
        with self.engine.lock:
            self.engine.order_behind(stream)
        storage.is_lent = True
        return capsule

    def cuda_array_interface(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
        """Version 3: whoever reads the memory comes after what is queued on the stream that it names."""
        assert isinstance(storage, DeviceStorage)
        if dtype.isbuiltin != 1:
            raise AttributeError(f"the CUDA array interface has no {dtype.name}: use DLPack")
        stream = self.engine.stream_number
        if stream is None:
            return super().cuda_array_interface(storage, shape, dtype)
        storage.is_lent = True
        # read-only arrays are refused by torch, so that, as others do, nothing is said of that
        data = (storage.pointer if 0 not in shape else 0, False)
        return {
            "shape": shape, "typestr": dtype.str, "data": data, "strides": None, "version": 3, "stream": stream,
        }  # fmt: skip

    def number_at(self, pointer: int) -> int:
        """The number of the device of this kind that an address belongs to."""
        return self.engine.number_at(pointer)

    def synchronize(self) -> None:
        """Wait for the queue. Where nothing was ever allocated, nothing was queued."""
        if self.pool.nbytes:
            with self.engine.lock:
                self.engine.finish()

    def pool_bytes(self) -> int:
        """Bytes of all blocks."""
        return self.pool.nbytes

    def clear_pool(self) -> None:
        """Give back what is free."""
        self.pool.clear()
