"""Donated arguments: their memory is given away by a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlx.array import gone, is_concrete
from rlx.errors import DonatedArrayError
from rlx.ir.types import is_key

__all__ = ["check_given", "donating", "give"]


def _has_memory(x: Any) -> bool:
    """Whether this is an array whose memory can be given away: not of keys."""
    return is_concrete(x) and not is_key(x.dtype)


def check_given(name: str, leaves: Sequence[Any], donated: Sequence[bool]) -> None:
    """Raise DonatedArrayError if a donated array is also another argument, or if an argument's memory is gone."""
    given, every = [id(x) for x in itertools.compress(leaves, donated) if _has_memory(x)], list(map(id, leaves))
    if any(every.count(i) > 1 for i in given):
        raise DonatedArrayError(
            f"{name} was called with an array to donate that is another argument, too.",
            "Pass a copy, or leave the argument out of donate_argnums.",
        )
    for x in leaves:
        if _has_memory(x) and x.is_deleted():
            raise gone(x, f"An argument of {name} ({x.type!r})")


def give(given: Iterable[Any], results: Sequence[Any]) -> None:
    """Give away the memory of arrays that are not results."""
    kept = set(map(id, results))
    for x in given:
        if _has_memory(x) and id(x) not in kept:
            x.donate()


def donating(name: str, run: Callable[[Any], Any], donated: Sequence[bool]) -> Callable[[Any], Any]:
    """A function like `run` that gives away the memory of donated leaves."""

    def call(leaves: Sequence[Any]) -> Any:
        check_given(name, leaves, donated)
        results = run(leaves)
        give(itertools.compress(leaves, donated), results)
        return results

    return call
