"""CuPy's module `nccl` without NCCL: ranks are threads, which put down what they send and take what they are due."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from cupy_signatures import strict

TYPES: dict[int, Any] = dict(enumerate("i1 u1 i4 u4 i8 u8 f2 f4 f8".split())) | {9: ml_dtypes.bfloat16}
OPERATIONS: list[Callable[..., Any]] = [np.add, np.multiply, np.maximum, np.minimum]


METHODS = ("allReduce", "reduce", "reduceScatter", "allGather", "broadcast", "send", "recv")


def _strict(name: str, *arguments: Any) -> None:
    strict(f"cuda.nccl.{name}", lambda *_: None)(*arguments)


class NcclError(RuntimeError):
    """CuPy's."""


class Meeting:
    """Where the ranks of one communicator put things down."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=100)
        self.given: list[Any] = [None] * size

    def swap(self, rank: int, value: Any) -> list[Any]:
        """What all ranks have put down."""
        self.given[rank] = value
        self.barrier.wait()
        found = list(self.given)
        self.barrier.wait()
        return found


class FakeNccl(ModuleType):
    """The module: `log` has every call in order, with its stream. `alone`: nobody else is there, and nothing moves."""

    NcclError = NcclError
    available = True

    def __init__(self, alone: bool = False, log: list[tuple[Any, ...]] | None = None) -> None:
        super().__init__("cupy.cuda.nccl")
        self.log: list[tuple[Any, ...]] = [] if log is None else log
        self.alone = alone
        self.broken = False
        self.meetings: dict[bytes, Meeting] = {}
        self.lock = threading.Lock()
        self.here = threading.local()
        fake = self

        class NcclCommunicator:
            def __init__(self, size: int, identity: bytes, rank: int) -> None:
                _strict("NcclCommunicator", size, identity, rank)
                assert len(identity) == 128 and 0 <= rank < size
                self.rank, self.size = rank, size
                fake.here.member = self
                with fake.lock:
                    self.meeting = fake.meetings.setdefault(identity, Meeting(size))

            def exchanged(self, name: str, sent: np.ndarray, stream: int) -> list[np.ndarray]:
                if fake.broken:
                    raise NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
                fake.log.append(("nccl", name, stream))
                return [sent] * self.size if fake.alone else self.meeting.swap(self.rank, sent.copy())

            def reduced(self, name: str, source: int, count: int, number: int, op: int, stream: int) -> np.ndarray:
                rows = self.exchanged(name, at(source, count, number), stream)
                total = rows[0]
                for row in rows[1:]:
                    total = OPERATIONS[op](total, row)
                return total

            def allReduce(self, source: int, target: int, count: int, number: int, op: int, stream: int) -> None:
                at(target, count, number)[:] = self.reduced("allReduce", source, count, number, op, stream)

            def reduce(self, source: int, target: int, count: int, number: int, op: int, *rest: int) -> None:
                root, stream = rest
                total = self.reduced("reduce", source, count, number, op, stream)
                if self.rank == root:
                    at(target, count, number)[:] = total

            def reduceScatter(self, source: int, target: int, count: int, number: int, op: int, stream: int) -> None:
                total = self.reduced("reduceScatter", source, count * self.size, number, op, stream)
                at(target, count, number)[:] = total[self.rank * count : (self.rank + 1) * count]

            def allGather(self, source: int, target: int, count: int, number: int, stream: int) -> None:
                rows = self.exchanged("allGather", at(source, count, number), stream)
                at(target, count * self.size, number)[:] = np.concatenate(rows)

            def broadcast(self, source: int, target: int, count: int, number: int, root: int, stream: int) -> None:
                at(target, count, number)[:] = self.exchanged("broadcast", at(source, count, number), stream)[root]

            def send(self, address: int, count: int, number: int, peer: int, stream: int) -> None:
                fake.here.sent.append((peer, at(address, count, number).copy()))
                fake.here.of = self, stream

            def recv(self, address: int, count: int, number: int, peer: int, stream: int) -> None:
                fake.here.come.append((peer, at(address, count, number)))
                fake.here.of = self, stream

        for name in METHODS:
            path = f"cuda.nccl.NcclCommunicator.{name}"
            setattr(NcclCommunicator, name, strict(path, getattr(NcclCommunicator, name)))
        self.NcclCommunicator = NcclCommunicator

    def get_unique_id(self) -> bytes:
        """Zeros among them."""
        with self.lock:
            self.log.append(("id",))
            return bytes((7 * n + len(self.log)) % 256 for n in range(128))

    def groupStart(self) -> None:
        self.here.sent, self.here.come, self.here.of = [], [], None

    def groupEnd(self) -> None:
        """A rank that neither sends nor receives comes to the meeting, too, which waits for all of them."""
        communicator, stream = self.here.of or (self.here.member, 0)
        self.log.append(("nccl", "group", stream))
        everyone = communicator.meeting.swap(communicator.rank, self.here.sent)
        for peer, target in self.here.come:
            target[:] = next(x for to, x in everyone[peer] if to == communicator.rank)


def at(address: int, count: int, number: int) -> np.ndarray:
    """Memory of this process."""
    dtype = np.dtype(TYPES[number])
    return np.frombuffer((ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address), dtype)
