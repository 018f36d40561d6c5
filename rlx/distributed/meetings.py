"""Members that meet at an actor of Ray or Dask: a group without MPI, over the connections of the cluster."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlx.distributed.members import Member, loss, patience, silence
from rlx.errors import CollectiveError
from rlx.ir.collectives import WORLD, Members, members

__all__ = ["Meeting", "MeetingMember", "MemberAddress", "MeetingRequest", "first_cause", "work_as"]

Turn = tuple[str, int]  # a group, and the number of its meetings so far


class MeetingRequest(NamedTuple):
    """A member's request. column: the index that it needs of every value, if not the whole value."""

    turn: Turn
    rank: int
    size: int
    value: Any
    column: int | None
    seconds: float


class Meeting:
    """The actor: every member sends a value and receives all values.

    >>> import asyncio
    >>> from rlx.distributed.meetings import Meeting, MeetingRequest
    >>> asyncio.run(Meeting().meet(MeetingRequest(("world", 1), 0, 1, "value", None, 1.0)))
    (['value'], [])
    """

    def __init__(self) -> None:
        self._values: dict[Turn, dict[int, Any]] = {}
        self._complete: dict[Turn, asyncio.Event] = {}
        self._taken: dict[Turn, int] = {}

    async def meet(self, request: MeetingRequest) -> tuple[list[Any], list[int]]:
        """The values of all members; or no values, and the ranks that did not arrive within `seconds`."""
        turn, rank, size, value, column, seconds = request
        values = self._values.setdefault(turn, {})
        complete = self._complete.setdefault(turn, asyncio.Event())
        values[rank] = value
        if len(values) == size:
            complete.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(complete.wait(), seconds)
        if len(values) < size:
            return [], [other for other in range(size) if other not in values]
        found = [values[other] if column is None else values[other][column] for other in range(size)]
        self._taken[turn] = self._taken.get(turn, 0) + 1
        if self._taken[turn] == size:
            for table in (self._values, self._complete, self._taken):
                del table[turn]
        return found, []


class MemberAddress(Protocol):
    """How a member reaches the actor, and how other members find its data."""

    def meet(self, request: MeetingRequest) -> tuple[list[Any], list[int]]:
        """The answer of Meeting.meet. Raises CollectiveError if the actor was lost."""
        ...

    def put(self, piece: np.ndarray) -> Any:
        """A reference to a copy of these bytes, valid for as long as it is kept."""

    def get(self, handle: Any) -> np.ndarray:
        """The bytes that another member has put. Raises CollectiveError if they were lost with that member."""
        ...


class MeetingMember(Member):
    """A member of a group that meets at an actor."""

    def __init__(self, place: MemberAddress, group: str, rank: int, size: int) -> None:
        super().__init__(group, rank, size)
        self._place = place
        self._turn = 0
        # a member that arrives at a meeting has read everything that was put before the previous one
        self._put: deque[Any] = deque(maxlen=2)

    def _meet(self, value: Any, what: str, column: int | None = None) -> list[Any]:
        self._turn += 1
        self._put.append(value)
        seconds = patience()
        request = MeetingRequest((self.group, self._turn), self.rank, self.size, value, column, seconds)
        lost, found, missing = None, [], []
        try:
            found, missing = self._place.meet(request)
        except CollectiveError as error:
            lost = error
        if lost is not None:
            raise self.failed(lost)
        if missing:
            raise self.failed(silence(self.group, self.rank, missing, seconds, what))
        return found

    def _take(self, handles: Sequence[Any], targets: Sequence[np.ndarray]) -> None:
        """The bytes of all others."""
        for rank, (handle, target) in enumerate(zip(handles, targets, strict=True)):
            if rank != self.rank:
                target[...] = self._piece(handle, rank)

    def _piece(self, handle: Any, rank: int) -> np.ndarray:
        """The bytes that a member has put; the member may have been lost since."""
        try:
            return self._place.get(handle)
        except CollectiveError as error:
            lost = error
        raise self.failed(loss(self.group, self.rank, [rank], lost.what, self._doing))

    def is_common(self, mark: bytes, what: str) -> bool:
        """See Member, also for the other methods."""
        return len(set(self._meet(mark, what))) == 1

    def swap(self, text: bytes, what: str) -> Sequence[bytes]:
        return self._meet(text, what)

    def gather_pieces(self, pieces: Sequence[np.ndarray]) -> None:
        self._take(self._meet(self._place.put(pieces[self.rank]), self._doing), pieces)

    def deal_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray]) -> None:
        put = [None if rank == self.rank else self._place.put(piece) for rank, piece in enumerate(pieces)]
        self._take(self._meet(put, self._doing, self.rank), arriving)

    def send_piece(self, piece: np.ndarray, to: int | None, out: np.ndarray, source: int | None) -> None:
        found = self._meet(None if to is None else self._place.put(piece), self._doing)
        if source is not None:
            out[...] = self._piece(found[source], source)

    def broadcast_piece(self, piece: np.ndarray, root: int) -> None:
        found = self._meet(self._place.put(piece) if self.rank == root else None, self._doing)
        if self.rank != root:
            piece[...] = self._piece(found[root], root)

    def subgroup(self, group: str, ranks: Sequence[int]) -> Member | None:
        return MeetingMember(self._place, group, ranks.index(self.rank), len(ranks)) if self.rank in ranks else None


def work_as(place: MemberAddress, rank: int, count: int, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Call a function as the process with this rank among `size` processes."""
    with members(Members({WORLD: MeetingMember(place, WORLD, rank, count)})):
        return function(*args)


def first_cause(errors: Sequence[BaseException | None]) -> BaseException | None:
    """The exception that made the other ranks wait in vain; None if all ranks succeeded."""
    raised = [error for error in errors if error is not None]
    return min(raised, key=lambda error: isinstance(error, CollectiveError), default=None)
