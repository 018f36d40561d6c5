"""Memory of a device with a queue: arrays stay there, and freed blocks are reused."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
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

_LEAST = 256  # bytes; the alignment that devices need
_ALIGNED = 16  # bytes that kernels load at once
_RUNS = 64  # ends of runs that are remembered: a later end serves as well
_PARTS = 8  # block sizes between two powers of two


def rounded(nbytes: int) -> int:
    """The size of the block for this many bytes: one of a few sizes, so that blocks can be reused."""
    step = max(_LEAST, (1 << max(nbytes - 1, 1).bit_length()) // (2 * _PARTS))
    return max(_LEAST, -(-nbytes // step) * step)


class Pool:
    """Blocks of a device's memory. A freed block may be reused at once: the queue runs in order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.nbytes = 0
        # with the number of the run after which no queued work uses the block
        self._free: defaultdict[int, list[tuple[View, int]]] = defaultdict(list)
        # the number of runs, of those that are over, and the ends of the latest runs
        self._runs, self._over = 0, 0
        self._marks: deque[tuple[int, Any]] = deque(maxlen=_RUNS)
        # filled by finalisers, which may not wait for a lock: blocks, blocks that other libraries have read, and
        # functions that release other libraries' memory, first alone, then with the end of all work that may read it
        self._returned: deque[View] = deque()
        self._parted: deque[View] = deque()
        self._landing: deque[tuple[View, Any]] = deque()
        self.forgets: WeakSet[Any] = WeakSet()  # objects that can release their blocks: see `forget`
        self._releases: deque[Callable[[], None]] = deque()
        self._awaited: deque[tuple[Any, Callable[[], None]]] = deque()

    def take(self, nbytes: int) -> View:
        """An uninitialised block of at least this many bytes. Raises AllocationError."""
        size = rounded(nbytes)
        with self.engine.lock:
            self._collect()
            if self._free[size]:
                return self._free[size].pop()[0]
            return self._allocated(size)

    def take_idle(self, nbytes: int) -> View:
        """A block of at least this many bytes that no queued work uses. Raises AllocationError."""
        size = rounded(nbytes)
        with self.engine.lock:
            self._collect()
            while self._marks and self._is_over(self._marks[0][1]):
                self._over = self._marks.popleft()[0]
            idle = next((n for n, (_, run) in enumerate(self._free[size]) if run <= self._over), None)
            return self._allocated(size) if idle is None else self._free[size].pop(idle)[0]

    def _allocated(self, size: int) -> View:
        block = self._fresh(size)
        if block is None:
            self.clear()
            block = self.engine.allocate(size)
        self.nbytes += size
        return block

    @contextmanager
    def run(self) -> Generator[Callable[[], Any]]:
        """Within this context a run is queued; the function that it gives marks the end."""
        self._collect()
        self._runs += 1

        def ended() -> Any:
            mark = self.engine.mark()
            self._marks.append((self._runs, mark))
            return mark

        yield ended

    def _fresh(self, size: int) -> View | None:
        try:
            return self.engine.allocate(size)
        except AllocationError:
            return None

    def give(self, block: View) -> None:
        """Return a block from `take`."""
        self._returned.append(block)

    def give_after(self, block: View, mark: Any) -> None:
        """Return a block to which bytes are being copied, once the mark is reached."""
        self._landing.append((block, mark))

    def part_with(self, block: View) -> None:
        """Free a block for good: another library may still be reading it, and the device waits for that."""
        self._parted.append(block)

    def release(self, release: Callable[[], None]) -> None:
        """Release another library's memory, once all queued work is done."""
        self._releases.append(release)

    def clear(self) -> None:
        """Return all free blocks to the device, once its work is done."""
        with self.engine.lock:
            for keeper in [*self.forgets]:
                keeper.forget()
            self._collect()
            # the work of a device that has failed is over: waiting for its results raises the error
            if self.nbytes or self._awaited:
                with suppress(DeviceError):
                    for _, mark in self._landing:
                        self.engine.wait(mark)
                    self.engine.finish()
            self._collect()
            self.nbytes -= sum(block.nbytes for blocks in self._free.values() for block, _ in blocks)
            self._free.clear()

    def _collect(self) -> None:
        while self._landing and self._is_over(self._landing[0][1]):
            self.give(self._landing.popleft()[0])
        while self._returned:
            block = self._returned.popleft()
            self._free[block.nbytes].append((block, self._runs))
        while self._parted:
            self.nbytes -= self._parted.popleft().nbytes
        while self._releases:
            self._awaited.append((self._end_of_work(), self._releases.popleft()))
        while self._awaited and self._is_over(self._awaited[0][0]):
            self._awaited.popleft()[1]()

    def _end_of_work(self) -> Any:
        """A mark; None from a failed device, which no longer reads memory."""
        try:
            return self.engine.mark()
        except DeviceError:
            return None

    def _is_over(self, mark: Any) -> bool:
        return mark is None or self.engine.is_done(mark)


