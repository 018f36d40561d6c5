"""How devices divide the arguments and the results of calls, by functions of rlx.sharding that are loaded late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx.array import Array, is_array, is_divided, memory_of
from rlx.call.explanations import say
from rlx.call.hooks import sharding_hooks
from rlx.config import config
from rlx.ir.program import Program
from rlx.ir.types import TensorType
from rlx.trace.builder import is_traced, state
from rlx.trace.primitive import type_of
from rlx.trace.tracing import explicit, place_of

__all__ = ["division_of", "explicit_division", "is_committed", "placed_at", "places_of", "typeof"]


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
    return explicit(_known_place(x))


def typeof(x: Any) -> TensorType:
    """The type of an array, a NumPy array or a number: its shape, dtype and weakness, and its sharding.

    `sharding` is how several devices divide the array, None if they do not. For a traced value it is known where the
    function states it, and under rlx.set_mesh.

    >>> import numpy as np
    >>> import rlx
    >>> rlx.typeof(np.zeros((2, 3)))
    float64[2,3]
    >>> rlx.typeof(np.zeros((2, 3))).sharding is None
    True
    """
    sharding = _known_place(x) if is_array(x) else None
    divided = sharding is not None and sharding.num_devices > 1
    return type_of(x).placed(sharding=sharding) if divided else type_of(x)


def _known_place(x: Array) -> Any:
    """The sharding of an array; of a traced one as stated, or, under a mesh, as it follows; None if unknown."""
    said = place_of(x)
    if said is None and is_traced(x) and (config.mesh is not None or state.axes):
        said = sharding_hooks.traced_sharding(x)  # as it follows from the equations so far
    return said


def is_committed(x: Any) -> bool:
    """Whether the user put an array on a device, the host included."""
    return memory_of(x) is not None or hasattr(x, "_sharding")
