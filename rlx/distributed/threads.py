"""Members that are threads of one process: for tests, and for trying a program without starting processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.config import Config, config, scoped
from rlx.distributed.members import Member, patience, silence
from rlx.errors import CollectiveError, OptionError
from rlx.ir.collectives import WORLD, Members, members
from rlx.offered_names import offer_names

__all__ = ["run"]

offer_names(globals())

_NOTHING = object()


class _ThreadMeeting:
    """A meeting of the members of a group: every member passes a value and receives all values."""

    def __init__(self, group: str, ranks: Sequence[int]) -> None:
        self.group, self.ranks, self.size = group, [*ranks], len(ranks)
        self.changed = threading.Condition()
        self.values: list[Any] = [_NOTHING] * self.size
        self.finished: list[Any] = []
        self.turn = 0
        self.gone: dict[int, str] = {}  # members that have left, and why
        self.inside: dict[str, _ThreadMeeting] = {}  # of groups of its members

    def meet(self, rank: int, value: Any, what: str) -> list[Any]:
        """The values of all members. Raises CollectiveError if some do not arrive within the time limit."""
        with self.changed:
            turn = self.turn
            self.values[rank] = value
            if not self.missing():
                self.finished, self.values = self.values, [_NOTHING] * self.size
                self.turn += 1
                self.changed.notify_all()
                return self.finished
            seconds = patience()
            until = time.monotonic() + seconds
            while self.turn == turn:
                lost = [r for r in self.missing() if r in self.gone]
                if lost:
                    who = f"rank {lost[0]} in the group {self.group!r}, which {self.gone[lost[0]]}"
                    instead = "All members must call the same functions in the same order."
                    raise CollectiveError(f"Rank {rank} waited for {who}: {what}.", instead)
                if not self.changed.wait(until - time.monotonic()) and self.turn == turn:
                    raise silence(self.group, rank, self.missing(), seconds, what)
            return self.finished

    def missing(self) -> list[int]:
        """The members that have not arrived yet."""
        return [rank for rank, value in enumerate(self.values) if value is _NOTHING]

    def leave(self, rank: int, why: str) -> None:
        """A member, with this rank among all, has left this group and the groups inside it."""
        with self.changed:
            if rank in self.ranks:
                self.gone[self.ranks.index(rank)] = why
            self.changed.notify_all()
            inside = [*self.inside.values()]
        for meeting in inside:
            meeting.leave(rank, why)


class ThreadMember(Member):
    """A member of a group of threads, which read each other's arrays."""

    def __init__(self, meeting: _ThreadMeeting, rank: int) -> None:
        super().__init__(meeting.group, rank, meeting.size)
        self._meeting = meeting

    def _meet(self, value: Any, what: str) -> list[Any]:
        refused = None
        try:
            return self._meeting.meet(self.rank, value, what)
        except CollectiveError as error:
            refused = error
        raise self.failed(refused)

    def is_common(self, mark: bytes, what: str) -> bool:
        """See Member, also for the other methods."""
        return len(set(self._meet(mark, what))) == 1

    def swap(self, text: bytes, what: str) -> Sequence[bytes]:
        return self._meet(text, what)

    def gather_pieces(self, pieces: Sequence[np.ndarray]) -> None:
        found = self._meet(pieces[self.rank], self._doing)
        self._copy(found, pieces)
        self._meet(None, self._doing)  # all members have now read the piece

    def deal_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray]) -> None:
        found = self._meet(pieces, self._doing)
        self._copy([others[self.rank] for others in found], arriving)
        self._meet(None, self._doing)

    def _copy(self, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
        """From every other member's memory."""
        for rank, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if rank != self.rank:
                target[...] = source

    def send_piece(self, piece: np.ndarray, to: int | None, out: np.ndarray, source: int | None) -> None:
        found = self._meet(piece, self._doing)
        if source is not None:
            out[...] = found[source]
        self._meet(None, self._doing)

    def broadcast_piece(self, piece: np.ndarray, root: int) -> None:
        found = self._meet(piece, self._doing)
        if self.rank != root:
            piece[...] = found[root]
        self._meet(None, self._doing)

    def subgroup(self, group: str, ranks: Sequence[int]) -> Member | None:
        with self._meeting.changed:
            inner = self._meeting.inside.setdefault(group, _ThreadMeeting(group, ranks))
        return ThreadMember(inner, ranks.index(self.rank)) if self.rank in ranks else None


def run(count: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call a function on `count` threads that form a group of processes, and return their results by rank.

    In each of them rlx.process_index(), rlx.process_count() and rlx.distributed work as in a separate process.
    Captured objects are shared. jit compiles for each thread separately, when it traces.

    Args:
      count: the number of threads. function: the function to call. args: its arguments.

    Raises: the first exception of a thread. If others failed while waiting for it, the original exception.

    >>> import rlx
    >>> from rlx.distributed import threads
    >>> threads.run(3, lambda: int(rlx.distributed.all_reduce(rlx.process_index())))
    [3, 3, 3]
    """
    if count < 1:
        raise OptionError(f"threads.run got {count} threads.", "Pass 1 or more.")
    meeting = _ThreadMeeting(WORLD, range(count))
    results: list[Any] = [None] * count
    raised: list[tuple[int, BaseException]] = []
    own = {name: value for name, value in vars(config).items() if name in Config.__annotations__}
    switches = {name: value for name, value in own.items() if name not in ("token", "watched")}

    def work(rank: int) -> None:
        error: BaseException | None = None
        try:
            with scoped(**switches), members(Members({WORLD: ThreadMember(meeting, rank)})):
                results[rank] = function(*args)
        except BaseException as caught:
            error = caught
        if error is not None:
            raised.append((rank, error))
        meeting.leave(rank, "has returned" if error is None else f"has raised {type(error).__name__}")

    started = [threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    causes = [error for _, error in sorted(raised, key=lambda pair: pair[0])]
    for error in sorted(causes, key=lambda error: isinstance(error, CollectiveError)):
        raise error
    return results
