"""Members that do not meet, places that the environment tells, groups, JAX's names; members are threads."""

from __future__ import annotations

import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import distributed, errors
from rlx.cli import main, one_rank
from rlx.cli.doctor import SETTINGS
from rlx.cli.launch import shares
from rlx.cli.mistakes import Mistake
from rlx.distributed import message_passing, threads
from rlx.distributed.environment import find_place
from rlx.distributed.meetings import Request, work_as
from rlx.distributed.members import patience
from rlx.experimental import multihost_utils


def failure(count: int, function: Any) -> str:
    begun = time.monotonic()
    with pytest.raises(errors.CollectiveError) as caught:
        threads.run(count, function)
    assert time.monotonic() - begun < 20
    return str(caught.value)


# ------------------------------------------------------------------ members that do not meet
def test_a_silent_member_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    summed = rlx.jit(lambda x: distributed.all_reduce(x))

    def work() -> Any:
        summed(jnp.ones(3))  # compiles it, which may take its time
        monkeypatch.setenv("RLX_COLLECTIVE_TIMEOUT", "2")
        if rlx.process_index() == 1:
            time.sleep(3)
        return summed(jnp.ones(3))

    said = failure(3, work)
    assert "waited 2 s for rank 1 in the group 'world': all_reduce (sum) of float32[3]" in said
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

    assert "rank 0: all_reduce (sum) of float32[2]; rank 1: all_reduce (sum) of float32[3]" in failure(2, shapes)
    assert "rank 0: all_reduce (sum) of float32[2]; rank 1: all_gather of float32[2]" in failure(2, kinds)
    assert "rank 0: all_reduce (sum) of float32[2]; rank 1: all_reduce (sum) of int32[2]" in failure(2, orders)
    assert "rank 0: barrier 'there'; rank 1: barrier 'here'" in failure(2, places)


def test_different_programs_are_told_by_their_first_exchange() -> None:
    one = rlx.jit(lambda x: distributed.all_reduce(x))
    other = rlx.jit(lambda x: distributed.all_reduce(jnp.sin(x)))
    said = failure(2, lambda: (other if rlx.process_index() else one)(jnp.ones(2)))
    line = one.__wrapped__.__code__.co_firstlineno
    assert f"rank 0: all_reduce (sum) of float32[2] at {Path(__file__).name}:{line};" in said
    assert f"rank 1: all_reduce (sum) of float32[2] at {Path(__file__).name}:{line + 1}." in said


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

    def meet(self, request: Request) -> tuple[list[Any], list[int]]:
        assert request.column is None
        return [request.value] * 2, []

    def put(self, piece: np.ndarray) -> np.ndarray:
        return piece

    def get(self, handle: np.ndarray) -> np.ndarray:
        raise errors.CollectiveError("A piece is gone: the object's owner has died", "Look what happened to its node.")


