"""Members that do not meet, groups, JAX's names; members are threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import distributed, errors
from rlx.distributed import threads
from rlx.distributed.meetings import MeetingRequest, work_as
from rlx.distributed.members import patience
from rlx.experimental import multihost_utils
from rlx.ir.collectives import members


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found at once is not found by waiting."""
    monkeypatch.setenv("RLX_COLLECTIVE_TIMEOUT", "600")


def failure(count: int, function: Any) -> str:
    with pytest.raises(errors.CollectiveError) as caught:
        threads.run(count, function)
    return str(caught.value)


# ------------------------------------------------------------------ members that do not meet
@pytest.mark.thorough
def test_a_silent_member_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    summed = rlx.jit(lambda x: distributed.all_reduce(x))
    found = threading.Event()

    def work() -> Any:
        summed(jnp.ones(3))  # compiles it, which may take its time
        monkeypatch.setenv("RLX_COLLECTIVE_TIMEOUT", "4")
        if rlx.process_index() == 1:
            assert found.wait(100)
        try:
            return summed(jnp.ones(3))
        finally:
            found.set()

    said = failure(2, work)
    assert "waited 4 s for rank 1 in the group 'world': all_reduce (sum) of float32[3]" in said
    assert "summed = rlx.jit(lambda x: distributed.all_reduce(x))" in said


def test_a_slow_member_is_waited_for() -> None:
    def work() -> Any:
        time.sleep(0.4 * rlx.process_index())
        return distributed.all_reduce(1)

    assert [int(x) for x in threads.run(2, work)] == [2, 2]


def test_what_one_member_raises_is_raised() -> None:
    def work() -> Any:
        if rlx.process_index() == 1:
            raise ValueError("mine")
        return distributed.all_reduce(1)

    with pytest.raises(ValueError, match="mine"):
        threads.run(3, work)


def test_a_member_that_has_returned_is_named() -> None:
    said = failure(2, lambda: rlx.process_index() or distributed.all_reduce(1))
    assert "Rank 0 waited for rank 1 in the group 'world', which has returned" in said


def test_different_shapes_kinds_and_orders() -> None:
    def shapes() -> Any:
        return distributed.all_reduce(jnp.ones(2 + rlx.process_index()))

    def kinds() -> Any:
        return (distributed.all_gather if rlx.process_index() else distributed.all_reduce)(jnp.ones(2))

    def orders() -> Any:
        first, second = (jnp.ones(2), jnp.ones(2, int))[:: 1 - 2 * rlx.process_index()]
        return distributed.all_reduce(first), distributed.all_reduce(second)

    def places() -> Any:
        multihost_utils.sync_global_devices("here" if rlx.process_index() else "there")

    def line(function: Any, after: int) -> str:
        return f" at {Path(__file__).name}:{function.__code__.co_firstlineno + after}"

    for function, after, one, other in (
        (shapes, 1, "all_reduce (sum) of float32[2]", "all_reduce (sum) of float32[3]"),
        (kinds, 1, "all_reduce (sum) of float32[2]", "all_gather of float32[2]"),
        (orders, 2, "all_reduce (sum) of float32[2]", "all_reduce (sum) of int32[2]"),
    ):
        where = line(function, after)
        assert f"in exchange 1: rank 0: {one}{where}; rank 1: {other}{where}." in failure(2, function)
    assert "rank 0: barrier 'there'; rank 1: barrier 'here'" in failure(2, places)


def test_different_programs_are_told_by_their_first_exchange() -> None:
    one = rlx.jit(lambda x: distributed.all_reduce(x))
    other = rlx.jit(lambda x: distributed.all_reduce(jnp.sin(x)))
    said = failure(2, lambda: (other if rlx.process_index() else one)(jnp.ones(2)))
    line = one.__wrapped__.__code__.co_firstlineno
    file, call = Path(__file__).name, line + 2
    assert f"rank 0: all_reduce (sum) of float32[2] at {file}:{line}, called at {file}:{call};" in said
    assert f"rank 1: all_reduce (sum) of float32[2] at {file}:{line + 1}, called at {file}:{call}." in said


