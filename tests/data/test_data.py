"""Batches are a partition of the rows, prefetch changes nothing but time, metrics count what NumPy counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import rlx
from rlx.data import accuracy, batches, confusion_matrix, prefetch


def test_batches_hold_each_row_once() -> None:
    rows = {"x": np.arange(22.0).reshape(11, 2), "y": [np.arange(11)]}
    found = list(batches(rows, 4, seed=3, drop_last=False))
    assert [len(b["x"]) for b in found] == [4, 4, 3]
    labels = np.concatenate([b["y"][0] for b in found])
    assert sorted(labels) == list(range(11)) and list(labels) != list(range(11))
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in found])[:, 0], 2.0 * labels)


def test_the_rows_that_fill_no_batch_are_left_out() -> None:
    assert [b.tolist() for b in batches(np.arange(5), 2)] == [[0, 1], [2, 3]]
    with pytest.warns(UserWarning, match="batches has no batch: 3 rows for batches of 4"):
        assert list(batches(np.arange(3), 4)) == []
    assert [len(b) for b in batches(np.arange(4), 2)] == [2, 2]


def test_orders_follow_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return np.concatenate(list(batches(np.arange(64), 8, seed=seed, epoch=epoch))).tolist()

    assert order(0, 1) == order(0, 1)
    assert len({tuple(order(s, e)) for s in (0, 1) for e in (0, 1)}) == 4


def test_batches_of_rlx_arrays_go_into_jit() -> None:
    total = sum(float(rlx.jit(lambda b: b.sum())(b)) for b in batches(rlx.numpy.arange(6.0), 3, seed=0))
    assert total == 15.0


@pytest.mark.parametrize(
    ("arrays", "size", "error"),
    [
        (np.ones(3), 0, rlx.errors.OptionError),
        (1.0, 1, rlx.errors.InputTypeError),
        ({}, 1, rlx.errors.InputTypeError),
        ((np.ones(3), np.ones(4)), 1, rlx.errors.ShapeError),
    ],
)
def test_batches_refuse_at_once(arrays: object, size: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        batches(arrays, size)


def test_prefetch_keeps_order_and_reads_ahead() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(6):
            made.append(number)
            yield number

    found = prefetch(items(), ahead=2)
    assert next(found) == 0
    deadline = time.monotonic() + 100
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    # two wait, and one is in the thread's hands
    assert made == [0, 1, 2, 3]
    assert list(found) == [1, 2, 3, 4, 5]


def test_prefetch_hands_on_what_is_raised() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    found = prefetch(items())
    assert next(found) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)


def test_a_prefetch_that_is_left_ends_its_thread() -> None:
    before = threading.active_count()
    found = prefetch(iter(int, 1))
    next(found)
    assert threading.active_count() == before + 1
    found.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    with pytest.raises(rlx.errors.OptionError):
        prefetch([1], ahead=0)


def test_metrics_count_as_numpy() -> None:
    generator = np.random.default_rng(0)
    scores, labels = generator.normal(size=(50, 4)), generator.integers(0, 4, 50)
    guesses = scores.argmax(axis=1)
    assert float(rlx.jit(accuracy)(scores, labels)) == pytest.approx((guesses == labels).mean())
    expected = np.zeros((4, 4), int)
    np.add.at(expected, (labels, guesses), 1)
    found = rlx.jit(confusion_matrix, static_argnums=2)(guesses, labels, 4)
    np.testing.assert_array_equal(found, expected)
    assert float(accuracy(scores, labels)) == pytest.approx(np.trace(found) / 50)


def test_what_is_no_class_is_not_counted() -> None:
    assert confusion_matrix([0, -1, 2, 1], [0, 0, 1, 5], 2).tolist() == [[1, 0], [0, 0]]
    with pytest.raises(rlx.errors.ShapeError):
        confusion_matrix([0], [0, 1], 2)
    with pytest.raises(rlx.errors.ShapeError):
        accuracy(np.ones((3, 2)), np.ones(2, int))
