"""Alternating calls, so that other load on the machine affects all of them equally."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.collectives import communicator

__all__ = ["percentile", "times_in_turn"]

TURN_SECONDS = 0.02  # the duration of a function's calls in a round, and their maximum number
MOST_CALLS = 1_000
SHORT_SECONDS = 1e-3  # calls that are shorter come behind one that is not timed, as in a loop


def times_in_turn(calls: Sequence[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """The seconds of each of several calls. Each round runs all of them, starting with another one.

    Of several processes each has its own clock, while calls that exchange arrays must be as many in all of them: there
    a turn is one call.

    >>> [len(times) >= 3 for times in times_in_turn([lambda: sum(range(100)), lambda: None], rounds=3)]
    [True, True]
    """
    alone = communicator().size == 1
    counts = [_calls_in_a_turn(call) if alone else 1 for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    gc.collect()
    for turn in range(rounds):
        for n in range(len(calls)):
            at = (turn + n) % len(calls)
            times[at] += _turn(calls[at], counts[at])
    return times


def _calls_in_a_turn(call: Callable[[], Any]) -> int:
    """How many calls a turn has; by the quickest of a few, as the first ones may be slow."""
    quickest, taken = math.inf, 0.0
    while taken < TURN_SECONDS:
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
        quickest, taken = min(quickest, seconds), taken + seconds
    return max(1, min(MOST_CALLS, int(TURN_SECONDS / quickest)))


def _turn(call: Callable[[], Any], count: int) -> list[float]:
    clock, found = time.perf_counter, []
    if TURN_SECONDS / count < SHORT_SECONDS:
        call()
    for _ in range(count):
        start = clock()
        call()
        found.append(clock() - start)
    return found


def percentile(sorted_values: Sequence[float], part: float) -> float:
    """The value below which a fraction of the values is.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0, 2.0, 3.0, 4.0], 0.95)
    (2.0, 4.0)
    """
    return sorted_values[max(0, math.ceil(part * len(sorted_values)) - 1)]