def test_a_member_that_is_lost_before_its_piece_is_read_is_named() -> None:
    """And the group stays failed."""
    with pytest.raises(
        errors.CollectiveError, match=r"(?s)reaches rank 1 in the group 'world' no more: all_reduce.*owner has died"
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


def test_places() -> None:
    assert find_place({}) is None
    for variables in (
        {"PMI_RANK": "1", "PMI_SIZE": "3"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"},
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"},
        {"RANK": "1", "WORLD_SIZE": "3"},
        {"MLX_RANK": "1", "MLX_WORLD_SIZE": "3"},
        {"MLX_RANK": "1", "MLX_HOSTFILE": '[["127.0.0.1:1"], ["127.0.0.1:2"], ["127.0.0.1:3"]]'},
    ):
        place = find_place(variables)
        assert place is not None and place[:2] == (1, 3)
    assert find_place({"RANK": "1"}) is None
    with pytest.raises(errors.ShardingError, match="MLX_WORLD_SIZE='hosts'"):
        find_place({"MLX_RANK": "1", "MLX_HOSTFILE": "hosts"})
    for rank in ("3", "-1", "one"):
        with pytest.raises(errors.ShardingError):
            find_place({"RANK": rank, "WORLD_SIZE": "3"})


def test_messages_between_hosts_go_by_libfabric(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"mpich": "5.0.2"}
    monkeypatch.setattr(message_passing.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(message_passing.metadata, "PackageNotFoundError", KeyError)
    name, there = "MPIR_CVAR_CH4_NETMOD", {"PMI_SIZE": "3", "MPI_LOCALNRANKS": "2"}
    assert message_passing._provider(there) == {name: "ofi"} == message_passing._provider({"SLURM_STEP_NUM_NODES": "2"})
    assert message_passing._provider({**there, name: "ucx"}) == {name: "ucx"}
    for here in ({"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, {"SLURM_STEP_NUM_NODES": "1"}):
        assert message_passing._provider(here) == {}
    versions.clear()  # another MPI library
    assert message_passing._provider(there) == {}


def test_initialize_says_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in (("PMI_RANK", "PMI_SIZE"), ("RANK", "WORLD_SIZE")):
        for name in names:
            monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.UnsupportedError, match="rlx launch"):
        distributed.initialize(num_processes=2)
    distributed.initialize(process_id=0)
    with pytest.raises(errors.ShardingError, match="before"):
        distributed.initialize()
    distributed.shutdown()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(errors.ShardingError, match="process_id=0, but torchrun says 1"):
        distributed.initialize(process_id=0)
    assert not distributed.is_initialized() and rlx.process_count() == 1


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


# ------------------------------------------------------------------ rlx launch
def test_mistakes_of_launching(capsys: Any) -> None:
    for words in (["launch", "prog.py"], ["launch", "-n", "0", __file__], ["launch", "-n", "2", "no_such_file.py"]):
        assert main(words) == 2
        assert "rlx" in capsys.readouterr().err


def test_hosts_share_processes() -> None:
    assert shares("a", 3) == "a:3" and shares("a, b.c", 4) == "a:2,b.c:2" and shares("a,b,c", 5) == "a:2,b:2,c:1"
    assert shares("a:1,b:3", 4) == "a:1,b:3"
    for hosts, said in (("a,b,c", "with none"), ("a:1,b", "list of hosts"), ("a:2,b:1", "is for 3"), ("a,", "list of")):
        with pytest.raises(Mistake, match=said):
            shares(hosts, 2)


def test_ranks_of_a_machine_share_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_rank.os, "sched_getaffinity", lambda process: range(8), raising=False)
    for given, threads_of_each in (({}, "8"), ({"MPI_LOCALNRANKS": "3"}, "2"), ({"MPI_LOCALNRANKS": "16"}, "1")):
        found = one_rank.threads_each({**given, "OMP_NUM_THREADS": "5"})
        assert (found["RLX_NUM_THREADS"], found["OMP_NUM_THREADS"]) == (threads_of_each, "5")


def test_a_rank_that_is_killed_is_named(capsys: Any) -> None:
    code = one_rank.main([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], 0.1)
    assert code == 137 and f" on {platform.node()} was ended by SIGKILL" in capsys.readouterr().err


def test_a_rank_that_the_launcher_ends_keeps_nobody_waiting() -> None:
    program = "import time; print(1, flush=True); time.sleep(60)"
    words = [sys.executable, one_rank.__file__, "60", sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as outliving:
        assert outliving.stdout is not None and outliving.stdout.readline() == "1\n"
        outliving.send_signal(signal.SIGTERM)
        assert outliving.wait(20) == 143


# ------------------------------------------------------------------ what the documents say
def test_the_script_for_slurm_runs_by_variables_that_are_known() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "distributed.md").read_text()
    script = text.split("#!/bin/bash", 1)[1].split("```", 1)[0]
    options = dict(re.findall(r"#SBATCH --([a-z-]+)=(\S+)", script))
    size = int(options["nodes"]) * int(options["ntasks-per-node"])
    rank, count = re.findall(r"SLURM_(?:PROCID|STEP_NUM_TASKS)", script)
    assert find_place({rank: str(size - 1), count: str(size)}) == (size - 1, size, "SLURM")
    exported = re.findall(r"export (\w+)=", script)
    assert exported == ["RLX_NUM_THREADS"] and exported[0] in SETTINGS and exported[0] in one_rank.threads_each({})