class DeviceStorage(Storage):
    """A block of a pool, returned to it when the storage is freed. `mark`: the end of the run that writes it.

    `is_lent`: whether other libraries have its address. `upload`: the mark of a copy that later work has to follow.
    """

    __slots__ = ("_kernels", "_mark", "_pool", "is_lent", "upload", "view_on_device")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self._pool = pool
        self._mark: Any = None
        self.upload: Any = None
        self._kernels: tuple[Kernel, ...] = ()
        self.is_lent = False
        self.view_on_device = self._taken(nbytes)
        self.pointer = pool.engine.address(self.view_on_device)

    def _taken(self, nbytes: int) -> View:
        return self._pool.take(nbytes)

    def written_by(self, mark: Any, kernels: tuple[Kernel, ...]) -> None:
        """Record that a run of these kernels writes it, until the mark."""
        self._mark, self._kernels = mark, kernels

    def uploaded_from(self, array: np.ndarray) -> None:
        """Copy a host array here, beside the queued work, to memory that no queued work uses."""
        with self._pool.engine.lock:
            view = self.view_on_device.part(0, array.nbytes)
            self._mark = self.upload = self._pool.engine.upload(view, array.reshape(-1).view(np.uint8))

    def follow(self) -> None:
        """Let work that is queued from now on run after the copy that fills the memory."""
        if self.upload is not None:
            self._pool.engine.follow(self.upload)
            self.upload = None

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
        if view is None:
            return
        if self.upload is not None:
            self._pool.give_after(view, self.upload)
        else:
            (self._pool.part_with if self.is_lent else self._pool.give)(view)


class _UploadedStorage(DeviceStorage):
    """A block that no queued work uses."""

    __slots__ = ()

    def _taken(self, nbytes: int) -> View:
        return self._pool.take_idle(nbytes)


