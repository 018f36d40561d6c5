"""Processes on several hosts, started by `rlx launch --hosts`: exchanges by TCP, and hosts that are lost."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlx
from tests.distributed import hosts
from tests.distributed.hosts import Host

HERE = Path(__file__).parent
TRAINING = HERE.parents[1] / "examples" / "data_parallel.py"

pytestmark = [
    pytest.mark.skipif("RLX_TEST_MPI" not in os.environ, reason="RLX_TEST_MPI is not set: see make test-mpi"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(hosts.missing() != "", reason=hosts.missing() or "there are hosts"),
]

# steps without an end, of which each takes two hundredths of a second or more
STEPS = """
import time, rlx, rlx.numpy as jnp
rlx.distributed.initialize()
step = rlx.jit(lambda x: rlx.distributed.all_reduce(x))
step(jnp.ones(100_000))
print("begun", flush=True)
while True:
    assert (step(jnp.ones(100_000)) == rlx.process_count()).all()
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    with hosts.network(tmp_path_factory.mktemp("hosts"), 3) as found:
        yield found


def launch(names: str, count: int, *program: object) -> tuple[object, ...]:
    return sys.executable, "-m", "rlx", "launch", "--hosts", names, "-n", count, *program


def test_hosts_have_nothing_in_common_but_files(three: list[Host]) -> None:
    for host in three:
        code, text = host.run("sh", "-c", "hostname; touch /dev/shm/$(hostname); ls /dev/shm; pgrep -c sshd")
        assert code == 0 and text.split() == [host.name, host.name, "1"]
        assert not Path("/dev/shm", host.name).exists()


def test_exchanges_of_which_some_go_by_a_slow_link(three: list[Host]) -> None:
    three[2].limit("50mbit")
    code, text = three[0].run(*launch("a,b,c", 3, HERE / "exchanging.py"))
    three[2].limit("10gbit")
    assert code == 0, text
    assert all(f"rank {rank} of 3: fine" in text for rank in range(3)), text


def test_training_on_two_hosts_is_training_on_one(three: list[Host]) -> None:
    code, text = three[0].run(*launch("a,b", 4, TRAINING))
    assert code == 0 and text.count("same bits everywhere: True") == 8, text  # in float64 and in float32


def test_jit_divides_training_among_hosts(three: list[Host]) -> None:
    code, text = three[0].run(*launch("a:1,c:1", 2, HERE / "partitioned.py"))
    assert code == 0 and text.count("from one process") == 2, text


def test_a_common_folder_has_the_shards_of_all_hosts(three: list[Host], tmp_path: Path) -> None:
    code, text = three[1].run(*launch("a,b,c", 3, HERE / "keeping.py", tmp_path / "rows.shards"))
    assert code == 0 and text.count("has its rows again") == 3, text
    like = {"rows": rlx.ShapeDtypeStruct((6, 10), "float64"), "step": np.int32(0)}
    found = rlx.load(tmp_path / "rows.shards", like)
    np.testing.assert_array_equal(found["rows"], np.arange(60.0).reshape(6, 10))
    assert found["step"] == 7


def test_steps_hold_and_send_what_is_planned(three: list[Host]) -> None:
    for host in three[:2]:
        host.limit("1gbit")
    code, text = three[0].run(*launch("a,b", 2, HERE / "planned.py", "data", "tensor"))
    for host in three[:2]:
        host.limit("10gbit")
    found = re.findall(r"holds (\d+) of (\d+) bytes, sends (\d+) of (\d+), takes (\S+) of (\S+) ms", text)
    assert code == 0 and len(found) == 4, text
    for held, to_hold, sent, to_send, taken, to_take in (map(float, numbers) for numbers in found):
        assert held == to_hold and to_send < sent < 1.1 * to_send, text  # with what TCP puts before the bytes
        assert 0.1 < taken / to_take < 10, text


def test_a_member_that_is_killed_on_another_host_is_named(three: list[Host]) -> None:
    begun = time.monotonic()
    code, text = three[0].run(*launch("a,b,c", 3, HERE / "failing.py", "killed"))
    assert code != 0 and "went on" not in text and time.monotonic() - begun < 30
    assert "rank 1 on b was ended by SIGKILL" in text, text
    assert "rank 1 in the group 'world'" in text and "all_reduce (sum) of float32[3] at failing.py:14" in text, text


@pytest.mark.parametrize("lost", [0, 1])  # the host of mpiexec, and another one
def test_a_cable_that_is_pulled_is_an_error(three: list[Host], tmp_path: Path, lost: int) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    wait = {"RLX_COLLECTIVE_TIMEOUT": "3"}
    started = three[0].start(*launch("a,b,c", 3, tmp_path / "steps.py"), variables=wait)
    assert started.stdout is not None
    text = ""
    while text.count("begun") < 3:  # lines may be one
        line = started.stdout.readline()
        assert line, text
        text += line
    time.sleep(0.2)
    three[lost].link("down")
    begun = time.monotonic()
    try:
        code = started.wait(30)
        others = "ranks 1, 2" if lost == 0 else "rank 1"
        end = f"Rank 0 waited 3 s for {others} in the group 'world': all_reduce (sum) of float32[100000] at steps.py:4."
        said = next(line for line in started.stdout if "CollectiveError" in line and "Rank 0" in line)
        assert code != 0 and end in said
        for host in three:  # nobody is left that waits
            while host.run("pgrep", "-f", "steps.py")[0] == 0:
                assert time.monotonic() - begun < 30
                time.sleep(0.2)
    finally:
        three[lost].link("up")
        started.stdout.close()
