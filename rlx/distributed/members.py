"""Member: the common part of all transports between processes. Reductions use two exchanges of pieces."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np

from rlx.config import seconds_of
from rlx.errors import CollectiveError
from rlx.ir.collectives import OPERATIONS
from rlx.ir.types import compute_dtype, is_inexact, is_narrow

__all__ = ["START", "TEXT", "Member", "called", "disagreement", "loss", "patience", "silence"]

# arrays up to this size are gathered and reduced by every member; of larger arrays each member reduces a piece
_SMALL = 1 << 12
START = 300.0  # seconds for the start of the processes, which may take much longer in some of them
TEXT = 512  # bytes of a member's description of its call
_all: weakref.WeakSet[Member] = weakref.WeakSet()


def patience(default: float = 30.0) -> float:
    """The number of seconds that a member waits for the others: RLX_COLLECTIVE_TIMEOUT, or the default.

    >>> from rlx.distributed.members import patience
    >>> patience() > 0
    True
    """
    return seconds_of("RLX_COLLECTIVE_TIMEOUT", default)


def silence(group: str, rank: int, missing: Sequence[int], seconds: float, what: str) -> CollectiveError:
    """The error for members that did not arrive within the time limit."""
    who = called(missing)
    return CollectiveError(
        f"Rank {rank} waited {seconds:g} s for {who} in the group {group!r}: {what}.",
        f"Check what happened to {who}. If more time is needed, set RLX_COLLECTIVE_TIMEOUT to more seconds.",
    )


def loss(group: str, rank: int, missing: Sequence[int], why: str, what: str) -> CollectiveError:
    """The error for a lost connection between members; why: the report of the transport."""
    who, last = called(missing), why.splitlines()[-1].strip()
    return CollectiveError(
        f"Rank {rank} can no longer reach {who} in the group {group!r}: {what} ({last}).",
        f"Check what happened to {who}.",
    )


def called(ranks: Sequence[int]) -> str:
    """Ranks, as messages name them."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def disagreement(group: str, number: int, texts: Sequence[str]) -> CollectiveError:
    """The error for members whose calls differ; number: of the exchange, texts: the description of each call."""
    lines, kinds = _by_rank(texts)
    if kinds == 1:
        lines += ", in programs that differ"
    return CollectiveError(
        f"The members of the group {group!r} do different things in exchange {number}: {lines}.",
        "All processes must call the same functions in the same order, on the same lines or with the same name=, with"
        " arrays of the same shapes and dtypes.",
    )


def _by_rank(texts: Sequence[str]) -> tuple[str, int]:
    """The distinct texts, each with its ranks; and the number of texts."""
    ranks: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        ranks.setdefault(text, []).append(rank)
    return "; ".join(f"rank {', '.join(map(str, who))}: {text}" for text, who in ranks.items()), len(ranks)


