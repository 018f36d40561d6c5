"""Members that are processes under MPI, through mpi4py, which is loaded when a group is made: loading starts MPI.

Nothing blocks: every message is posted, and then looked at until it is there or the time is up.
"""

from __future__ import annotations

import atexit
import importlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.distributed.members import TEXT, Member, patience, silence
from rlx.errors import CollectiveError, UnsupportedError

__all__ = ["MpiMember", "world_member"]

# seconds in which a message is looked for without pause, then letting others run, then with pauses
_SPIN, _YIELD = 5e-5, 0.002
_LONGEST_PAUSE = 0.001
_TAG, _PIECES = 7, 8
_GRACE = 1.0  # seconds in which what failing processes print reaches the launcher
_groups: list[MpiMember] = []


def world_member(group: str) -> MpiMember:
    """The group of all processes that MPI has started. Raises UnsupportedError without mpi4py and an MPI library."""
    try:
        mpi = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"Several processes need MPI: {error}.", 'pip install "rlx[mpi]" (mpi4py, and MPICH as a wheel).'
        ) from None
    atexit.register(_leave, mpi)
    return MpiMember(mpi, mpi.COMM_WORLD.Dup(), group)


def _leave(mpi: Any) -> None:
    """At the end of a process that has failed: end the others, too, which MPI's own end would wait for."""
    failed = any(member.broken for member in _groups) or getattr(sys, "last_value", None) is not None
    if failed and mpi.Is_initialized() and not mpi.Is_finalized():
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_GRACE)  # what was printed is on its way, and others say what they waited for
        mpi.COMM_WORLD.Abort(1)


class MpiMember(Member):
    """A process of an MPI communicator of its own."""

    def __init__(self, mpi: Any, comm: Any, group: str) -> None:
        super().__init__(group, comm.Get_rank(), comm.Get_size())
        self._mpi, self._comm = mpi, comm
        self._others = [(self.rank + step) % self.size for step in range(1, self.size)]
        _groups.append(self)

    @property
    def broken(self) -> bool:
        """Whether an exchange has failed."""
        return self._broken is not None

    def _wait(self, requests: Sequence[Any], ranks: Sequence[int | None], what: str) -> None:
        """Until all requests are done. ranks: whom each of them waits for; None where it is nobody's in particular."""
        seconds = patience()
        error = None
        try:
            if self._finished(requests, seconds):
                return
        except self._mpi.Exception as caught:
            error = caught
        if error is not None:
            text = f"MPI failed in the group {self.group!r}: {error}: {what}."
            raise self.failed(CollectiveError(text, "Look what happened to the other ranks."))
        pending = [r for request, r in zip(requests, ranks, strict=True) if not request.Test()]
        missing = sorted({r for r in pending if r is not None}) or self._others
        raise self.failed(silence(self.group, self.rank, missing, seconds, what))

    def _finished(self, requests: Sequence[Any], seconds: float) -> bool:
        """Whether all requests are done within so many seconds."""
        test, pause, begun = self._mpi.Request.Testall, 1e-5, time.monotonic()
        while not test(requests):
            waited = time.monotonic() - begun
            if waited > seconds:
                return False
            if waited > _YIELD:
                pause = min(2 * pause, _LONGEST_PAUSE)
                time.sleep(pause)
            elif waited > _SPIN:
                time.sleep(0)
        return True

    def swap(self, text: bytes, what: str) -> Sequence[bytes]:
        """See Member; so with the others."""
        byte, comm = self._mpi.BYTE, self._comm
        found = {rank: bytearray(TEXT) for rank in self._others}
        arriving = [comm.Irecv([found[rank], byte], rank, _TAG) for rank in self._others]
        leaving = [comm.Isend([text, byte], rank, _TAG) for rank in self._others]
        self._wait([*arriving, *leaving], [*self._others, *self._others], what)
        texts = {rank: bytes(found[rank]) for rank in self._others}
        return [text if rank == self.rank else texts[rank][: len(text)] for rank in range(self.size)]

    def gather_pieces(self, piece: np.ndarray, out: np.ndarray) -> None:
        byte = self._mpi.BYTE
        self._wait([self._comm.Iallgather([piece, byte], [out, byte])], [None], "all_gather")

    def deal_pieces(self, pieces: np.ndarray, out: np.ndarray) -> None:
        byte = self._mpi.BYTE
        self._wait([self._comm.Ialltoall([pieces, byte], [out, byte])], [None], "all_to_all")

    def send_piece(self, piece: np.ndarray, to: int | None, out: np.ndarray, source: int | None) -> None:
        byte, requests, ranks = self._mpi.BYTE, [], []
        if source is not None:
            requests.append(self._comm.Irecv([out, byte], source, _PIECES))
            ranks.append(source)
        if to is not None:
            requests.append(self._comm.Isend([piece, byte], to, _PIECES))
            ranks.append(to)
        self._wait(requests, ranks, "permute")

    def broadcast_piece(self, piece: np.ndarray, root: int) -> None:
        self._wait([self._comm.Ibcast([piece, self._mpi.BYTE], root)], [root], "broadcast")

    def subgroup(self, group: str, ranks: Sequence[int]) -> Member | None:
        inside = self.rank in ranks
        color = 0 if inside else self._mpi.UNDEFINED
        self.barrier()
        comm = self._comm.Split(color, ranks.index(self.rank) if inside else 0)
        return MpiMember(self._mpi, comm, group) if inside else None
