"""Processes started by Ray: an actor for each rank. They meet at another actor, and arrays use Ray's object store."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.distributed.meetings import Meeting, MeetingRequest, first_cause, work_as
from rlx.errors import CollectiveError, OptionError, UnsupportedError
from rlx.offered_names import offer_names

__all__ = ["run"]

offer_names(globals())


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UnsupportedError(f"Processes of Ray need it: {error}.", 'pip install "ray"') from None


class RayPlace:
    """An actor of Ray at which ranks meet."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def meet(self, request: MeetingRequest) -> tuple[list[Any], list[int]]:
        """See Place, also for the other methods."""
        ray = _ray()
        try:
            return ray.get(self._actor.meet.remote(request))
        except ray.exceptions.RayError as error:
            lost = error
        raise CollectiveError(f"The actor at which ranks meet was lost: {lost}", "Check what happened to its node.")

    def put(self, piece: np.ndarray) -> Any:
        return _ray().put(piece)

    def get(self, handle: Any) -> np.ndarray:
        """See Place, also for the other methods."""
        ray = _ray()
        try:
            return ray.get(handle)
        except ray.exceptions.RayError as error:
            lost = error
        raise CollectiveError(f"A piece was lost: {type(lost).__name__}", "Check what happened to its node.")


class _Rank:
    """The actor that runs one rank."""

    def work(self, meeting: Any, rank: int, count: int, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return work_as(RayPlace(meeting), rank, count, function, args)


def run(
    count: int, function: Callable[..., Any], *args: Any, resources: Mapping[str, float] | None = None
) -> list[Any]:
    """Call a function in actors of Ray that form a group of `count` processes, and return their results by rank.

    In each of them rlx.process_index(), rlx.process_count() and rlx.distributed work as in a separate process.
    `rlx.distributed.initialize` is not called. Ray spreads them over the nodes once resources for all are free.

    Args:
      count: the number of processes. function: the function to call, which Ray pickles. args: its arguments.
      resources: the resources that Ray reserves for each process; None: {"CPU": 1}.

    Raises: the first exception of a process. If others failed while waiting for it, the original exception.
      UnsupportedError without Ray.

    >>> import rlx
    >>> from rlx.distributed import ray_actors
    >>> ray_actors.run(3, lambda: int(rlx.distributed.all_reduce(rlx.process_index())))  # doctest: +SKIP
    [3, 3, 3]
    """
    if count < 1:
        raise OptionError(f"ray_actors.run got {count} processes.", "Pass 1 or more.")
    ray, util = _ray(), importlib.import_module("ray.util")
    bundle = dict(resources or {"CPU": 1})
    scheduling = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
    room = util.placement_group([bundle] * count, strategy="SPREAD")
    meeting = ray.remote(num_cpus=0)(Meeting).remote()
    try:
        ray.get(room.ready())
        rest = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU")}
        own = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0), "resources": rest}
        actors = [
            ray.remote(_Rank).options(scheduling_strategy=scheduling(room, rank), **own).remote()
            for rank in range(count)
        ]
        started = [actor.work.remote(meeting, rank, count, function, args) for rank, actor in enumerate(actors)]
        results, errors = zip(*(_outcome(ray, *pair) for pair in enumerate(started)), strict=True)
    finally:
        util.remove_placement_group(room)  # which ends the actors in it
        ray.kill(meeting)
    cause = first_cause(errors)
    if cause is not None:
        raise cause
    return [*results]


def _outcome(ray: Any, rank: int, reference: Any) -> tuple[Any, BaseException | None]:
    """The result of a rank, or the exception that it raised."""
    try:
        return ray.get(reference), None
    except ray.exceptions.RayTaskError as error:
        return None, error.cause
    except ray.exceptions.RayError as error:
        lost = error
    return None, CollectiveError(f"Rank {rank} was lost: {lost}", "Check what happened to its actor.")