class Member(ABC):
    """A Communicator by a few exchanges of pieces of one length, as bytes.

    Sums and other reductions are computed piece by piece in the order of ranks, each piece by one member, so that all
    members get the same bits in every run. After a failure, every further exchange fails.
    """

    def __init__(self, group: str, rank: int, size: int) -> None:
        self.group, self.rank, self.size = group, rank, size
        self._broken: CollectiveError | None = None
        self._doing = ""  # the last agreed call, to which the pieces in transit belong
        self._kept = np.empty(0, np.uint8)
        self._number = 0  # of the last agreed exchange
        self.turn = threading.RLock()
        self._thread = threading.get_ident()
        self._asking = threading.local()  # in the worker: the name of the thread that it works for
        self._worker: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None  # the last task that was started
        _all.add(self)

    # ------------------------------------------------------------ for implementations
    @abstractmethod
    def is_common(self, mark: bytes, what: str) -> bool:
        """Whether all members pass the same 16 bytes. Raises CollectiveError naming members that do not arrive."""

    @abstractmethod
    def swap(self, text: bytes, what: str) -> Sequence[bytes]:
        """The texts of all members, of TEXT bytes each."""

    @abstractmethod
    def gather_pieces(self, pieces: Sequence[np.ndarray]) -> None:
        """Piece r (bytes) belongs to member r; the others' pieces arrive. They are contiguous in memory."""

    @abstractmethod
    def deal_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray]) -> None:
        """Send piece r (bytes) to member r, and receive a piece from it. This member's own piece is not moved."""

    @abstractmethod
    def send_piece(self, piece: np.ndarray, to: int | None, out: np.ndarray, source: int | None) -> None:
        """Send the piece (bytes) to a member, and receive one; None: do not send, or receive."""

    @abstractmethod
    def broadcast_piece(self, piece: np.ndarray, root: int) -> None:
        """Copy the root's piece (bytes) to every member."""

    @abstractmethod
    def subgroup(self, group: str, ranks: Sequence[int]) -> Member | None:
        """The group of these members; None for other members. All members call it."""

    # ------------------------------------------------------------ shared by all implementations
    def agree(self, mark: bytes, what: str, named: bool = False) -> None:
        """See Communicator. A thread other than the group's own includes its name."""
        thread = "" if named else self._thread_name()
        what += f" in the thread {thread!r}" if thread else ""
        with self.turn:
            if self._broken is not None:
                raise CollectiveError(self._broken.what, self._broken.instead)
            self._number += 1
            ours = hashlib.blake2b(mark + self._number.to_bytes(8) + thread.encode(), digest_size=16)
            if not self.is_common(ours.digest(), what):
                raise self.failed(disagreement(self.group, self._number, self._said_by_all(what)))
            self._doing = what

    def compare(self, mark: bytes, what: str, said: str) -> None:
        """See Communicator."""
        with self.turn:
            self.agree(hashlib.blake2b(what.encode(), digest_size=16).digest(), what)
            if not self.is_common(mark, what):
                lines, _ = _by_rank(self._said_by_all(said))
                raise CollectiveError(
                    f"The members of the group {self.group!r} have different values in {what}: {lines}.",
                    "Pass the same in all processes.",
                )

    def _said_by_all(self, text: str) -> list[str]:
        """The texts of all members."""
        texts = self.swap(text.encode()[:TEXT].ljust(TEXT, b"\0"), text)
        return [found.rstrip(b"\0").decode(errors="replace") for found in texts]

    @property
    def is_own_thread(self) -> bool:
        """See Communicator."""
        return threading.get_ident() == self._thread

    def _thread_name(self) -> str:
        """The name of the current thread; "" for the one that created the group."""
        if self.is_own_thread:
            return ""
        name = getattr(self._asking, "name", None)
        return threading.current_thread().name if name is None else name

    def failed(self, error: CollectiveError) -> CollectiveError:
        """The error, which the group raises from now on."""
        self._broken = CollectiveError(f"The group {self.group!r} has failed before: {error.what}", "Start again.")
        return error

    def leave(self, what: str, instead: str) -> None:
        """End this process's membership: every further exchange raises CollectiveError."""
        self._broken = CollectiveError(what, instead)

    def begin_child(self) -> None:
        """In a forked child: it is not a member, and has none of the parent's other threads."""
        self.turn, self._worker, self._last = threading.RLock(), None, None
        self.leave(
            f"This process was forked from rank {self.rank} of the group {self.group!r}, and cannot exchange arrays.",
            "Exchange in the parent, and let children compute alone; rlx launch starts more processes.",
        )

    def later(self, work: Callable[[], None]) -> Callable[[], None]:
        """See Communicator. One thread runs all tasks in order."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, f"exchanges of {self.group}")
        self._last = self._worker.submit(self._work_for, self._thread_name(), work)
        return self._last.result

    def _work_for(self, thread: str, work: Callable[[], None]) -> None:
        self._asking.name = thread
        work()

    def settle(self) -> None:
        """See Communicator."""
        last, self._last = self._last, None
        if last is not None:
            wait([last])

    def barrier(self, name: str = "") -> None:
        """Wait for all members, which must use the same name."""
        what = f"barrier {name!r}" if name else "barrier"
        self.agree(hashlib.blake2b(what.encode(), digest_size=16).digest(), what)

    def all_gather(self, array: np.ndarray, out: np.ndarray) -> None:
        """See Communicator."""
        out[self.rank] = array
        self.gather_pieces(_rows(out))

    def all_to_all(self, array: np.ndarray, out: np.ndarray) -> None:
        """See Communicator."""
        out[self.rank] = array[self.rank]
        self.deal_pieces(_rows(array), _rows(out))

    def permute(self, array: np.ndarray, out: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> None:
        """See Communicator."""
        to = next((d for s, d in pairs if s == self.rank), None)
        source = next((s for s, d in pairs if d == self.rank), None)
        if source is None:
            out[...] = 0
        if source == self.rank:
            out[...] = array
            to = source = None
        self.send_piece(_bytes(array), to, _bytes(out), source)

    def broadcast(self, array: np.ndarray, out: np.ndarray, root: int) -> None:
        """See Communicator."""
        if self.rank == root:
            out[...] = array
        self.broadcast_piece(_bytes(out), root)

    def all_reduce(self, array: np.ndarray, out: np.ndarray, op: str, mode: str) -> None:
        """See Communicator."""
        if array.nbytes <= _SMALL:
            rows = np.empty((self.size, *array.shape), array.dtype)
            self.all_gather(array, rows)
            _reduced([*rows], out, op, mode)
            return
        bounds = [array.size * rank // self.size for rank in range(self.size + 1)]
        given, made = _pieces(array.reshape(-1), bounds), _pieces(out.reshape(-1), bounds)
        self._reduced_piece(given, made[self.rank], op, mode)
        self.gather_pieces([_bytes(piece) for piece in made])

    def _reduced_piece(self, given: Sequence[np.ndarray], out: np.ndarray, op: str, mode: str) -> None:
        """Send piece r to member r, and combine the pieces for this member into `out`. Its own piece is not moved."""
        arriving = [*self._scratch(out.dtype, (self.size, out.size))]
        self.deal_pieces([_bytes(piece) for piece in given], [_bytes(row) for row in arriving])
        arriving[self.rank] = given[self.rank]
        _reduced(arriving, out, op, mode)

    def _scratch(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Memory for one exchange, which is reused: allocating it costs as much as moving the data."""
        nbytes = math.prod(shape) * dtype.itemsize
        if self._kept.nbytes < nbytes:
            self._kept = np.empty(nbytes, np.uint8)
        return self._kept[:nbytes].view(dtype).reshape(shape)

    def reduce_scatter(self, array: np.ndarray, out: np.ndarray, op: str, mode: str) -> None:
        """See Communicator."""
        self._reduced_piece([row.reshape(-1) for row in array], out.reshape(-1), op, mode)

    def reduce(self, array: np.ndarray, out: np.ndarray, op: str, mode: str, root: int) -> None:
        """See Communicator."""
        self.all_reduce(array, out, op, mode)
        if self.rank != root:
            out[...] = 0