def swapped_lines() -> Any:
    def first(x: Any) -> Any:
        return distributed.all_reduce(x)

    def second(x: Any) -> Any:
        return distributed.all_reduce(x)

    return [f(jnp.ones(2)) for f in (first, second)[:: 1 - 2 * rlx.process_index()]]


def swapped_functions() -> Any:
    double = rlx.jit(lambda x: distributed.all_reduce(x * 2.0))
    triple = rlx.jit(lambda x: distributed.all_reduce(x * 3.0))
    return [f(jnp.ones(2)) for f in (double, triple)[:: 1 - 2 * rlx.process_index()]]


def swapped_functions_of_one_line() -> Any:
    def times(factor: float) -> Any:
        return rlx.jit(lambda x: distributed.all_reduce(x * factor))

    double, triple = times(2.0), times(3.0)
    if rlx.process_index():
        return double(jnp.ones(2)), triple(jnp.ones(2))
    return triple(jnp.ones(2)), double(jnp.ones(2))


def swapped_names() -> Any:
    return [distributed.all_reduce(1.0, name=name) for name in sorted("ab", reverse=bool(rlx.process_index()))]


def swapped_names_in_jit() -> Any:
    def summed(x: Any, name: str) -> Any:
        return distributed.all_gather(x, name=name)

    compiled = rlx.jit(summed, static_argnums=1)
    return [compiled(1.0, name) for name in sorted("ab", reverse=bool(rlx.process_index()))]


def unequal_calls(first: Any, second: Any) -> Any:
    return lambda: (second if rlx.process_index() else first)()


CUBE, PAIR, ENDS = jnp.ones((2, 2, 2)), [jnp.ones((2, 3)), jnp.ones((3, 2))], [(0, 1)]
NUMBERED = {f"parameter {n}": jnp.ones(2) for n in range(40)}


# calls whose messages have the same bytes
UNEQUAL = {
    "mean": [partial(distributed.all_reduce, CUBE, op) for op in ("sum", "mean")],
    "mean of parts": [partial(distributed.reduce_scatter, CUBE, op) for op in ("mean", "sum")],
    "order": [partial(distributed.all_reduce, PAIR[::step]) for step in (1, -1)],
    "names": [partial(distributed.all_reduce, {name: CUBE}) for name in "ab"],
    "long": [partial(distributed.all_reduce, {**NUMBERED, name: CUBE}) for name in ("q", "r")],
    "names of parts": [partial(distributed.all_gather, {name: CUBE}) for name in "ab"],
    "names of copies": [partial(distributed.broadcast, {name: CUBE}) for name in "ab"],
    "names of messages": [partial(distributed.permute, {name: CUBE}, ENDS) for name in "ab"],
    "axis": [partial(distributed.all_gather, CUBE, axis=axis) for axis in (0, 1)],
    "tiled": [partial(distributed.all_gather, CUBE, tiled=tiled) for tiled in (False, True)],
    "axis of parts": [partial(distributed.reduce_scatter, CUBE, axis=axis) for axis in (2, 1)],
    "tiled parts": [partial(distributed.reduce_scatter, CUBE, tiled=tiled) for tiled in (False, True)],
    "split": [partial(distributed.all_to_all, CUBE, split_axis=axis) for axis in (0, 1)],
    "concat": [partial(distributed.all_to_all, CUBE, concat_axis=axis) for axis in (0, 1)],
    "tiled rows": [partial(distributed.all_to_all, CUBE, tiled=tiled) for tiled in (False, True)],
}


@pytest.mark.parametrize("how", ["plain", "jit", "named"])
@pytest.mark.parametrize("calls", UNEQUAL.values(), ids=UNEQUAL.keys())
def test_unequal_calls_with_equal_messages_are_found(calls: list[Any], how: str) -> None:
    if how == "named":
        calls = [partial(call, name="it") for call in calls]
    if how == "jit":
        calls = [rlx.jit(lambda call=call: call()) for call in calls]
    said = failure(2, unequal_calls(*calls))
    assert re.search(r"exchange 1: rank 0: .*; rank 1: ", said) and "programs that differ" not in said, said


def test_the_order_of_names_in_a_tree_does_not_count() -> None:
    def work() -> Any:
        names = "ba" if rlx.process_index() else "ab"
        found = distributed.all_reduce({name: float(ord(name)) for name in names})
        return found["a"].item(), found["b"].item()

    assert threads.run(2, work) == [(2.0 * ord("a"), 2.0 * ord("b"))] * 2


