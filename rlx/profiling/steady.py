"""Rounds of runs until their times are steady: the samples for a profile's medians."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlx.backends.timing import TimedRun

__all__ = ["Round", "TimeSample", "disagree", "steady_sample"]

WARM_UP = 2  # rounds before the sample, at least
LEAST_COMPARED = 4  # rounds: fewer cannot be compared
TOLERANCE = 0.1  # between the two halves of a sample
SPREAD = 0.3  # from the quickest run to the medians
DISAGREEMENT = 0.2  # between the times of a call and its kernels, relative to the call
# rounds continue until they are steady, but within both of these limits
MOST_ROUNDS = 20  # for each requested round
MOST_SECONDS = 2.0


class Round(NamedTuple):
    """A run with clocks, and the run without clocks next to it."""

    run: TimedRun
    kernels: float  # total seconds of the kernels, in the run with clocks
    call: float  # seconds of the run without clocks


class _Times(NamedTuple):
    """Total seconds of the kernels, and seconds of a call."""

    kernels: float
    call: float


class TimeSample(NamedTuple):
    """The latest of several rounds.

    Medians are over the quicker half of the runs with clocks, and of the runs without. On a busy machine a run is
    either undisturbed or takes several times as long. If half of the runs are disturbed, the median of all is one or
    the other by chance.
    """

    rounds: tuple[Round, ...]
    made: int
    steady: bool
    quickest_seconds: float  # of a call without clocks, over all rounds

    @property
    def runs(self) -> list[TimedRun]:
        """The quicker half of the runs with clocks, the quickest first."""
        ordered = sorted(self.rounds, key=lambda r: r.kernels)
        return [r.run for r in ordered[: _half(len(ordered))]]

    @property
    def call_seconds(self) -> float:
        """The median time of a call without clocks."""
        return _median([r.call for r in self.rounds])

    @property
    def median_run(self) -> TimedRun:
        """The run in the middle of the quicker half."""
        return self.runs[len(self.runs) // 2]


def _half(count: int) -> int:
    return (count + 1) // 2


def _median(seconds: Sequence[float]) -> float:
    """The median of the quicker half."""
    return statistics.median(sorted(seconds)[: _half(len(seconds))])


def disagree(kernels: float, call: float) -> bool:
    """Whether the kernels' total time differs from the call's by more than a fifth.

    >>> disagree(0.9, 1.0), disagree(1.3, 1.0), disagree(0.7, 1.0)
    (False, True, True)
    """
    return abs(kernels - call) > DISAGREEMENT * call


def steady_sample(
    make_round: Callable[[], Round],
    least: int,
    clock: Callable[[], float] = time.perf_counter,
    counted: bool = False,
) -> TimeSample:
    """Run rounds until the later half of them, at least `least` rounds, is steady, or the limits are reached.

    counted: run a number of rounds that depends on `least` only, as runs that exchange arrays need it: every
    process has its own clock, and all of them must make the same number of exchanges.

    Rounds are steady if their first and second half have the same medians, the medians are near the quickest of all,
    and the kernels take no longer than their call. The sample is always the later half, so effects of the start
    (fresh memory, threads that start, rising processor clocks) are excluded.
    """
    start = clock()
    needed = (2 if counted else 1) * (max(least, LEAST_COMPARED - WARM_UP) + WARM_UP)
    made = 0
    latest: list[Round] = []
    quickest = _Times(math.inf, math.inf)
    while True:
        latest.append(make_round())
        quickest = _Times(min(quickest.kernels, latest[-1].kernels), min(quickest.call, latest[-1].call))
        made += 1
        kept = max(least, made // 2)
        # if there are few rounds, some more are compared, but not counted
        del latest[: -max(kept, LEAST_COMPARED)]
        if made < needed:
            continue
        steady = _is_steady(latest, quickest)
        if steady or counted or made >= MOST_ROUNDS * least or clock() - start >= MOST_SECONDS:
            return TimeSample(tuple(latest[-kept:]), made, steady, quickest.call)


def _is_steady(rounds: Sequence[Round], quickest: _Times) -> bool:
    middle = len(rounds) // 2
    before, after, all_of_them = map(_medians, (rounds[:middle], rounds[middle:], rounds))
    if all_of_them.kernels > all_of_them.call and disagree(*all_of_them):
        return False
    return all(
        abs(one - other) <= TOLERANCE * min(one, other) and median <= (1 + SPREAD) * least
        for one, other, median, least in zip(before, after, all_of_them, quickest, strict=True)
    )


def _medians(rounds: Sequence[Round]) -> _Times:
    return _Times(_median([r.kernels for r in rounds]), _median([r.call for r in rounds]))
