"""The four program transforms, cached by program for the rules of regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

from rlx.transforms.batch import batch_program, batch_walk
from rlx.transforms.jvp import jvp_program, jvp_walk
from rlx.transforms.split import separate_program, split_program
from rlx.transforms.transpose import backward_walk, transpose_program

__all__ = [
    "backward_walk",
    "batch_program",
    "batch_walk",
    "clear_transform_cache",
    "jvp_program",
    "jvp_walk",
    "remember",
    "remembered_batch",
    "remembered_jvp",
    "remembered_separate",
    "remembered_split",
    "remembered_transpose",
    "separate_program",
    "split_program",
    "transpose_program",
]

_remembered: list[Any] = []


def remember(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Keep recent results: a jitted function differentiated again and again is transformed once."""
    cached = lru_cache(maxsize=256)(transform)
    _remembered.append(cached)

    def fixed(value: Any) -> Any:
        return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

    @wraps(transform)
    def run(*args: Any, **kwargs: Any) -> Any:
        return cached(*map(fixed, args), **{k: fixed(v) for k, v in kwargs.items()})

    return run


def clear_transform_cache() -> None:
    """Forget every remembered result."""
    for cached in _remembered:
        cached.cache_clear()


remembered_batch = remember(batch_program)
remembered_jvp = remember(jvp_program)
remembered_separate = remember(separate_program)
remembered_split = remember(split_program)
remembered_transpose = remember(transpose_program)
