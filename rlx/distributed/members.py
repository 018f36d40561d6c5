"""Member: what every way of reaching other processes has in common. Reductions are made of two exchanges of pieces."""

from __future__ import annotations

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np

from rlx.errors import CollectiveError, OptionError
from rlx.ir.collectives import OPERATIONS
from rlx.ir.types import compute_dtype, is_inexact, is_narrow

__all__ = ["TEXT", "Member", "disagreement", "loss", "patience", "silence"]

# arrays of so many bytes or less are gathered and reduced by everyone; of larger ones each member reduces a piece
_SMALL = 1 << 12
TEXT = 512  # bytes of what a member says of itself


def patience() -> float:
    """So many seconds a member waits for the others: RLX_COLLECTIVE_TIMEOUT, or 30.

    >>> from rlx.distributed.members import patience
    >>> patience() > 0
    True
    """
    text = os.environ.get("RLX_COLLECTIVE_TIMEOUT") or "30"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise OptionError(f"RLX_COLLECTIVE_TIMEOUT is {text!r}.", "It is a number of seconds above 0.")
    return seconds


def silence(group: str, rank: int, missing: Sequence[int], seconds: float, what: str) -> CollectiveError:
    """The error where members have not come within the time."""
    who = _called(missing)
    return CollectiveError(
        f"Rank {rank} waited {seconds:g} s for {who} in the group {group!r}: {what}.",
        f"Look what happened to {who}; where it only needs longer, set RLX_COLLECTIVE_TIMEOUT to more seconds.",
    )


def loss(group: str, rank: int, missing: Sequence[int], why: str, what: str) -> CollectiveError:
    """The error where no messages pass any more between a member and others; why: what those who pass them say."""
    who, last = _called(missing), why.splitlines()[-1].strip()
    return CollectiveError(
        f"Rank {rank} reaches {who} in the group {group!r} no more: {what} ({last}).", f"Look what happened to {who}."
    )


def _called(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def disagreement(group: str, texts: Sequence[str]) -> CollectiveError:
    """The error where members came with different things; texts: what each of them wants."""
    ranks: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        ranks.setdefault(text, []).append(rank)
    lines = "; ".join(f"rank {', '.join(map(str, who))}: {text}" for text, who in ranks.items())
    if len(ranks) == 1:
        lines += ", in programs that differ"
    return CollectiveError(
        f"The members of the group {group!r} do different things: {lines}.",
        "All processes call the same functions in the same order, with arrays of the same shapes and dtypes.",
    )


class Member(ABC):
    """A Communicator by a few exchanges of pieces of one length, as bytes.

    Sums and other reductions are taken piece by piece in the order of ranks, each by one member, so that everybody
    has the same bits, and the same ones in every run. Once something has failed, everything fails.
    """

    def __init__(self, group: str, rank: int, size: int) -> None:
        self.group, self.rank, self.size = group, rank, size
        self._broken: CollectiveError | None = None
        self._doing = ""  # what members have agreed on last, which the pieces that are on their way belong to
        self._kept = np.empty(0, np.uint8)
        self._worker: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None  # what has been begun last

    # ------------------------------------------------------------ what an implementation states
    @abstractmethod
    def is_common(self, mark: bytes, what: str) -> bool:
        """Whether all members come with these 16 bytes. Raises CollectiveError naming those who do not come."""

    @abstractmethod
    def swap(self, text: bytes, what: str) -> Sequence[bytes]:
        """The texts of all members, of TEXT bytes each."""

    @abstractmethod
    def gather_pieces(self, pieces: Sequence[np.ndarray]) -> None:
        """Piece r (bytes) is member r's; those of others arrive. They lie one after the other in memory."""

    @abstractmethod
    def deal_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray]) -> None:
        """Piece r (bytes) goes to member r, and what it sends here arrives; nothing of this member's own moves."""

    @abstractmethod
    def send_piece(self, piece: np.ndarray, to: int | None, out: np.ndarray, source: int | None) -> None:
        """The piece (bytes) goes to a member, and one arrives; None: it does not."""

    @abstractmethod
    def broadcast_piece(self, piece: np.ndarray, root: int) -> None:
        """The root's piece (bytes) arrives in everybody's."""

    @abstractmethod
    def subgroup(self, group: str, ranks: Sequence[int]) -> Member | None:
        """The group of these of its members; None for who is not among them. All members call it."""

    # ------------------------------------------------------------ the same for all
    def agree(self, mark: bytes, what: str) -> None:
        """See Communicator."""
        if self._broken is not None:
            raise CollectiveError(f"The group {self.group!r} has failed before: {self._broken.what}", "Start again.")
        if not self.is_common(mark, what):
            texts = self.swap(what.encode()[:TEXT].ljust(TEXT, b"\0"), what)
            found = [text.rstrip(b"\0").decode(errors="replace") for text in texts]
            raise self.failed(disagreement(self.group, found))
        self._doing = what

    def failed(self, error: CollectiveError) -> CollectiveError:
        """The error, which the group has from now on."""
        self._broken = error
        return error

    def later(self, work: Callable[[], None]) -> Callable[[], None]:
        """See Communicator. One thread does all of it, in turn."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, f"exchanges of {self.group}")
        self._last = self._worker.submit(work)
        return self._last.result

    def settle(self) -> None:
        """See Communicator."""
        if self._last is not None:
            wait([self._last])
            self._last = None

    def barrier(self, name: str = "") -> None:
        """Wait for all members, who come with the same name."""
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
        """Piece r goes to member r, and of those for this one `out` is made; its own stays where it is."""
        arriving = [*self._scratch(out.dtype, (self.size, out.size))]
        self.deal_pieces([_bytes(piece) for piece in given], [_bytes(row) for row in arriving])
        arriving[self.rank] = given[self.rank]
        _reduced(arriving, out, op, mode)

    def _scratch(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Memory for one exchange, which is kept: fresh memory costs as much as moving what it is for."""
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
    """The rows combined one after the other, in a dtype as wide as the mode wants, into `out`."""
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
