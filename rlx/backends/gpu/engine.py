"""Engine: the interface to a device's programming interface, so that all devices run the same launches."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.backends.gpu.batched_calls import BatchedCall
from rlx.backends.gpu.dlpack import Lent
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.kernel_cache import KernelCache
from rlx.backends.gpu.limits import Limits
from rlx.errors import DeviceError
from rlx.ir.kernels import Buffer, Collective, Library
from rlx.ir.user_functions import KernelCall

__all__ = ["Engine", "FollowedView", "View", "is_present"]


def is_present(part: Callable[[], object]) -> bool:
    """Whether a part of the machine can be had: its function raises DeviceError if it is missing."""
    try:
        part()
    except DeviceError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class View:
    """Bytes of a device's memory: `memory` is the interface's own object, `start` is an offset in bytes."""

    memory: Any
    start: int
    nbytes: int

    def part(self, start: int, nbytes: int) -> View:
        """A part of the view."""
        assert 0 <= start and start + nbytes <= self.nbytes
        return View(self.memory, self.start + start, nbytes)


@dataclass(frozen=True, slots=True)
class FollowedView(View):
    """Bytes of an array whose address is in the device's memory, at `memory`: only kernels follow it.

    start: the inverted bits of an offset, which are negative; kernels tell followed arrays from others by this.
    """

    def part(self, start: int, nbytes: int) -> FollowedView:
        """A part of the view."""
        assert 0 <= start and start + nbytes <= self.nbytes
        return FollowedView(self.memory, self.start - start, nbytes)


class Engine(ABC):
    """One device. Work is queued in order by the holder of `lock`; `read` and `write` wait for the work they need."""

    limits: Limits  # the sizes that launches respect
    number: int  # the index of the device among devices of its kind
    records = False  # whether launches and copies can be put into graphs
    pointers = False  # whether a kernel argument can be the address of any byte

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.code = KernelCache()

    @property
    def present(self) -> bool:
        """Whether there is a device: without one, programs can only be shown."""
        return True

    @property
    def hardware(self) -> str:
        """The names of the device and its driver; "" if unknown."""
        return ""

    def capacity(self) -> int | None:
        """The bytes of the device's memory; None if unknown."""
        return None

    @abstractmethod
    def count(self) -> int:
        """The number of devices of this kind."""

    @abstractmethod
    def compile(self, source: str) -> Any:
        """The code of a program, compiled in any thread. Raises DeviceError with the compiler's message."""

    @abstractmethod
    def load(self, code: Any, name: str) -> Any:
        """The kernel of this name in the code of a program."""

    def kernels(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """The kernels of programs by name; those of equal programs are loaded once."""
        return self.code.kernels(sources, self.compile, self.load)

    def current(self) -> AbstractContextManager[Any]:
        """The context in which a thread calls `launch`: this device is the thread's current one."""
        return nullcontext()

    def prepared(self, kernel: Any, arrays: int, numbers: Sequence[np.generic] = ()) -> Any:
        """What `launch` takes for a kernel of as many arrays, and of numbers that follow them."""
        del arrays
        return kernel, tuple(numbers)

    @abstractmethod
    def launch(self, prepared: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Queue a kernel over groups (`grid`) of work-items (`block`), along up to three dimensions."""

    def resident(self, kernel: Any, items: int) -> int:
        """The number of groups of `items` work-items that are guaranteed to run at the same time in a joint launch."""
        raise NotImplementedError

    def launch_together(self, prepared: Any, views: Sequence[View], groups: int, items: int) -> None:
        """Queue a kernel whose groups wait for one another: at most as many as `resident` returns."""
        raise NotImplementedError

    def multiply(self, product: LibraryProduct, memory: Mapping[Buffer, View]) -> None:
        """Queue a matrix product that a library computes, according to the dialect."""
        raise NotImplementedError

    def compute(self, kernel: Library, inputs: Sequence[View], outputs: Sequence[View]) -> None:
        """Queue a routine that a library computes, according to the dialect."""
        raise NotImplementedError

    def exchange(self, kernel: Collective, source: View, target: View) -> bool:
        """Queue a collective; returns False if it has to use the host."""
        return False

    def compile_call(self, call: KernelCall | BatchedCall) -> Any:
        """A user's kernel. Raises DeviceError with the compiler's message."""
        return self.kernels({call.name: call.source})[call.name]

    @abstractmethod
    def call(self, kernel: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Queue a user's kernel, which takes addresses: of whole blocks, unless `pointers` is true."""

    @abstractmethod
    def allocate(self, nbytes: int) -> View:
        """Allocate uninitialised memory of at least this size in bytes. Raises AllocationError."""

    @abstractmethod
    def address(self, view: View) -> int:
        """The device address of a view."""

    @abstractmethod
    def copy(self, target: View, source: View) -> None:
        """Queue a copy of all bytes of `source`."""

    def reaches(self, other: Engine) -> bool:
        """Whether `copy_from` can read that device's memory."""
        del other
        return False

    def copy_from(self, other: Engine, target: View, source: View) -> None:
        """Queue a copy of all bytes of `source`, on another device, after the work that both devices have queued.

        Work that the other device queues later runs after the copy. The caller holds both locks.
        """
        raise NotImplementedError

    @abstractmethod
    def read(self, view: View, array: np.ndarray) -> None:
        """Wait for the queued work, then copy the bytes to a contiguous host array."""

    @abstractmethod
    def write(self, view: View, array: np.ndarray) -> None:
        """Copy a contiguous host array's bytes to the device; returns when the array may be changed."""

    def upload(self, view: View, array: np.ndarray) -> Any:
        """Copy a contiguous host array's bytes to memory that no queued work uses, beside the queued work.

        Returns a mark that is reached when the bytes are there, or None if they are. The array may then be changed.
        """
        self.write(view, array)

    def download(self, view: View, array: np.ndarray) -> None:
        """Copy bytes that are written already to a contiguous host array. Unless a device can copy beside its queue,
        this waits for the queued work."""
        with self.lock:
            self.read(view, array)

    def follow(self, mark: Any) -> None:
        """Work that is queued from now on runs after the mark of an upload."""
        raise NotImplementedError

    @abstractmethod
    def mark(self) -> Any:
        """A mark that is reached when all work queued before it is done."""

    @abstractmethod
    def is_done(self, mark: Any) -> bool:
        """Whether all work before the mark is done, or known to have failed."""

    @abstractmethod
    def wait(self, mark: Any) -> None:
        """Wait until all work before the mark is done. Raises DeviceError if it failed."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for all queued work."""

    # ------------------------------------------------------------------ time
    def stamping(self) -> AbstractContextManager[None]:
        """A context in which the queue records time stamps."""
        return nullcontext()

    @abstractmethod
    def stamp(self) -> Any:
        """A time stamp of when the device reaches this point of the queue."""

    @abstractmethod
    def nanoseconds(self, begin: Any, end: Any) -> float:
        """The time between two stamps, once the device has reached both."""

    # ------------------------------------------------------------------ graphs
    def followed(self, table: View, nbytes: int) -> FollowedView:
        """An array of this many bytes whose address is in the first 8 bytes of `table`, also when that changes."""
        raise NotImplementedError

    def stage(self, view: View, array: np.ndarray) -> None:
        """Queue a copy of a small host array, which may be changed afterwards."""
        raise NotImplementedError

    def begin_graph(self) -> None:
        """Start recording launches and copies into a graph: nothing runs, and allocating or waiting is not allowed."""
        raise NotImplementedError

    def end_graph(self) -> Any:
        """Stop recording, and return the graph."""
        raise NotImplementedError

    def launch_graph(self, graph: Any) -> None:
        """Queue a graph."""
        raise NotImplementedError

    # ------------------------------------------------------------------ other libraries
    @property
    @abstractmethod
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's device type and the device's number."""

    @property
    def stream_number(self) -> int | None:
        """The stream number by which CUDA libraries order their work after the queue; None if there is none."""
        return None

    @abstractmethod
    def order_behind(self, stream: Any) -> None:
        """Order later work of another library after the queued work: on a stream, as DLPack numbers streams.

        Raises: BufferError for an invalid stream number.
        """

    @abstractmethod
    def taken(self, value: Any) -> Lent:
        """The memory of another library's array; later work runs after that library's queued work."""

    @abstractmethod
    def borrowed(self, pointer: int) -> Any:
        """The memory object of a View for memory at an address that another library has passed."""

    def number_at(self, pointer: int) -> int:
        """The number of the device of this kind whose memory an address belongs to."""
        del pointer
        return self.dlpack_device[1]
