"""Processes that Ray starts: an actor for each rank; they meet at another one, and arrays go by Ray's object store."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.distributed.meetings import Meeting, Request, first_cause, work_as
from rlx.errors import CollectiveError, OptionError, UnsupportedError

__all__ = ["run"]


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UnsupportedError(f"Processes of Ray need it: {error}.", 'pip install "ray"') from None


class RayPlace:
    """An actor of Ray at which ranks meet."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def meet(self, request: Request) -> tuple[list[Any], list[int]]:
        """See Place; so with the others."""
        ray = _ray()
        try:
            return ray.get(self._actor.meet.remote(request))
        except ray.exceptions.RayError as error:
            lost = error
        raise CollectiveError(f"The actor at which ranks meet is gone: {lost}", "Look what happened to its node.")

    def put(self, piece: np.ndarray) -> Any:
        return _ray().put(piece)

    def get(self, handle: Any) -> np.ndarray:
        """See Place; so with the others."""
        ray = _ray()
        try:
            return ray.get(handle)
        except ray.exceptions.RayError as error:
            lost = error
        raise CollectiveError(f"A piece is gone: {type(lost).__name__}", "Look what happened to its node.")


class _Rank:
    """The actor that one rank works in."""

    def work(self, meeting: Any, rank: int, count: int, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return work_as(RayPlace(meeting), rank, count, function, args)


def run(
    count: int, function: Callable[..., Any], *args: Any, resources: Mapping[str, float] | None = None
) -> list[Any]:
    """Call a function in so many actors of Ray that are the processes of a group, and return their results by rank.

    In each of them rlx.process_index(), rlx.process_count() and rlx.distributed are those of a process of its own;
    `rlx.distributed.initialize` is not called. Ray places them, on as many nodes as it can, once all of them have room.

    Args:
      count: how many. function: what each of them calls, which Ray pickles. args: what it is called with.
      resources: what Ray keeps for each of them; None: {"CPU": 1}.

    Raises: what the first of them raised; where one raised and others waited for it, what that one did.
      UnsupportedError without Ray.

    >>> import rlx
    >>> from rlx.distributed import ray_actors
    >>> ray_actors.run(3, lambda: int(rlx.distributed.all_reduce(rlx.process_index())))  # doctest: +SKIP
    [3, 3, 3]
    """
    if count < 1:
        raise OptionError(f"ray_actors.run got {count} processes.", "There is at least one.")
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
    """What a rank returned, and what it raised."""
    try:
        return ray.get(reference), None
    except ray.exceptions.RayTaskError as error:
        return None, error.cause
    except ray.exceptions.RayError as error:
        lost = error
    return None, CollectiveError(f"Rank {rank} was lost: {lost}", "Look what happened to its actor.")
