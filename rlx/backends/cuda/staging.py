"""Page-locked memory of the host, through which bytes go to and from a device while both work."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.backends.cuda.handles import Handle

__all__ = ["StagingMemory"]

_TO_DEVICE, _TO_HOST = 1, 2  # the runtime's numbers
_SMALL, _LARGE = (1 << 14, 64), (1 << 20, 16)  # bytes and number of pieces


@dataclass(slots=True)
class _StagingPiece:
    """A part of the memory, and the event after which it is free."""

    address: int
    event: Handle
    used: bool = False


class _Ring:
    """Pieces of one size, which are used in turn."""

    def __init__(self, runtime: Any, call: Callable[..., Any], size: int, count: int) -> None:
        self.size, self._runtime, self._call, self._next = size, runtime, call, 0
        self._memory = Handle(call(runtime.hostAlloc, size * count, 0), runtime.freeHost)
        made = (call(runtime.eventCreateWithFlags, runtime.eventDisableTiming) for _ in range(count))
        events = [Handle(event, runtime.eventDestroy) for event in made]
        self._pieces = [_StagingPiece(self._memory.ptr + n * size, event) for n, event in enumerate(events)]

    def taken(self) -> _StagingPiece:
        """The piece that was used longest ago, once the device is done with it."""
        piece = self._pieces[self._next]
        self._next = (self._next + 1) % len(self._pieces)
        self.await_piece(piece)
        return piece

    def copied(self, piece: _StagingPiece, stream: int) -> None:
        """Record that work queued on a stream uses a piece."""
        self._call(self._runtime.eventRecord, piece.event.ptr, stream)
        piece.used = True

    def await_piece(self, piece: _StagingPiece) -> None:
        """Wait until the device is done with a piece."""
        if piece.used:
            self._call(self._runtime.eventSynchronize, piece.event.ptr)
            piece.used = False


class StagingMemory:
    """Pieces of page-locked memory in two sizes. call: a function of the runtime, with errors of rlx's.

    Only the holder of the device's lock uses it.
    """

    def __init__(self, runtime: Any, call: Callable[..., Any]) -> None:
        self._runtime, self._call = runtime, call
        self._rings: dict[tuple[int, int], _Ring] = {}

    def _ring(self, nbytes: int) -> _Ring:
        kind = _SMALL if nbytes <= _SMALL[0] else _LARGE
        if kind not in self._rings:
            self._rings[kind] = _Ring(self._runtime, self._call, *kind)
        return self._rings[kind]

    def write(self, address: int, array: np.ndarray, stream: int) -> None:
        """Queue a copy of a contiguous array to the device; the array may then be changed."""
        ring, source = self._ring(array.nbytes), array.ctypes.data
        for start in range(0, array.nbytes, ring.size):
            piece, nbytes = ring.taken(), min(ring.size, array.nbytes - start)
            ctypes.memmove(piece.address, source + start, nbytes)
            self._call(self._runtime.memcpyAsync, address + start, piece.address, nbytes, _TO_DEVICE, stream)
            ring.copied(piece, stream)

    def read(self, address: int, array: np.ndarray, stream: int) -> None:
        """Copy from the device to a contiguous array: the device copies pieces while the host copies earlier ones."""
        ring, target = self._ring(array.nbytes), array.ctypes.data
        pending: list[tuple[_StagingPiece, int, int]] = []

        def finish() -> None:
            piece, start, nbytes = pending.pop(0)
            ring.await_piece(piece)
            ctypes.memmove(target + start, piece.address, nbytes)

        for start in range(0, array.nbytes, ring.size):
            if len(pending) == _LARGE[1] // 2:
                finish()
            piece, nbytes = ring.taken(), min(ring.size, array.nbytes - start)
            self._call(self._runtime.memcpyAsync, piece.address, address + start, nbytes, _TO_HOST, stream)
            ring.copied(piece, stream)
            pending.append((piece, start, nbytes))
        while pending:
            finish()
