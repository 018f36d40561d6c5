"""The sharding of random numbers: out_sharding= of samplers."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from rlx.advice.refused_calls import advise
from rlx.array import Array
from rlx.numpy.placement import check_placement, placed

__all__ = ["placeable"]


def placeable(sampler: Callable[..., Array]) -> Callable[..., Array]:
    """The sampler with an `out_sharding=` argument; by default the result is on the default device."""

    @wraps(sampler)
    def draw(*args: Any, out_sharding: Any = None, **options: Any) -> Array:
        if out_sharding is None:
            try:
                return sampler(*args, **options)
            except TypeError as error:
                advise(error)
                raise
        check_placement(None, out_sharding)
        return placed(sampler(*args, **options), None, out_sharding)

    given = signature(sampler)
    place = Parameter("out_sharding", Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    setattr(draw, "__signature__", given.replace(parameters=[*given.parameters.values(), place]))  # noqa: B010
    return draw