SWAPPED = [swapped_lines, swapped_functions, swapped_functions_of_one_line, swapped_names, swapped_names_in_jit]


@pytest.mark.parametrize("swapped", SWAPPED)
def test_swapped_exchanges_are_found(swapped: Any) -> None:
    said = failure(2, swapped)
    assert "do different things in exchange 1: rank 0: all_" in said
    if "names" in swapped.__name__:
        assert re.search("rank 0: all_[a-z]+( \\(sum\\))? 'a' of .*; rank 1: .* 'b' of ", said)


def test_a_name_is_compared_in_place_of_the_line() -> None:
    def work() -> Any:
        if rlx.process_index():
            return distributed.broadcast(0.0, name="settings")
        return rlx.jit(lambda x: distributed.broadcast(x + 1, name="settings"))(6.0)

    assert [float(x) for x in threads.run(2, work)] == [7.0, 7.0]


def in_threads(names: str, order: slice, named: bool = False) -> list[float]:
    """What threads of these names get, which exchange one after another, in each process in its own order."""
    known, found = members.value, {}

    def work(name: str) -> None:
        with members(known):
            try:
                found[name] = float(distributed.all_reduce(ord(name), name=name if named else ""))
            except errors.CollectiveError as error:
                found[name] = error

    for name in names[order]:
        thread = threading.Thread(target=work, args=(name,), name=name)
        thread.start()
        thread.join()
    for value in found.values():
        if isinstance(value, Exception):
            raise value
    return [found[name] for name in names]


def test_exchanges_of_other_threads_carry_their_names() -> None:
    assert threads.run(2, lambda: in_threads("ab", slice(None))) == [[194.0, 196.0]] * 2
    for named, said in ((False, "in the thread 'a'"), (True, "all_reduce (sum) 'a'")):
        swapped = failure(
            2, lambda named=named: in_threads("ab", slice(None, None, 1 - 2 * rlx.process_index()), named)
        )
        assert said in swapped, swapped


