"""Pooled memory: what is in use is never given out again, what is free is."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable

import numpy as np
import pytest

import rlx
from rlx.storage import Blocks, Storage, allocate, clear_pool, pool_bytes, queue_for, take

FLOAT = np.dtype("f4")


def pointers(storages: Iterable[Storage]) -> set[int]:
    return {s.pointer for s in storages}


@pytest.mark.parametrize("get", [allocate, lambda nbytes: take(queue_for(nbytes))])
def test_memory_comes_back_when_nothing_refers_to_it(get):
    storage = get(100_003)
    address = storage.pointer
    assert address % 64 == 0
    assert get(100_003).pointer != address
    view = storage.view((5,), FLOAT)
    del storage
    assert all(get(100_003).pointer != address for _ in range(20))
    del view
    assert address in pointers([get(100_003) for _ in range(8)])


def test_clear_pool_keeps_what_is_in_use():
    storage = allocate(70_001)
    view = storage.view((4,), FLOAT)
    view[:] = 3
    clear_pool()
    assert pool_bytes() == 0
    allocate(70_001).view((4,), FLOAT)[:] = 5
    assert (view == 3).all()


def test_blocks_hold_every_size_apart():
    storages = Blocks([16, 4, 0, 256, 65]).take()
    starts = [s.pointer for s in storages]
    assert all(start % 64 == 0 for start in starts)
    assert np.diff(starts).tolist() == [64, 64, 64, 256]
    for number, storage in enumerate(storages):
        storage.view((1,), FLOAT)[:] = number
    assert [float(s.view((1,), FLOAT)[0]) for s in storages] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("hold", ["storage", "view"])
@pytest.mark.selected(1)
def test_a_block_is_reused_only_when_all_of_it_is_free(hold):
    blocks = Blocks([16, 16, 16])
    first = blocks.take()
    used = pointers(first)
    held = first[1] if hold == "storage" else first[1].view((4,), FLOAT)
    del first
    for _ in range(10):
        assert not used & pointers(blocks.take())
    del held
    gc.collect()
    again = [blocks.take() for _ in range(4)]
    assert used in map(pointers, again)


def test_blocks_forget_what_users_keep():
    blocks = Blocks([16, 16])
    kept = [blocks.take() for _ in range(50)]
    assert len(set.union(*map(pointers, kept))) == 100
    assert len(blocks._blocks) <= 4


def test_small_results_of_threads_do_not_mix():
    step = rlx.jit(lambda t: {k: v + 1 for k, v in t.items()})
    start = {f"k{n}": rlx.numpy.full(4, n, dtype="f4") for n in range(12)}
    step(start)
    kept: list[list[tuple[int, rlx.Array, np.ndarray]]] = [[] for _ in range(4)]

    def loop(found: list[tuple[int, rlx.Array, np.ndarray]]) -> None:
        tree = start
        for count in range(1, 200):
            tree = step(tree)
            if count % 7 == 0:
                found.append((count, tree["k3"], np.asarray(tree["k11"])))

    threads = [threading.Thread(target=loop, args=(found,)) for found in kept]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in kept:
        assert len(found) == 28
        for count, array, view in found:
            assert (np.asarray(array) == 3 + count).all()
            assert (view == 11 + count).all()


def test_small_and_large_results_together():
    f = rlx.jit(lambda x: (x.sum(), x + 1, x.max(), x * 2))
    x = rlx.numpy.arange(1000, dtype="f4")
    for _ in range(3):
        total, plus, largest, double = f(x)
        assert float(total) == 499500 and float(largest) == 999
        assert float(plus[5]) == 6 and float(double[5]) == 10


def test_many_small_results_take_several_blocks():
    f = rlx.jit(lambda x: [x[:n] + n for n in range(1, 65)] * 2)
    x = rlx.numpy.arange(64, dtype="f4")
    for _ in range(3):
        for n, row in enumerate(f(x), 1):
            width = (n - 1) % 64 + 1
            assert np.array_equal(row, np.arange(width, dtype="f4") + width)
