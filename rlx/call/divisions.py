"""How devices divide the arguments and the results of calls, by functions of rlx.sharding that are loaded late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.array import Array, is_divided, memory_of
from rlx.call.explanations import say
from rlx.config import config
from rlx.ir.program import Program
from rlx.trace.builder import is_traced, state
from rlx.trace.tracing import explicit, place_of

__all__ = ["division_of", "explicit_division", "is_committed", "placed_at", "places_of", "sharding_hooks"]


class _ShardingHooks:
    """Functions of rlx.sharding, by their names there; and `jitted`, the class of functions with in_shardings."""

    check_described: Callable[[Any, Sequence[int]], None]
    default_sharding: Callable[[], Any]
    device_put: Callable[[Any, Any], Any]
    explained: Callable[[str, Sequence[Any]], str]
    jitted: Callable[..., Any]
    propagated: Callable[[Program, Sequence[Any], Mapping[Any, Any]], tuple[list[Any], list[Any]]]
    resolve: Callable[[str, Any], Any]
    stated: Callable[[Program, Sequence[Any], Mapping[Any, Any], Sequence[Any]], Any]
    traced_sharding: Callable[[Any], Any]


sharding_hooks = _ShardingHooks()


def places_of(program: Program, arguments: Sequence[Any], marks: Mapping[Any, Any] | None = None) -> list[Any]:
    """The shardings of a program's results, or None where unknown; with RLX_EXPLAIN, devices' exchanges are printed."""
    places, exchanges = sharding_hooks.propagated(program, list(map(division_of, arguments)), marks or {})
    if config.explain and exchanges:
        say(sharding_hooks.explained(program.name, exchanges))
    return places


def placed_at(outs: Sequence[Any], places: Sequence[Any]) -> list[Any]:
    """The results with these shardings, where known."""
    return [x if place is None else x.with_sharding(place) for x, place in zip(outs, places, strict=True)]


def division_of(x: Any) -> Any:
    """The sharding of an argument over several devices; None for other arguments."""
    if is_divided(x):
        return x._type.device_sharding
    described = getattr(x, "described_sharding", None)
    return None if described is None or described.is_default else described


def explicit_division(x: Array) -> Any:
    """The sharding of an argument over Explicit axes of a mesh of several devices; None for other arguments."""
    said = place_of(x)
    if said is None and is_traced(x) and (config.mesh is not None or state.axes):
        said = sharding_hooks.traced_sharding(x)  # as it follows from the equations so far
    return explicit(said)


def is_committed(x: Any) -> bool:
    """Whether the user put an array on a device, the host included."""
    return memory_of(x) is not None or hasattr(x, "_sharding")