def test_threads_have_groups_of_their_own() -> None:
    def work() -> list[float]:
        groups = [distributed.new_group([0, 1]), distributed.new_group([1, 0])]
        known, found = members.value, [0.0, 0.0]

        def exchange(n: int) -> None:
            with members(known):
                for _ in range(20):
                    found[n] = float(distributed.all_reduce(float(n + 1), group=groups[n]))

        both = [threading.Thread(target=exchange, args=(n,), name=f"thread {n}") for n in (0, 1)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        return found

    assert threads.run(2, work) == [[2.0, 4.0]] * 2


def test_numbers_may_differ_from_process_to_process() -> None:
    def work() -> float:
        rank = rlx.process_index()
        return float(rlx.jit(lambda x: distributed.all_reduce(x * rank + np.full(3, rank)).sum())(jnp.ones(3)))

    assert threads.run(3, work) == [18.0] * 3  # the factors 0 and 1 are simplified away, 2 is not


def test_a_group_that_has_failed_stays_so() -> None:
    def work() -> str:
        with pytest.raises(errors.CollectiveError):
            distributed.all_reduce(jnp.ones(1 + rlx.process_index()))
        with pytest.raises(errors.CollectiveError) as caught:
            distributed.all_reduce(1)
        return str(caught.value)

    assert all("has failed before" in said for said in threads.run(2, work))


# ------------------------------------------------------------------ groups and places
class Gone:
    """A place of two members, of whom the other one is lost before what it has put is read."""

    def meet(self, request: MeetingRequest) -> tuple[list[Any], list[int]]:
        assert request.column is None
        return [request.value] * 2, []

    def put(self, piece: np.ndarray) -> np.ndarray:
        return piece

    def get(self, handle: np.ndarray) -> np.ndarray:
        raise errors.CollectiveError("A piece was lost: the object's owner has died", "See its node.")


def test_a_member_that_is_lost_before_its_piece_is_read_is_named() -> None:
    """And the group stays failed."""
    with pytest.raises(
        errors.CollectiveError, match=r"(?s)can no longer reach rank 1 in the group 'world': all_reduce.*owner has died"
    ) as caught:
        work_as(Gone(), 0, 2, lambda: distributed.all_reduce(np.ones(3, np.float32)), ())
    assert "test_members.py" in str(caught.value)


def test_groups() -> None:
    def work() -> Any:
        odd = distributed.new_group([3, 1])
        assert distributed.new_group([3, 1]) == odd
        if rlx.process_index() % 2:
            found = rlx.jit(lambda x: distributed.all_gather(x, group=odd))(rlx.process_index())
            assert distributed.process_count(odd) == 2
            return found.tolist(), distributed.process_index(odd)
        with pytest.raises(errors.ShardingError, match="belongs to no group"):
            distributed.all_reduce(1, group=odd)
        return None

    assert threads.run(4, work) == [None, ([3, 1], 1), None, ([3, 1], 0)]


def test_groups_of_different_ranks_are_refused() -> None:
    """In another order, and if processes create only their own group. The group of all stays usable."""

    def work(ranks: list[list[int]]) -> Any:
        with pytest.raises(errors.CollectiveError, match=r"the ranks of a new group: rank 0(, 1)?: \[0, 1\]; rank"):
            distributed.new_group(ranks[rlx.process_index()])
        return int(distributed.all_reduce(1))

    assert threads.run(2, work, [[0, 1], [1, 0]]) == [2] * 2
    assert threads.run(4, work, [[0, 1], [0, 1], [2, 3], [2, 3]]) == [4] * 4


FORKING = """
import os, threading
import rlx
from rlx import distributed, errors
from rlx.distributed import threads
from rlx.ir.collectives import WORLD, communicator

def hold(group, busy, done):
    with group.turn:
        busy.set()
        done.wait(100)

def work():
    busy, done = threading.Event(), threading.Event()
    other = threading.Thread(target=hold, args=(communicator(WORLD), busy, done))
    other.start()
    assert busy.wait(100)
    pid = os.fork()
    if pid == 0:
        said = ""
        try:
            distributed.all_reduce(1)
        except errors.CollectiveError as error:
            said = str(error)
        os._exit(0 if f"forked from rank {rlx.process_index()} of the group 'world'" in said else 1)
    code = os.waitpid(pid, 0)[1]
    done.set()
    other.join()
    return code, int(distributed.all_reduce(1))

assert threads.run(2, work) == [(0, 2)] * 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_not_a_member() -> None:
    """Also if another thread of the parent has the group's lock. The parent goes on. Other tests' libraries do not
    let this process fork.
    """
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLX_COLLECTIVE_TIMEOUT", raising=False)
    assert patience() == 30
    for text in ("never", "-1", "inf", "nan"):
        monkeypatch.setenv("RLX_COLLECTIVE_TIMEOUT", text)
        with pytest.raises(errors.OptionError):
            patience()


# ------------------------------------------------------------------ JAX's names
def test_names_of_jax() -> None:
    def work() -> Any:
        rank = rlx.process_index()
        assert (rlx.process_count(), rlx.process_indices()) == (2, [0, 1])
        assert [*rlx.local_devices(0), *rlx.local_devices(1)] == rlx.devices()
        with pytest.raises(errors.DeviceError):
            rlx.local_devices(2)
        multihost_utils.sync_global_devices("here")
        multihost_utils.assert_equal({"x": np.arange(3)})
        with pytest.raises(AssertionError, match=r"mine: Processes \[1\] have other values"):
            multihost_utils.assert_equal(rank, "mine:")
        with pytest.raises(errors.ShardingError, match="found 2 sources"):
            multihost_utils.broadcast_one_to_all(rank, is_source=True)
        x = np.float32([rank, 5])
        found = (
            multihost_utils.process_allgather({"x": x}),
            multihost_utils.process_allgather(x, tiled=True),
            multihost_utils.broadcast_one_to_all(x),
            multihost_utils.broadcast_one_to_all(x, is_source=rank == 1),
        )
        assert all(type(leaf) is np.ndarray for leaf in rlx.tree.leaves(found))
        return [leaf.tolist() for leaf in rlx.tree.leaves(found)]

    expected = [[[0, 5], [1, 5]], [0, 5, 1, 5], [0, 5], [1, 5]]
    assert threads.run(2, work) == [expected, expected]