def _bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a dense array, sharing its memory."""
    return array.reshape(-1).view(np.uint8)


def _rows(array: np.ndarray) -> list[np.ndarray]:
    """The bytes of each row of a dense array, sharing its memory."""
    return [*_bytes(array).reshape(len(array), -1)]


def _pieces(flat: np.ndarray, bounds: Sequence[int]) -> list[np.ndarray]:
    return [flat[start:stop] for start, stop in pairwise(bounds)]


def _reduced(rows: Sequence[np.ndarray], out: np.ndarray, op: str, mode: str) -> None:
    """The rows combined one after another into `out`, in a dtype as wide as the mode requires."""
    combine, dtype = OPERATIONS[op], out.dtype
    if len(rows) == 1:
        out[...] = rows[0]
        return
    wide = compute_dtype(dtype) if is_narrow(dtype) else dtype
    if mode == "deterministic" and is_inexact(dtype) and op in ("sum", "prod"):
        wide = np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        if wide == dtype:
            combine(rows[0], rows[1], out=out)
            for row in rows[2:]:
                combine(out, row, out=out)
            return
        total = rows[0].astype(wide)
        for row in rows[1:]:
            combine(total, row.astype(wide), out=total)
        out[...] = total.astype(dtype)


def _begin_child() -> None:
    for member in list(_all):
        member.begin_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