class BorrowedStorage(DeviceStorage):
    """Another library's memory, released when the storage is freed and all work that may read it is done."""

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
        """Allocate a block of the pool."""
        return DeviceStorage(self.pool, nbytes)

    def put(self, array: np.ndarray) -> Storage:
        """Copy an array to the device, beside the work that is queued."""
        storage = _UploadedStorage(self.pool, array.nbytes)
        if array.nbytes:
            storage.uploaded_from(array)
        return storage

    def get(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Copy an array to the host."""
        assert isinstance(storage, DeviceStorage)
        storage.wait()
        array = np.empty(shape, dtype)
        if array.nbytes:
            self.engine.download(storage.view_on_device.part(0, array.nbytes), array.reshape(-1).view(np.uint8))
        return array

    def take_from(self, memory: Memory, storage: Storage, nbytes: int) -> Storage | None:
        """A copy over the bus; the queues of both devices wait for it if necessary."""
        if not isinstance(memory, DeviceMemory) or not self.engine.reaches(memory.engine):
            return None
        assert isinstance(storage, DeviceStorage)
        target = DeviceStorage(self.pool, nbytes)
        if nbytes:
            first, second = sorted((self.engine, memory.engine), key=lambda engine: engine.number)
            with first.lock, second.lock:
                storage.follow()
                views = (target.view_on_device.part(0, nbytes), storage.view_on_device.part(0, nbytes))
                with self.pool.run() as ended, memory.pool.run() as source_ended:
                    self.engine.copy_from(memory.engine, *views)
                    target.written_by(ended(), storage._kernels)
                    source_ended()
        return target

    # ------------------------------------------------------------------ other libraries
    def borrow(self, value: Any, may_copy: bool) -> tuple[Storage, tuple[int, ...], np.dtype]:
        """Another library's array on this device, over the same memory; the work queued by that library runs first.

        Kernels load 16 bytes at once. Memory that does not begin at a multiple of 16 bytes is copied.

        Raises: BufferError for an array that is not contiguous, has an unsupported dtype, or would have to be copied.
        """
        lent = self._lent(value)
        place = lent.offset + (lent.pointer if self.engine.pointers else 0)
        if place % _ALIGNED == 0 or not lent.nbytes:
            storage = BorrowedStorage(self.pool, lent)
            with self.engine.lock:
                storage.written_by(self.engine.mark(), ())
            return storage, lent.shape, lent.dtype
        if may_copy:
            return self._copied(lent)
        lent.release()
        raise BufferError(f"an array at address {place:#x}, not a multiple of {_ALIGNED} bytes, has to be copied")

    def adopt(self, value: Any) -> tuple[Storage, tuple[int, ...], np.dtype]:
        """A copy on the device of another library's array, which its owner may then overwrite."""
        return self._copied(self._lent(value))

    def _lent(self, value: Any) -> Lent:
        with self.engine.lock:
            return self.engine.taken(value)

    def _copied(self, lent: Lent) -> tuple[Storage, tuple[int, ...], np.dtype]:
        borrowed = BorrowedStorage(self.pool, lent)
        storage = DeviceStorage(self.pool, borrowed.view_on_device.nbytes)
        with self.engine.lock:
            self.engine.copy(storage.view_on_device, borrowed.view_on_device)
            self.engine.finish()
        return storage, lent.shape, lent.dtype

    def dlpack_device(self) -> tuple[int, int]:
        """The kind of device, and its number."""
        return self.engine.dlpack_device

    def dlpack(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype, stream: Any, max_version: Any) -> Any:
        """A capsule over the memory; work queued on `stream` later runs after the work that writes the memory."""
        assert isinstance(storage, DeviceStorage)
        view = storage.view_on_device
        start = self.engine.address(View(view.memory, 0, view.nbytes))
        capsule = lend(storage, start, view.start, shape, dtype, self.engine.dlpack_device, max_version)
        with self.engine.lock:
            storage.follow()
            self.engine.order_behind(stream)
        storage.is_lent = True
        return capsule

    def cuda_array_interface(self, storage: Storage, shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
        """CUDA's array interface, version 3: readers order their work after the stream that it names."""
        assert isinstance(storage, DeviceStorage)
        if dtype.isbuiltin != 1:
            raise AttributeError(f"the CUDA array interface has no {dtype.name}: use DLPack")
        stream = self.engine.stream_number
        if stream is None:
            return super().cuda_array_interface(storage, shape, dtype)
        with self.engine.lock:
            storage.follow()
        storage.is_lent = True
        # torch refuses read-only arrays: like other libraries, do not declare it
        data = (storage.pointer if 0 not in shape else 0, False)
        return {
            "shape": shape, "typestr": dtype.str, "data": data, "strides": None, "version": 3, "stream": stream,
        }  # fmt: skip

    def number_at(self, pointer: int) -> int:
        """The number of the device of this kind that an address belongs to."""
        return self.engine.number_at(pointer)

    def synchronize(self) -> None:
        """Wait for the queue. If nothing was allocated, nothing was queued."""
        if self.pool.nbytes:
            with self.engine.lock:
                self.engine.finish()

    def capacity(self) -> int | None:
        """The bytes of the device's memory."""
        return self.engine.capacity()

    def pool_bytes(self) -> int:
        """The size of all blocks in bytes."""
        return self.pool.nbytes

    def clear_pool(self) -> None:
        """Return free memory to the device."""
        self.pool.clear()
