"""Processes that Ray and Dask start: exchanges, training, and ranks that do something else."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx import errors
from rlx.distributed.meetings import Meeting, MeetingMember, MeetingRequest, first_cause
from tests.distributed import hosts
from tests.distributed.hosts import Host

PROGRAM = Path(__file__).parent / "on_clusters.py"
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}  # one for all nodes, whatever lies in ~/.ray


@pytest.mark.skipif("RLX_TEST_CLUSTERS" not in os.environ, reason="see make test-clusters")
@pytest.mark.parametrize("package", ["ray", "distributed"])
def test_ranks_are_started(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    options: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, PROGRAM, package], env=os.environ | {"RLX_NUM_THREADS": "1"}, **options)
    assert done.returncode == 0 and "\nfine\n" in done.stdout, done.stdout


def start_ray(nodes: list[Host]) -> str:
    """A node of Ray on each host; the address of the first one."""
    command, options = Path(sys.executable).with_name("ray"), ("--num-cpus=1", "--disable-usage-stats")
    first = ("--head", "--port=6379", "--include-dashboard=false", "--temp-dir=/run/ray")
    for node in nodes:
        joining = first if node is nodes[0] else (f"--address={nodes[0].address}:6379",)
        words = (command, "start", *joining, f"--node-ip-address={node.address}", *options)
        code, text = node.run(*words, variables=TOKEN)
        assert code == 0, text
    return f"{nodes[0].address}:6379"


def start_dask(nodes: list[Host]) -> str:
    """A worker on each host, and the scheduler on the first one; its address."""
    command, address = Path(sys.executable).with_name("dask"), f"{nodes[0].address}:8786"
    nodes[0].serve(command, "scheduler", "--host", nodes[0].address, "--port", 8786, "--no-dashboard")
    for node in nodes:
        own = ("--host", node.address, "--nthreads", 1, "--no-dashboard", "--local-directory", "/run/dask")
        node.serve(command, "worker", f"tcp://{address}", *own)
    return address


@pytest.mark.skipif("RLX_TEST_CLUSTERS" not in os.environ, reason="see make test-clusters")
@pytest.mark.skipif(hosts.missing() != "", reason=hosts.missing() or "there are hosts")
@pytest.mark.parametrize(("package", "start"), [("ray", start_ray), ("distributed", start_dask)])
def test_ranks_are_on_two_hosts(package: str, start: Callable[[list[Host]], str], tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with hosts.network(tmp_path, 2) as nodes:
        code, text = nodes[0].run(sys.executable, PROGRAM, package, start(nodes), seconds=200, variables=TOKEN)
    assert code == 0 and "fine\n" in text, text


def test_who_does_not_come_to_a_meeting_is_named() -> None:
    async def meet() -> Any:
        meeting = Meeting()
        first = MeetingRequest(("world", 1), 0, 3, "a", None, 0.1)
        return await asyncio.gather(meeting.meet(first), meeting.meet(first._replace(rank=2, value="c")))

    assert asyncio.run(meet()) == [([], [1]), ([], [1])]


def test_members_get_what_is_addressed_to_them() -> None:
    async def meet() -> Any:
        meeting = Meeting()
        values = ["ab", "cd"]
        come = [MeetingRequest(("world", 1), rank, 2, value, rank, 5.0) for rank, value in enumerate(values)]
        return await asyncio.gather(*map(meeting.meet, come)), vars(meeting)

    found, left = asyncio.run(meet())
    assert found == [(["a", "c"], []), (["b", "d"], [])]
    assert not any(left.values())  # nothing is kept


def test_a_lost_meeting_is_an_error_of_the_group() -> None:
    class Nowhere:
        def meet(self, request: MeetingRequest) -> tuple[list[Any], list[int]]:
            raise errors.CollectiveError("The actor is gone.")

        def put(self, piece: np.ndarray) -> Any:
            return piece

        def get(self, handle: Any) -> np.ndarray:
            return handle

    member = MeetingMember(Nowhere(), "world", 0, 2)
    for said in ("The actor is gone", "has failed before"):
        with pytest.raises(errors.CollectiveError, match=said):
            member.barrier()


def test_the_cause_comes_before_those_who_waited() -> None:
    waited, cause = errors.CollectiveError("Rank 0 waited."), ValueError("mine")
    assert first_cause([None, waited, cause]) is cause
    assert first_cause([waited, None]) is waited
    assert first_cause([None, None]) is None
