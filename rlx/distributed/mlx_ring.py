"""Members that are processes under mlx.launch, through mlx.distributed, which is imported when a group is created.

MLX's rings only gather; the pieces that members need are taken from the gathered data. MLX waits without a time limit
and does not report for whom, so all its calls run in a separate thread.
"""

from __future__ import annotations

import importlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from rlx.distributed.members import START, Member, patience, silence
from rlx.errors import CollectiveError, UnsupportedError
from rlx.installation import install_command

__all__ = ["RingMember", "ring_member"]


def ring_member(group: str) -> RingMember:
    """The group of all processes that mlx.launch has started. Raises UnsupportedError without MLX."""
    try:
        core = importlib.import_module("mlx.core")
    except ImportError as error:
        raise UnsupportedError(f"Processes of mlx.launch need MLX: {error}.", install_command("mlx")) from None
    return RingMember(core, group)


class _Caller:
    """A thread that makes all calls of MLX. The end of the process does not wait for it."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="MLX's ring", daemon=True).start()

    def _work(self) -> None:
        while True:
            call, future = self._calls.get()
            failed = None
            try:
                future.set_result(call())
            except Exception as error:
                failed = error
            if failed is not None:
                future.set_exception(failed)

    def __call__(self, call: Callable[[], Any], seconds: float) -> Any:
        """The result of a call. Raises TimeoutError if it takes longer than `seconds`."""
        future: Future[Any] = Future()
        self._calls.put((call, future))
        return future.result(seconds)


class RingMember(Member):
    """A process of MLX's group of all processes, which cannot be divided into groups."""

    def __init__(self, core: Any, group: str) -> None:
        self._core, self._call = core, _Caller()
        seconds = patience(START)
        place, lost = None, None
        try:
            place = self._call(self._join, seconds)
        except (TimeoutError, RuntimeError) as error:
            lost = error
        if place is None:
            text = f"MLX found no others within {seconds:g} s: {lost!r}."
            raise CollectiveError(text, "Start all processes at once.")
        super().__init__(group, *place)

    def _join(self) -> tuple[int, int]:
        self._all = self._core.distributed.init(strict=True, backend="ring")
        return self._all.rank(), self._all.size()

    def _gathered(self, piece: np.ndarray, what: str) -> np.ndarray:
        """The bytes of all members, one row each, all of one length."""
        core = self._core

        def gather() -> np.ndarray:
            with core.stream(core.cpu):
                found = core.distributed.all_gather(core.array(piece), group=self._all)
                core.eval(found)
            return np.array(found)

        seconds = patience()
        lost: Exception | None = None
        try:
            return self._call(gather, seconds).reshape(self.size, -1)
        except (TimeoutError, RuntimeError) as error:
            lost = error
        others = [rank for rank in range(self.size) if rank != self.rank]
        if isinstance(lost, TimeoutError):
            raise self.failed(silence(self.group, self.rank, others, seconds, what))
        text = f"MLX failed in the group {self.group!r} at rank {self.rank}: {lost}: {what}."
        raise self.failed(CollectiveError(text, "Check what happened to the other ranks."))

    def is_common(self, mark: bytes, what: str) -> bool:
        """See Member, also for the other methods."""
        own = np.frombuffer(mark, np.uint8)
        return bool((self._gathered(own, what) == own).all())

    def swap(self, text: bytes, what: str) -> Sequence[bytes]:
        return [row.tobytes() for row in self._gathered(np.frombuffer(text, np.uint8), what)]

    def gather_pieces(self, pieces: Sequence[np.ndarray]) -> None:
        longest = max(piece.nbytes for piece in pieces)
        own = np.zeros(longest, np.uint8)
        own[: pieces[self.rank].nbytes] = pieces[self.rank]
        for piece, row in zip(pieces, self._gathered(own, self._doing), strict=True):
            piece[...] = row[: piece.nbytes]

    def deal_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray]) -> None:
        start = sum(piece.nbytes for piece in pieces[: self.rank])
        for target, row in zip(arriving, self._gathered(np.concatenate(pieces), self._doing), strict=True):
            target[...] = row[start : start + target.nbytes]

    def send_piece(self, piece: np.ndarray, to: int | None, out: np.ndarray, source: int | None) -> None:
        found = self._gathered(piece, self._doing)
        if source is not None:
            out[...] = found[source]

    def broadcast_piece(self, piece: np.ndarray, root: int) -> None:
        piece[...] = self._gathered(piece, self._doing)[root]

    def subgroup(self, group: str, ranks: Sequence[int]) -> Member | None:
        raise UnsupportedError(
            f"MLX's ring has no group of the ranks {list(ranks)}.", "Start the processes under MPI: rlx launch."
        )
