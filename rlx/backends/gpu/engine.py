"""Engine: what a device's programming interface has to offer, for all of them to run the same launches."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.backends.gpu.dlpack import Lent
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.limits import Limits
from rlx.ir.kernels import Buffer, Collective, Library

__all__ = ["Engine", "View"]


@dataclass(frozen=True, slots=True)
class View:
    """Bytes of a device's memory: `memory` is the interface's own object, `start` counts bytes from its beginning."""

    memory: Any
    start: int
    nbytes: int

    def part(self, start: int, nbytes: int) -> View:
        """Some of its bytes."""
        assert 0 <= start and start + nbytes <= self.nbytes
        return View(self.memory, self.start + start, nbytes)


class Engine(ABC):
    """One device. Work is queued in order, by whoever holds `lock`; `read` and `write` wait for what they need."""

    limits: Limits  # what launches are cut to
    number: int  # of the device among those of its kind
    records = False  # whether launches and copies can be put into graphs
    pointers = False  # whether a kernel can be given the address of any byte

    def __init__(self) -> None:
        self.lock = threading.RLock()

    @property
    def present(self) -> bool:
        """Whether there is a device: without one programs are shown only."""
        return True

    @abstractmethod
    def count(self) -> int:
        """How many devices of its kind there are; 0 where there is none."""

    @abstractmethod
    def compile(self, source: str, names: Sequence[str]) -> dict[str, Any]:
        """The kernels of a program by name. Raises DeviceError with the compiler's words."""

    @abstractmethod
    def launch(self, kernel: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Queue a kernel over groups (`grid`) of work-items (`block`), along up to three dimensions."""

    def resident(self, kernel: Any, items: int) -> int:
        """How many groups of `items` work-items run a kernel at the same time for certain, launched together."""
        raise NotImplementedError

    def launch_together(self, kernel: Any, views: Sequence[View], groups: int, items: int) -> None:
        """Queue a kernel whose groups wait for one another: no more than are `resident`."""
        raise NotImplementedError

    def multiply(self, product: LibraryProduct, memory: Mapping[Buffer, View]) -> None:
        """Queue a matrix product that the dialect says a library makes."""
        raise NotImplementedError

    def compute(self, kernel: Library, inputs: Sequence[View], outputs: Sequence[View]) -> None:
        """Queue a routine that the dialect says a library computes."""
        raise NotImplementedError

    def exchange(self, kernel: Collective, source: View, target: View) -> bool:
        """Queue an exchange between processes; False where it has to go by way of the host."""
        return False

    @abstractmethod
    def call(self, kernel: Any, views: Sequence[View], grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Queue a user's kernel, which takes addresses: of whole blocks, unless `pointers` says otherwise."""

    @abstractmethod
    def allocate(self, nbytes: int) -> View:
        """Fresh memory, uninitialised; at least so many bytes. Raises AllocationError."""

    @abstractmethod
    def address(self, view: View) -> int:
        """Where a view begins, as the device counts."""

    @abstractmethod
    def copy(self, target: View, source: View) -> None:
        """Queue a copy of all bytes of `source`."""

    def reaches(self, other: Engine) -> bool:
        """Whether `copy_from` can read that device's memory."""
        del other
        return False

    def copy_from(self, other: Engine, target: View, source: View) -> None:
        """Queue a copy of all bytes of `source`, which is another device's: behind the work of both so far.

        What the other device queues from now on comes after it. Whoever calls it holds both locks.
        """
        raise NotImplementedError

    @abstractmethod
    def read(self, view: View, array: np.ndarray) -> None:
        """Wait for the work so far, then copy the bytes to a contiguous host array."""

    @abstractmethod
    def write(self, view: View, array: np.ndarray) -> None:
        """Copy a contiguous host array's bytes to the device; returns when the array may be changed."""

    @abstractmethod
    def mark(self) -> Any:
        """Something that tells when all work so far is done."""

    @abstractmethod
    def is_done(self, mark: Any) -> bool:
        """Whether all work before the mark is done, or known to have failed."""

    @abstractmethod
    def wait(self, mark: Any) -> None:
        """Wait until all work before the mark is done. Raises DeviceError if it failed."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for the work so far."""

    # ------------------------------------------------------------------ time
    def stamping(self) -> AbstractContextManager[None]:
        """In this block the queue takes stamps."""
        return nullcontext()

    @abstractmethod
    def stamp(self) -> Any:
        """When the device comes to this place of the queue."""

    @abstractmethod
    def nanoseconds(self, begin: Any, end: Any) -> float:
        """From one stamp to another, once the device has come to both."""

    # ------------------------------------------------------------------ graphs
    def begin_graph(self) -> None:
        """From now on put launches and copies into a graph: nothing is run, and nothing may be allocated or awaited."""
        raise NotImplementedError

    def end_graph(self) -> Any:
        """The graph."""
        raise NotImplementedError

    def launch_graph(self, graph: Any) -> None:
        """Queue all that is in a graph."""
        raise NotImplementedError

    # ------------------------------------------------------------------ other libraries
    @property
    @abstractmethod
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's device type and the device's number."""

    @property
    def stream_number(self) -> int | None:
        """The number by which libraries of CUDA's order their work behind the queue's; None where there is none."""
        return None

    @abstractmethod
    def order_behind(self, stream: Any) -> None:
        """Let what another library queues from now on come after the work so far: on a stream, as DLPack numbers them.

        Raises: BufferError for what is no such number.
        """

    @abstractmethod
    def taken(self, value: Any) -> Lent:
        """The memory of another library's array; work from now on comes after what that library has queued."""

    @abstractmethod
    def borrowed(self, pointer: int) -> Any:
        """What stands in a View for memory at an address that another library has told."""

    def number_at(self, pointer: int) -> int:
        """The number of the device of this kind whose memory an address belongs to."""
        del pointer
        return self.dlpack_device[1]
