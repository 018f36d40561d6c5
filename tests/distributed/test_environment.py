"""The place of a process, by the variables of each launcher, and of each pair of launchers."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

from rlx import distributed, errors
from rlx.cli import one_rank
from rlx.distributed import message_passing, processes
from rlx.distributed.environment import LAUNCHERS, Launcher, find_place
from rlx.ir.collectives import Alone
from rlx.settings import SETTINGS

NAMES = {name for row in LAUNCHERS for name in (row.rank, row.size, *row.beside) if name}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def variables(row: Launcher, rank: int, size: int) -> dict[str, str]:
    """What a launcher sets."""
    found = {row.rank: str(rank), **({row.size: str(size)} if row.size else {})}
    return found | dict.fromkeys(row.beside, "1")


@pytest.mark.parametrize("row", LAUNCHERS, ids=lambda row: "-".join([row.source, *row.beside]))
def test_each_launcher(row: Launcher) -> None:
    assert find_place(variables(row, 1, 3), size=3) == (1, 3, row.source)
    assert find_place({row.rank: "1"} if row.size else {}) is None
    for rank in ("3", "-1", "one", ""):
        if rank != "3" or row.size:
            with pytest.raises(errors.ShardingError, match=row.rank):
                find_place(variables(row, 1, 3) | {row.rank: rank})


PAIRS = [(inner, outer) for inner, outer in itertools.permutations(LAUNCHERS, 2) if inner.rank != outer.rank]


@pytest.mark.selected(10_000)
@pytest.mark.parametrize(("inner", "outer"), PAIRS, ids=lambda row: "-".join([row.source, *row.beside]))
def test_each_pair(inner: Launcher, outer: Launcher) -> None:
    """The innermost counts; those that say the same are one; others are refused with the names of both."""
    assert find_place(variables(inner, 1, 3) | variables(outer, 1, 3), size=3)[:2] == (1, 3)  # ty: ignore
    if inner.depth < outer.depth:
        return
    nested = variables(inner, 3, 4) | variables(outer, 1, 2)
    if inner.depth > outer.depth > 0:
        assert find_place(nested, size=4) == (3, 4, inner.source)
        refused = variables(inner, 0, 1) | variables(outer, 1, 2)  # would be alone, twice
        if not (inner.size and outer.size):
            return
    else:
        refused = nested
    with pytest.raises(errors.ShardingError) as caught:
        find_place(refused, size=4)
    for word in (inner.source, outer.source, f"{inner.rank}=", f"{outer.rank}="):
        assert word in str(caught.value)


def test_what_srun_and_torchrun_give_together() -> None:
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "1"}
    torch = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    assert find_place(slurm | torch) == (1, 2, "torchrun")
    assert find_place(slurm | torch | {"TORCHELASTIC_RUN_ID": "none"}) == (1, 2, "torchrun")
    exported = {"RANK": "1", "WORLD_SIZE": "2"}
    with pytest.raises(errors.ShardingError, match=r"SLURM says .*torchrun says .*RANK=1, WORLD_SIZE=2"):
        find_place(slurm | {"SLURM_STEP_NUM_TASKS": "2"} | exported)
    # srun starts the proxies of mpiexec, one on each node
    assert find_place(slurm | {"PMI_RANK": "3", "PMI_SIZE": "4"}) == (3, 4, "MPICH")


def test_a_rank_without_a_size() -> None:
    assert find_place({}) is None and find_place({"RANK": "1"}) is None
    with pytest.raises(errors.ShardingError, match=r"PMIX_RANK=1.*how many processes there are"):
        find_place({"PMIX_RANK": "1"})
    assert find_place({"PMIX_RANK": "1"}, size=3) == (1, 3, "PMIx")
    assert find_place({"PMIX_RANK": "1", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"}) == (1, 3, "PMIx")
    both = {"PMIX_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}
    assert find_place(both) == (1, 3, "Open MPI")


def test_hosts_of_mlx() -> None:
    hosts = '[["127.0.0.1:1"], ["127.0.0.1:2"], ["127.0.0.1:3"]]'
    assert find_place({"MLX_RANK": "1", "MLX_HOSTFILE": hosts}) == (1, 3, "MLX")
    with pytest.raises(errors.ShardingError, match="MLX_WORLD_SIZE=hosts"):
        find_place({"MLX_RANK": "1", "MLX_HOSTFILE": "hosts"})


def test_initialize_says_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert not distributed.is_initialized()


def test_a_process_that_a_member_has_started_does_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has inherited the rank. A launcher that a member starts is another job."""
    for name, value in variables(LAUNCHERS[0], 1, 2).items():
        monkeypatch.setenv(name, value)
    reached = []
    monkeypatch.setattr(processes, "_world", lambda place: reached.append(place) or Alone())
    monkeypatch.setenv(processes._MEMBER, str(os.getppid()))
    with pytest.raises(errors.ShardingError, match=r"(?s)started by the process of rank 1 of 2.*__main__"):
        distributed.initialize()
    assert not reached and not distributed.is_initialized()
    for other in (os.getpid(), 0):
        monkeypatch.setenv(processes._MEMBER, str(other))
        with pytest.raises(errors.UnsupportedError):  # the group has another size
            distributed.initialize()
    assert len(reached) == 2


def test_how_messages_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one host through memory alone, between hosts by libfabric, and as the user says."""
    versions = {"mpich": "5.0.2"}
    monkeypatch.setattr(message_passing.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(message_passing.metadata, "PackageNotFoundError", KeyError)
    name, there = "MPIR_CVAR_CH4_NETMOD", {"PMI_SIZE": "3", "MPI_LOCALNRANKS": "2"}
    assert message_passing._provider(there) == {name: "ofi"} == message_passing._provider({"SLURM_STEP_NUM_NODES": "2"})
    assert message_passing._provider({**there, name: "ucx"}) == {name: "ucx"}
    for here in ({"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, {"SLURM_STEP_NUM_NODES": "1"}):
        assert message_passing._provider(here) == {name: "ucx", "UCX_TLS": "self,sm"}
        assert message_passing._provider({**here, "UCX_TLS": "all"})["UCX_TLS"] == "all"
    versions.clear()  # another MPI library
    assert message_passing._provider(there) == {}


def test_the_script_for_slurm_runs_by_variables_that_are_known() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "distributed.md").read_text()
    script = text.split("#!/bin/bash", 1)[1].split("```", 1)[0]
    options = dict(re.findall(r"#SBATCH --([a-z-]+)=(\S+)", script))
    size = int(options["nodes"]) * int(options["ntasks-per-node"])
    rank, count = re.findall(r"SLURM_(?:PROCID|STEP_NUM_TASKS)", script)
    assert find_place({rank: str(size - 1), count: str(size)}) == (size - 1, size, "SLURM")
    exported = re.findall(r"export (\w+)=", script)
    assert exported == ["RLX_NUM_THREADS"] and exported[0] in SETTINGS and exported[0] in one_rank.threads_each({})
