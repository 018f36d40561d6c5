"""Placing blocks in an arena: nothing live overlaps, the bound is honest, and large plans are quick."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx.planning.arena import MemoryBlock, Placement, most_live, place, place_by_size, place_by_time

PLANNERS = (place, place_by_time, place_by_size)


@st.composite
def blocks(draw: st.DrawFn) -> list[MemoryBlock]:
    spans = draw(
        st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(0, 12)), min_size=0, max_size=40)
    )
    return [MemoryBlock(64 * size, first, first + length, []) for size, first, length in spans]


def check(found: Sequence[MemoryBlock], placement: Placement) -> None:
    assert len(placement.offsets) == len(found)
    for number, (one, offset) in enumerate(zip(found, placement.offsets, strict=True)):
        assert offset >= 0 and offset % 64 == 0 and offset + one.size <= placement.size
        for other, start in list(zip(found, placement.offsets, strict=True))[:number]:
            live = one.first <= other.last and other.first <= one.last
            assert not (live and offset < start + other.size and start < offset + one.size)


@settings(max_examples=150, deadline=None)
@given(found=blocks())
def test_live_blocks_never_share_bytes(found: list[MemoryBlock]) -> None:
    bound = most_live(found).size
    for planner in PLANNERS:
        placement = planner(found)
        check(found, placement)
        assert placement.size >= bound
    assert place(found).size == min(planner(found).size for planner in PLANNERS)


def test_the_bound_is_what_is_live_at_once() -> None:
    found = [MemoryBlock(64, 0, 3, []), MemoryBlock(128, 2, 5, []), MemoryBlock(256, 4, 4, [])]
    assert most_live(found) == (384, 4)
    assert most_live([]) == (0, 0) and place([]) == Placement([], 0)
    assert place(found).size == 384


def test_large_blocks_first_helps_where_order_of_time_does_not() -> None:
    """A small block in the middle of the arena would keep a large one from its place."""
    found = [
        MemoryBlock(128, 0, 1, []),
        MemoryBlock(64, 1, 9, []),
        MemoryBlock(128, 0, 0, []),
        MemoryBlock(256, 2, 9, []),
    ]
    assert place_by_time(found).size > most_live(found).size == place_by_size(found).size == place(found).size


def mixed_lifetimes(count: int) -> list[MemoryBlock]:
    numbers = random.Random(0)
    found = []
    for _ in range(count):
        first = numbers.randrange(count)
        last = first + int(numbers.expovariate(1 / 40))
        found.append(MemoryBlock(64 * numbers.choice([1, 1, 2, 5, 16, 100, 1000]), first, last, []))
    return found


def long_lifetimes(count: int) -> list[MemoryBlock]:
    numbers = random.Random(1)
    starts = [numbers.randrange(count) for _ in range(count)]
    return [MemoryBlock(64 * numbers.randrange(1, 300), s, numbers.randrange(s, count), []) for s in starts]


@pytest.mark.parametrize("make", [mixed_lifetimes, long_lifetimes])
@pytest.mark.selected(1)
def test_ten_thousand_blocks(make: Callable[[int], list[MemoryBlock]]) -> None:
    found = make(10_000)
    start = time.process_time()
    placement = place(found)
    assert time.process_time() - start < 5  # about half a second
    assert most_live(found).size <= placement.size < 1.1 * most_live(found).size


def test_time_does_not_grow_with_the_cube() -> None:
    def seconds(count: int) -> float:
        found = mixed_lifetimes(count)
        times = []
        for _ in range(3):
            start = time.process_time()
            place_by_time(found)
            place_by_size(found)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(8000) < 100 * seconds(1000)  # about 10; the cube would be 512
