"""Members that are processes under MPI, through mpi4py, imported when a group is created: importing starts MPI.

Nothing blocks: every message is posted, and then polled until it has arrived or the time limit is reached.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import numpy as np

from rlx.distributed.arrivals import say_left, watched
from rlx.distributed.members import START, TEXT, Member, loss, patience, silence
from rlx.errors import UnsupportedError
from rlx.installation import install_command

__all__ = ["MpiMember", "world_member"]

# seconds of polling without pause, then yielding to other threads, then with pauses
_SPIN, _YIELD = 5e-5, 0.002
_LONGEST_PAUSE = 0.001
_CALL = 1.0  # seconds of waiting after which a member announces its arrival to the others
_HERE, _PIECES = 7, 8
_SHORT = 1 << 14  # bytes
_GRACE = 1.0  # seconds for the output of failing processes to reach the launcher
_LONGEST_END = 5.0  # seconds for the launcher to hear that this process ends the others
_groups: list[MpiMember] = []


def world_member(group: str, rank: int, size: int) -> MpiMember:
    """The group of all processes that MPI has started. rank, size: of this process, according to its launcher.

    Raises UnsupportedError without mpi4py and an MPI library.
    """
    os.environ.update(_provider(os.environ))
    with watched(rank, size, patience(START)):
        try:
            mpi = _started()
        except (ImportError, RuntimeError) as error:
            raise UnsupportedError(
                f"Several processes need MPI: {error}.", f"{install_command('mpi')} (mpi4py, and MPICH as a wheel)."
            ) from None
        atexit.register(_leave, mpi, os.getpid())
        return MpiMember(mpi, mpi.COMM_WORLD.Dup(), group)


def _started() -> Any:
    """mpi4py, with MPI started. MPI is started through its C function, so that other threads run in the meantime.

    `_leave` finalizes it: mpi4py would also do so at the end of a forked child, and end the parent's job.
    """
    settings = importlib.import_module("mpi4py").rc
    settings.initialize = settings.finalize = False
    mpi = importlib.import_module("mpi4py.MPI")
    if not mpi.Is_initialized():
        provided = ctypes.c_int()
        start = ctypes.CDLL(mpi.__file__).MPI_Init_thread
        if start(None, None, ctypes.c_int(mpi.THREAD_MULTIPLE), ctypes.byref(provided)) != mpi.SUCCESS:
            raise RuntimeError("MPI_Init_thread has failed")
        for own in (mpi.COMM_WORLD, mpi.COMM_SELF):
            own.Set_errhandler(mpi.ERRORS_RETURN)
    return mpi


def _provider(variables: Mapping[str, str]) -> dict[str, str]:
    """The transport settings of MPICH's wheel, as environment variables.

    On one host it uses shared memory, and UCX must not listen on the network. Between hosts its default is UCX, with
    which a message to a dead process ends the sender with SIGSEGV; libfabric (ofi) returns an error.
    """
    try:
        metadata.version("mpich")
    except metadata.PackageNotFoundError:
        return {}
    ranks_here, nodes = variables.get("MPI_LOCALNRANKS"), variables.get("SLURM_STEP_NUM_NODES")
    if nodes == "1" or (ranks_here is not None and ranks_here == variables.get("PMI_SIZE")):
        chosen = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "self,sm"}
    else:
        chosen = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
    return {name: variables.get(name, value) for name, value in chosen.items()}


def _leave(mpi: Any, process: int) -> None:
    """At the end of the process that has started MPI, finalize it. At the end of a failed one, end the others as well,
    which MPI's own finalization would wait for.
    """
    if os.getpid() != process:
        return
    say_left()
    failed = any(member.broken for member in _groups) or getattr(sys, "last_value", None) is not None
    if failed and mpi.Is_initialized() and not mpi.Is_finalized():
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_GRACE)  # output is still in transit, and others report whom they waited for
        # a launcher on an unreachable host never answers, and Abort waits for it
        faulthandler.dump_traceback_later(_LONGEST_END, exit=True, file=open(os.devnull, "w"))
        mpi.COMM_WORLD.Abort(1)
    for member in _groups:
        member.leave(f"This process has left the group {member.group!r}: it ends.", "Exchange before that.")
    if mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()


class MpiMember(Member):
    """A process in a separate MPI communicator."""

    def __init__(self, mpi: Any, comm: Any, group: str) -> None:
        super().__init__(group, comm.Get_rank(), comm.Get_size())
        self._mpi, self._comm = mpi, comm
        self._others = [(self.rank + step) % self.size for step in range(1, self.size)]
        # the number of stages done, the last one announced to the others, and those that they announced
        self._stage = self._said = 0
        self._heard: dict[int, int] = {}
        self._calls: list[Any] = []
        _groups.append(self)

    @property
    def broken(self) -> bool:
        """Whether an exchange has failed."""
        return self._broken is not None

    def later(self, work: Callable[[], None]) -> Callable[[], None]:
        """See Communicator. False if MPI must not be called by several threads."""
        if self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE:
            return super().later(work)
        work()
        return lambda: None

    def _wait(self, requests: Sequence[Any], what: str) -> None:
        """Wait until all requests are done. Raises CollectiveError naming the members that have not come this far."""
        seconds = patience()
        error = None
        try:
            if self._finished(requests, seconds):
                return
            self._hear()
        except self._mpi.Exception as caught:
            error = caught
        if error is not None:
            raise self.failed(loss(self.group, self.rank, self._unreachable(), str(error), what))
        missing = [rank for rank in sorted(self._others) if self._heard.get(rank, 0) < self._stage]
        raise self.failed(silence(self.group, self.rank, missing or self._others, seconds, what))

    def _finished(self, requests: Sequence[Any], seconds: float) -> bool:
        """Whether all requests are done within `seconds`."""
        test, pause, begun = self._mpi.Request.Testall, 1e-5, time.monotonic()
        while not test(requests):
            waited = time.monotonic() - begun
            if waited > seconds:
                return False
            if waited > min(_CALL, seconds / 4) and self._said < self._stage:
                self._call()
            if waited > _YIELD:
                pause = min(2 * pause, _LONGEST_PAUSE)
                time.sleep(pause)
            elif waited > _SPIN:
                time.sleep(0)
        return True

    def _call(self) -> None:
        """Announce this member's stage to the others: missing members are found by their missing announcement."""
        self._hear()
        self._said, text = self._stage, self._stage.to_bytes(8)
        self._calls = [request for request in self._calls if not request.Test()]
        self._calls += [self._comm.Isend([text, self._mpi.BYTE], rank, _HERE) for rank in self._others]

    def _unreachable(self) -> list[int]:
        """The members that MPI no longer delivers to after a failure; all others if that is unknown."""
        text = self._stage.to_bytes(8)
        reached: set[int] = set()
        for rank in self._others:
            with suppress(self._mpi.Exception):
                self._calls.append(self._comm.Isend([text, self._mpi.BYTE], rank, _HERE))
                reached.add(rank)
        return sorted(set(self._others) - reached or self._others)

    def _hear(self) -> None:
        """Read the others' announcements."""
        text, status = bytearray(8), self._mpi.Status()
        while self._comm.Iprobe(self._mpi.ANY_SOURCE, _HERE, status):
            self._comm.Recv([text, self._mpi.BYTE], status.source, _HERE)
            self._heard[status.source] = max(self._heard.get(status.source, 0), int.from_bytes(text))

    def is_common(self, mark: bytes, what: str) -> bool:
        """See Member, also for the other methods.

        All marks are equal if the maximum of all marks, and of their complements, equals this member's. That takes one
        reduction, with a number of steps logarithmic in the number of members.
        """
        own = np.frombuffer(mark, np.uint64)
        sent, found = np.concatenate([own, ~own]), np.empty(4, np.uint64)
        self._stage += 2 - self._stage % 2
        word = self._mpi.UINT64_T
        self._wait([self._comm.Iallreduce([sent, word], [found, word], self._mpi.MAX)], what)
        self._stage += 1
        return bool((sent == found).all())

    def swap(self, text: bytes, what: str) -> Sequence[bytes]:
        byte, found = self._mpi.BYTE, bytearray(TEXT * self.size)
        self._wait([self._comm.Iallgather([text, byte], [found, byte])], what)
        return [bytes(found[TEXT * rank : TEXT * (rank + 1)]) for rank in range(self.size)]

    def gather_pieces(self, pieces: Sequence[np.ndarray]) -> None:
        """Short pieces by MPI's own collective, which needs few messages; long ones from each to each, copied once."""
        if max(piece.nbytes for piece in pieces) > _SHORT:
            self._swap_pieces([pieces[self.rank]] * self.size, pieces)
            return
        counts = [piece.nbytes for piece in pieces]
        together = np.concatenate(pieces)
        byte = self._mpi.BYTE
        self._wait([self._comm.Iallgatherv(self._mpi.IN_PLACE, [together, counts, byte])], self._doing)
        start = 0
        for piece, count in zip(pieces, counts, strict=True):
            piece[...] = together[start : start + count]
            start += count

    def deal_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray]) -> None:
        self._swap_pieces(pieces, arriving)

    def _swap_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray]) -> None:
        byte, comm = self._mpi.BYTE, self._comm
        requests = [comm.Irecv([arriving[rank], byte], rank, _PIECES) for rank in self._others]
        requests += [comm.Isend([pieces[rank], byte], rank, _PIECES) for rank in self._others]
        self._wait(requests, self._doing)

    def send_piece(self, piece: np.ndarray, to: int | None, out: np.ndarray, source: int | None) -> None:
        byte, requests = self._mpi.BYTE, []
        if source is not None:
            requests.append(self._comm.Irecv([out, byte], source, _PIECES))
        if to is not None:
            requests.append(self._comm.Isend([piece, byte], to, _PIECES))
        self._wait(requests, self._doing)

    def broadcast_piece(self, piece: np.ndarray, root: int) -> None:
        self._wait([self._comm.Ibcast([piece, self._mpi.BYTE], root)], self._doing)

    def subgroup(self, group: str, ranks: Sequence[int]) -> Member | None:
        inside = self.rank in ranks
        color = 0 if inside else self._mpi.UNDEFINED
        comm = self._comm.Split(color, ranks.index(self.rank) if inside else 0)
        return MpiMember(self._mpi, comm, group) if inside else None
