"""Members that are processes under torchrun, through torch.distributed's gloo, imported when a group is created.

All collectives are built from point-to-point messages: the rank of a missing sender is then known. Each group's
messages have a separate tag.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from rlx.distributed.members import START, TEXT, Member, called, patience, silence
from rlx.errors import CollectiveError, UnsupportedError

__all__ = ["GlooMember", "gloo_member"]


def gloo_member(group: str, size: int) -> GlooMember:
    """The group of all processes that torchrun has started. Raises UnsupportedError without torch."""
    try:
        torch = importlib.import_module("torch")
        dist = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise UnsupportedError(
            f"Processes of torchrun exchange through torch.distributed: {error}.",
            "Start this program with the torchrun of a Python that has torch, or under MPI: rlx launch.",
        ) from None
    seconds, lost, store = patience(START), None, None
    try:
        if dist.is_initialized():  # by the program, for torch
            connections = dist.new_group(backend="gloo")
        else:
            wait = timedelta(seconds=seconds)
            shared, rank, _ = next(dist.rendezvous("env://", timeout=wait))
            store = dist.PrefixStore("rlx", shared)
            store.set(f"rank {rank}", "here")
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=wait)
            connections = dist.group.WORLD
    except (RuntimeError, ValueError) as error:
        lost = error
    if lost is not None:
        who = called(_missing(store, size) or [0]) if store is not None else "the others"
        text = f"torch.distributed waited {seconds:g} s in rlx.distributed.initialize() for {who}: {lost}."
        raise CollectiveError(text, f"Check what happened to {who}. Start all processes at once, with torchrun.")
    return GlooMember(torch, connections, group, dist.get_rank(), range(size), [0])


def _missing(store: Any, size: int) -> list[int]:
    """The ranks that have not arrived; none if the process that keeps the store was lost."""
    try:
        return [rank for rank in range(size) if not store.check([f"rank {rank}"])]
    except RuntimeError:
        return []


class GlooMember(Member):
    """A process of torch.distributed among `ranks`, given as world ranks; `made` counts groups, for their tags."""

    def __init__(
        self, torch: Any, connections: Any, group: str, rank: int, ranks: Sequence[int], made: list[int]
    ) -> None:
        super().__init__(group, list(ranks).index(rank), len(ranks))
        self._torch, self._connections = torch, connections
        self._ranks, self._made, self._tag = list(ranks), made, made[0]
        self._others = [other for other in range(self.size) if other != self.rank]

    def _pass(self, sent: Mapping[int, np.ndarray], arriving: Mapping[int, np.ndarray], what: str) -> None:
        """Send bytes to members, and receive bytes from members. Raises CollectiveError naming a missing member."""
        dist, seconds = self._torch.distributed, patience()
        begun, lost = time.monotonic(), None
        waited = self.rank
        try:
            works = [(other, self._post(dist.irecv, piece, other)) for other, piece in arriving.items() if piece.nbytes]
            works += [(other, self._post(dist.isend, piece, other)) for other, piece in sent.items() if piece.nbytes]
            for waited, work in works:  # noqa: B007
                left = seconds - (time.monotonic() - begun)
                work.wait(timedelta(seconds=max(left, 0.001)))
        except (RuntimeError, ValueError) as error:
            lost = error
        if lost is None:
            return
        if time.monotonic() - begun >= seconds:
            raise self.failed(silence(self.group, self.rank, [waited], seconds, what))
        text = f"gloo failed in the group {self.group!r} between ranks {self.rank} and {waited}: {lost}: {what}."
        raise self.failed(CollectiveError(text, f"Check what happened to rank {waited}."))

    def _post(self, call: Any, piece: np.ndarray, other: int) -> Any:
        tensor = self._torch.from_numpy(piece if piece.flags.writeable else piece.copy())
        return call(tensor, self._ranks[other], group=self._connections, tag=self._tag)

    def _swapped(self, own: bytes, what: str) -> list[np.ndarray]:
        """The bytes of all members, of equal length."""
        rows = np.empty((self.size, len(own)), np.uint8)
        rows[self.rank] = np.frombuffer(own, np.uint8)
        pieces = [*rows]
        self._swap_pieces([pieces[self.rank]] * self.size, pieces, what)
        return pieces

    def _swap_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray], what: str) -> None:
        """Send piece r to member r, and receive one from it."""
        self._pass({r: pieces[r] for r in self._others}, {r: arriving[r] for r in self._others}, what)

    def is_common(self, mark: bytes, what: str) -> bool:
        return all(row.tobytes() == mark for row in self._swapped(mark, what))

    def swap(self, text: bytes, what: str) -> Sequence[bytes]:
        assert len(text) == TEXT
        return [row.tobytes() for row in self._swapped(text, what)]

    def gather_pieces(self, pieces: Sequence[np.ndarray]) -> None:
        self._swap_pieces([pieces[self.rank]] * self.size, pieces, self._doing)

    def deal_pieces(self, pieces: Sequence[np.ndarray], arriving: Sequence[np.ndarray]) -> None:
        self._swap_pieces(pieces, arriving, self._doing)

    def send_piece(self, piece: np.ndarray, to: int | None, out: np.ndarray, source: int | None) -> None:
        self._pass({} if to is None else {to: piece}, {} if source is None else {source: out}, self._doing)

    def broadcast_piece(self, piece: np.ndarray, root: int) -> None:
        if self.rank == root:
            self._pass(dict.fromkeys(self._others, piece), {}, self._doing)
        else:
            self._pass({}, {root: piece}, self._doing)

    def subgroup(self, group: str, ranks: Sequence[int]) -> Member | None:
        self._made[0] += 1
        if self.rank not in ranks:
            return None
        inside = [self._ranks[rank] for rank in ranks]
        return GlooMember(self._torch, self._connections, group, self._ranks[self.rank], inside, self._made)
