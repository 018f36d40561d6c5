"""Processes started by Dask: its workers are the ranks. They meet at an actor on one worker."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from rlx.distributed.meetings import Meeting, MeetingRequest, first_cause, work_as
from rlx.errors import CollectiveError, OptionError
from rlx.offered_names import offer_names

__all__ = ["run"]

offer_names(globals())

_GRACE = 5.0  # seconds
_LOST = "Check what happened to its worker."


class DaskPlace:
    """The Dask actor at which ranks meet. All data passes through the worker that it runs on."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def meet(self, request: MeetingRequest) -> tuple[list[Any], list[int]]:
        """See Place, also for the other methods."""
        try:
            return self._actor.meet(request).result()
        except (OSError, RuntimeError) as error:  # Dask's errors for a lost worker
            lost = error
        raise CollectiveError(f"The actor at which ranks meet was lost: {lost}", _LOST)

    def put(self, piece: np.ndarray) -> Any:
        return piece.copy()  # a worker may use it without copying

    def get(self, handle: Any) -> np.ndarray:
        return handle


def _work(meeting: Any, rank: int, count: int, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return work_as(DaskPlace(meeting), rank, count, function, args)


def run(client: Any, function: Callable[..., Any], *args: Any, count: int | None = None) -> list[Any]:
    """Call a function on workers of Dask that form a group of processes, and return their results by rank.

    In each of them rlx.process_index(), rlx.process_count() and rlx.distributed work as in a separate process.
    `rlx.distributed.initialize` is not called. Ranks are ordered by worker address; each has its own worker.

    Args:
      client: a distributed.Client.
      function: the function to call, which Dask pickles. args: its arguments.
      count: the number of processes; None: the number of workers.

    Raises: the first exception of a process. If others failed while waiting for it, the original exception.
      OptionError for more processes than there are workers.

    >>> import rlx
    >>> from rlx.distributed import dask_workers
    >>> work = lambda: int(rlx.distributed.all_reduce(rlx.process_index()))
    >>> dask_workers.run(client, work, count=3)  # doctest: +SKIP
    [3, 3, 3]
    """
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    size = len(addresses) if count is None else count
    if not 1 <= size <= len(addresses):
        raise OptionError(f"dask_workers.run got {size} processes.", f"The client has {len(addresses)} workers.")
    once = uuid.uuid4().hex
    place = client.submit(Meeting, actor=True, workers=addresses[:1], key=f"rlx-meeting-{once}")
    meeting = place.result()
    started = [
        client.submit(
            _work, meeting, rank, size, function, args,
            workers=[address], key=f"rlx-rank-{once}-{rank}", retries=0, pure=False,
        )
        for rank, address in enumerate(addresses[:size])
    ]  # fmt: skip
    cause = first_cause(_errors(client, started))
    if cause is not None and place.status != "finished":  # its loss ends all ranks
        raise CollectiveError(f"Rank 0, at which ranks meet, was lost with the worker {addresses[0]}: {cause}", _LOST)
    if cause is not None:
        raise cause
    return client.gather(started)


def _errors(client: Any, started: Sequence[Any]) -> list[BaseException | None]:
    """The exceptions of the ranks. After the first one, the others have some seconds to report whom they waited for."""
    distributed = importlib.import_module("distributed")
    for future in distributed.as_completed(started):
        if future.status != "finished":
            break
    running = [future for future in started if not future.done()]
    if running:
        with suppress(TimeoutError):
            distributed.wait(running, timeout=_GRACE)
    client.cancel([future for future in running if not future.done()])
    return [future.exception() if future.status == "error" else None for future in started]
