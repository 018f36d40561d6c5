"""Rounds of runs until their times are steady: what a profile's medians are taken of."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlx.backends.timing import TimedRun

__all__ = ["Round", "Sample", "disagree", "steady_sample"]

WARM_UP = 2  # rounds before the sample, at least
LEAST_COMPARED = 4  # rounds: fewer say nothing about each other
TOLERANCE = 0.1  # between the two halves of a sample
DISAGREEMENT = 0.2  # between the time of a call and that of its kernels, as a part of the call's
# rounds are made until they are steady, but not for longer than both of these allow
MOST_ROUNDS = 40  # for each round that is asked for
MOST_SECONDS = 2.0


class Round(NamedTuple):
    """A run with clocks, and next to it one without."""

    run: TimedRun
    kernels: float  # seconds of the kernels together, in the run with clocks
    call: float  # seconds of the run without


class Sample(NamedTuple):
    """The latest rounds of several; steady: whether their times stayed the same."""

    rounds: tuple[Round, ...]
    made: int
    steady: bool

    @property
    def call_seconds(self) -> float:
        """The median time of a call without clocks."""
        return statistics.median(r.call for r in self.rounds)

    @property
    def quickest_seconds(self) -> float:
        """The least time of a call without clocks."""
        return min(r.call for r in self.rounds)

    @property
    def median_run(self) -> TimedRun:
        """The run of which half of the others were quicker."""
        ordered = sorted(self.rounds, key=lambda r: r.kernels)
        return ordered[len(ordered) // 2].run


def disagree(kernels: float, call: float) -> bool:
    """Whether the kernels' times together are not the call's, by more than a fifth of it.

    >>> disagree(0.9, 1.0), disagree(1.3, 1.0), disagree(0.7, 1.0)
    (False, True, True)
    """
    return abs(kernels - call) > DISAGREEMENT * call


def steady_sample(
    make_round: Callable[[], Round], least: int, clock: Callable[[], float] = time.perf_counter
) -> Sample:
    """Make rounds until the later half of them, `least` at least, is steady, or no more are allowed.

    Steady are rounds whose first and second half have the same medians, and whose kernels take no longer than the call
    that they are parts of. As the sample is always the later half, what is slow at first (fresh memory, threads
    that start, clocks of processors that rise) leaves it.
    """
    start = clock()
    made = 0
    latest: list[Round] = []
    while True:
        latest.append(make_round())
        made += 1
        kept = max(least, made // 2)
        # of few rounds some more are looked at, but not counted
        del latest[: -max(kept, LEAST_COMPARED)]
        if made < max(least, LEAST_COMPARED - WARM_UP) + WARM_UP:
            continue
        steady = _is_steady(latest)
        if steady or made >= MOST_ROUNDS * least or clock() - start >= MOST_SECONDS:
            return Sample(tuple(latest[-kept:]), made, steady)


def _is_steady(rounds: Sequence[Round]) -> bool:
    kernels = [r.kernels for r in rounds]
    calls = [r.call for r in rounds]
    kernels_take, call_takes = statistics.median(kernels), statistics.median(calls)
    longer = kernels_take > call_takes and disagree(kernels_take, call_takes)
    return not longer and _has_equal_halves(kernels) and _has_equal_halves(calls)


def _has_equal_halves(seconds: Sequence[float]) -> bool:
    middle = len(seconds) // 2
    before, after = statistics.median(seconds[:middle]), statistics.median(seconds[middle:])
    return abs(before - after) <= TOLERANCE * min(before, after)
