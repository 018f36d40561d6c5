"""When a profile has measured enough: rounds and clocks that tests make up."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx.backends.timing import Events, StepTime, TimedRun
from rlx.profiling.steady import MOST_ROUNDS, MOST_SECONDS, WARM_UP, Round, TimeSample, disagree, steady_sample

NO_EVENTS = Events(np.empty((0, 3), np.int64))


def round_of(kernels: float, call: float | None = None) -> Round:
    run = TimedRun([], (StepTime(kernels * 1e9, 1),), NO_EVENTS)
    return Round(run, kernels, kernels if call is None else call)


def source(rounds: Iterable[Round]) -> Callable[[], Round]:
    return iter(rounds).__next__


def kernels_of(found: TimeSample) -> float:
    """The median time of the kernels together."""
    return round(statistics.median(run.seconds for run in found.runs), 9)


def never() -> float:
    """A clock that stands."""
    return 0.0


def test_equal_times_are_enough_at_once() -> None:
    made = [round_of(0.004 + 1e-6 * n) for n in range(30)]
    found = steady_sample(source(made), 10, never)
    assert found.steady and found.made == 10 + WARM_UP and found.rounds == tuple(made[WARM_UP : 10 + WARM_UP])
    assert found.runs == [r.run for r in made[WARM_UP : 5 + WARM_UP]] and found.call_seconds == made[WARM_UP + 2].call
    assert found.quickest_seconds == made[0].call and found.median_run is made[WARM_UP + 2].run


@pytest.mark.parametrize("slow", range(12))
def test_what_is_slow_at_first_is_left_out(slow: int) -> None:
    """Fresh memory, threads that start: however many of the first rounds it touches."""
    made = itertools.chain([round_of(0.117, 0.090)] * slow, itertools.repeat(round_of(0.0044, 0.0045)))
    found = steady_sample(source(made), 10, never)
    assert found.steady and found.call_seconds == 0.0045
    assert kernels_of(found) == 0.0044


def test_slow_clocks_only_do_not_pass_as_steady() -> None:
    """Kernels that take longer than the call that they are parts of: the fault that medians alone do not see."""
    made = itertools.chain([round_of(0.117, 0.0044)] * 50, itertools.repeat(round_of(0.0043, 0.0044)))
    found = steady_sample(source(made), 10, never)
    assert found.steady and kernels_of(found) == 0.0043
    always = steady_sample(lambda: round_of(0.117, 0.0044), 10, never)
    assert not always.steady and always.made == 10 * MOST_ROUNDS


@pytest.mark.parametrize("disturbed", [0.3, 0.5, 0.6])
def test_a_busy_machine_hardly_shows(disturbed: float) -> None:
    """Runs take 2 ms or, as often as another process takes the processor away, 10: medians of all would be chance."""
    for seed in range(20):
        generator = np.random.default_rng(seed)

        def time_of_run(generator: np.random.Generator = generator) -> float:
            return 0.01 if generator.random() < disturbed else 0.002 * generator.uniform(1.0, 1.1)

        found = steady_sample(lambda: round_of(time_of_run(), time_of_run()), 10, never)
        kernels = kernels_of(found)
        assert found.steady and not disagree(kernels, found.call_seconds) and kernels < 0.0026


def test_runs_may_be_disturbed_in_turns() -> None:
    """Every other run loses the processor: each round has a long time, and both medians are of those left alone."""
    kernels, calls = itertools.cycle([0.002, 0.01]), itertools.cycle([0.01, 0.002])
    found = steady_sample(lambda: round_of(next(kernels), next(calls)), 12, never)
    assert found.steady and (kernels_of(found), found.call_seconds) == (0.002, 0.002)


def test_runs_that_are_nearly_always_disturbed_are_not_steady() -> None:
    times = itertools.cycle([0.002] + [0.01] * 30)
    assert not steady_sample(lambda: round_of(next(times)), 10, never).steady


def test_a_call_longer_than_its_kernels_is_steady() -> None:
    """Python takes its time; that is said, but measuring longer changes nothing."""
    assert steady_sample(lambda: round_of(1e-6, 1e-5), 5, never).made == 5 + WARM_UP


def test_times_that_never_settle_are_bounded_by_their_number() -> None:
    times = (1.5**n for n in itertools.count())
    found = steady_sample(lambda: round_of(next(times)), 2, never)
    assert not found.steady and found.made == 2 * MOST_ROUNDS and len(found.rounds) == MOST_ROUNDS


def test_times_that_never_settle_are_bounded_by_a_clock() -> None:
    seconds = itertools.count(0.0, MOST_SECONDS / 20)
    times = (1.5**n for n in itertools.count())
    found = steady_sample(lambda: round_of(next(times)), 5, seconds.__next__)
    assert not found.steady and 20 <= found.made <= 30
    late = itertools.count(0.0, 100.0)
    assert steady_sample(lambda: round_of(1.0), 5, late.__next__).made == 5 + WARM_UP  # what was asked for is made


@pytest.mark.parametrize("least", [1, 2, 3])
def test_few_runs_are_compared_with_those_before(least: int) -> None:
    found = steady_sample(lambda: round_of(1.0), least, never)
    assert found.steady and found.made == max(4, least + WARM_UP) and len(found.rounds) == max(2, least)
    made = source([*[round_of(9.0)] * 3, *[round_of(1.0)] * 50])
    found = steady_sample(made, least, never)
    assert found.steady and {r.call for r in found.rounds} == {1.0}


@given(st.lists(st.floats(0.001, 10.0), min_size=400, max_size=400), st.integers(1, 8))
def test_the_sample_is_the_later_half_of_what_was_run(seconds: list[float], least: int) -> None:
    made: list[Round] = []

    def make() -> Round:
        made.append(round_of(seconds[len(made)], 2.0 * seconds[len(made)]))
        return made[-1]

    found = steady_sample(make, least, never)
    assert found.made == len(made) <= MOST_ROUNDS * max(least, 4)
    kept = max(least, len(made) // 2)
    assert len(found.rounds) == kept and all(a is b for a, b in zip(found.rounds, made[-kept:], strict=True))
    quicker = sorted(made[-kept:], key=lambda r: r.kernels)[: (kept + 1) // 2]
    assert found.runs == [r.run for r in quicker] and found.median_run is quicker[len(quicker) // 2].run
    assert found.call_seconds == statistics.median(r.call for r in quicker)


def test_disagreement_is_a_fifth_of_the_call() -> None:
    assert not disagree(0.81, 1.0) and not disagree(1.19, 1.0)
    assert disagree(0.79, 1.0) and disagree(1.21, 1.0) and disagree(117.0, 4.35)


@pytest.mark.parametrize("least", [1, 5])
def test_runs_that_exchange_are_as_many_whatever_they_take(least: int) -> None:
    """Processes with clocks of their own must make the same number."""
    late = itertools.count(0.0, 100.0)
    wild = (1.5**n for n in itertools.count())
    samples = [
        steady_sample(lambda: round_of(1.0), least, never, counted=True),
        steady_sample(lambda: round_of(next(wild)), least, late.__next__, counted=True),
    ]
    assert samples[0].made == samples[1].made and [sample.steady for sample in samples] == [True, False]
