"""Peaks as data: rates by size, the least time for some work, and what a kernel proves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx.ir.work import Work
from rlx.profiling.roofline import LEAST_EVIDENCE, Evidence, Peaks, front

SOME = Peaks("cpu", 1, ((1024, 100e9), (4096, 50e9)), ((1024, 200e9), (4096, 80e9)), 10e9, 5e9)

rates = st.lists(st.tuples(st.integers(1, 1 << 30), st.floats(1e6, 1e12)), min_size=1, max_size=8)
every_peaks = st.builds(
    Peaks, st.just("cpu"), st.just(1), rates.map(front), rates.map(front), st.floats(1e6, 1e12), st.floats(1e6, 1e12)
)
works = st.builds(Work, st.floats(0, 1e12), st.just(0.0), st.integers(0, 1 << 32), st.integers(0, 1 << 32))
seconds = st.floats(LEAST_EVIDENCE, 10.0)
itemsizes = st.sampled_from([2, 4, 8])


def test_rates_between_measurements() -> None:
    assert [SOME.bandwidth(n) for n in (0, 1, 1024, 2048, 4096, 10**9)] == [100e9, 100e9, 100e9, 75e9, 50e9, 50e9]
    assert SOME.reading_bandwidth(2048) == 140e9


def test_least_times() -> None:
    assert SOME.seconds(Work(flops=10e9, reads=2048, writes=2048)) == (1.0, 4096 / 50e9)
    assert SOME.seconds(Work(flops=10e9), 8) == (2.0, 0.0)
    assert SOME.seconds(Work(reads=4096)) == (0.0, 4096 / 80e9)  # a sum only reads
    assert SOME.seconds(Work(writes=4096)) == (0.0, 4096 / 50e9)
    assert SOME.seconds(Work(reads=3072, writes=1024)) == (0.0, 2048 / 50e9 + 2048 / 80e9)
    assert SOME.seconds(Work(transcendentals=1e9))[0] == pytest.approx(1.2)


@given(rates)
def test_rates_fall_with_the_size(points: list[tuple[int, float]]) -> None:
    found = front(points)
    sizes, values = zip(*found, strict=True)
    assert list(sizes) == sorted(set(sizes)) and list(values) == sorted(set(values), reverse=True)
    assert all(any(size <= s and rate <= r for s, r in found) for size, rate in points) and set(found) <= set(points)


@given(every_peaks, every_peaks, works, itemsizes)
def test_the_better_of_two_is_better_than_both(one: Peaks, other: Peaks, work: Work, itemsize: int) -> None:
    both = one.or_better(other)
    assert both == other.or_better(one)
    for size, rate in (*one.copies, *other.copies):
        assert both.bandwidth(size) >= rate
    assert both.float32_products == max(one.float32_products, other.float32_products)


@given(every_peaks, works, seconds, itemsizes)
def test_what_was_done_is_allowed_afterwards(peaks: Peaks, work: Work, seconds: float, itemsize: int) -> None:
    """No share of work that is certain is over 1, and not because it is cut off there."""
    evidence = Evidence(work, work, seconds, itemsize)
    raised = peaks.raised_to(evidence)
    assert raised.allow(evidence)
    if peaks.allow(evidence):
        assert raised == peaks
    else:
        assert max(raised.seconds(work, itemsize)) == pytest.approx(seconds)  # and not higher than it proves
    for name in ("copies", "reads"):  # what is larger is as before
        later = [point for point in getattr(peaks, name) if point[0] > work.bytes]
        assert [point for point in getattr(raised, name) if point[0] > work.bytes] == later


def test_what_is_not_certain_proves_nothing() -> None:
    gather = Evidence(Work(reads=1 << 40), Work(), 1e-3)
    assert SOME.raised_to(gather) == SOME and not SOME.allow(gather)
    short = Evidence(Work(flops=1e9), Work(flops=1e9), LEAST_EVIDENCE / 2)
    assert SOME.raised_to(short) == SOME and not SOME.allow(short)


def test_products_raise_the_peak_of_their_width() -> None:
    work = Work(flops=20e9, reads=12, writes=4)
    single, double = (SOME.raised_to(Evidence(work, work, 1.0, size)) for size in (4, 8))
    assert single.float32_products == pytest.approx(20e9) and single.float64_products == 5e9
    assert double.float64_products == pytest.approx(20e9) and double.float32_products == 10e9
    assert single.copies == SOME.copies and single.reads == SOME.reads
