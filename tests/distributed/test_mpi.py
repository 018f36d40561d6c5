"""Processes under MPI, started by `rlx launch`: exchanges, training, and members that do not come."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx import owners
from rlx.cli import leftovers

HERE = Path(__file__).parent
TRAINING = HERE.parents[1] / "examples" / "data_parallel.py"

pytestmark = [
    pytest.mark.skipif("RLX_TEST_MPI" not in os.environ, reason="RLX_TEST_MPI is not set: see make test-mpi"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
]


LAUNCH = [sys.executable, "-m", "rlx", "launch", "-n"]
BOTH: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def launched(count: int, program: Path, *arguments: str, timeout: str = "600") -> tuple[int, str]:
    """The exit code, and what was printed. timeout: of exchanges; what tests find is found before it, at once."""
    variables = os.environ | {"RLX_COLLECTIVE_TIMEOUT": timeout}
    done = subprocess.run([*LAUNCH, str(count), str(program), *arguments], timeout=300, env=variables, **BOTH)
    return done.returncode, done.stdout


@pytest.mark.parametrize("count", [2, 3])
def test_exchanges(count: int) -> None:
    code, text = launched(count, HERE / "exchanging.py")
    assert code == 0, text
    assert all(f"rank {rank} of {count}: fine" in text for rank in range(count))


def test_training_on_several_processes_is_training_on_one() -> None:
    code, text = launched(2, TRAINING)
    assert code == 0, text
    assert text.count("same bits everywhere: True") == 4  # in float64 and in float32


@pytest.mark.parametrize("count", [2, 4])
def test_jit_divides_training_among_processes(count: int) -> None:
    code, text = launched(count, HERE / "partitioned.py")
    assert code == 0, text
    assert text.count("from one process") == count, text


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("killed", "waited 3 s for rank 1 in the group 'world': all_reduce (sum) of float32[3]"),
        ("raises", "ValueError: mine alone"),
        ("shapes", "rank 1: all_reduce (sum) of float32[4] at failing.py:14"),
        ("programs", "rank 1: all_reduce (sum) of float32[3] at failing.py:15"),
    ],
)
def test_a_member_that_does_something_else_is_named(how: str, said: str) -> None:
    code, text = launched(3, HERE / "failing.py", how)
    assert code != 0 and said in text and "went on" not in text, text
    if how not in ("raises", "killed"):
        assert "function = rlx.jit(lambda x: rlx.distributed.all_reduce(x))" in text  # the line
    if how == "killed":
        assert f"rank 1 on {platform.node()} was ended by SIGKILL" in text


def test_a_slow_member_is_waited_for() -> None:
    code, text = launched(2, HERE / "failing.py", "slow")
    assert code == 0 and text.count("went on") == 2, text


def test_what_is_launched_may_be_a_module_with_arguments() -> None:
    code, text = launched(2, Path("-m"), "platform", "terse")
    assert code == 0 and text.count(platform.platform(aliased=True, terse=True)) == 2, text  # lines may be one


# ------------------------------------------------------------------ starts, ends and leftovers
ENDING = """
import os, sys, time
how, rank = sys.argv[1], int(os.environ["PMI_RANK"])
if how == "late" and rank == 1:
    time.sleep(1000)
if how == "absent" and rank == 1:
    sys.exit(0)
import rlx
rlx.distributed.initialize()
rlx.distributed.barrier()
if how == "ends" and rank == 1:
    os._exit(0)
if how == "waits":
    print(f"<{os.getpid()}>", flush=True)
    time.sleep(1000)
if how == "slow":
    from rlx.serialization import shard_writing
    create = shard_writing.create
    def slow(*arguments):
        time.sleep(6 * rank)
        create(*arguments)
    shard_writing.create = slow
    rlx.save(sys.argv[2], {"x": rlx.numpy.ones((2, 1 << 19))})
rlx.distributed.barrier()
print("went on", flush=True)
"""


@pytest.fixture
def ending(tmp_path: Path) -> Path:
    (tmp_path / "ending.py").write_text(ENDING)
    return tmp_path / "ending.py"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("late", ["Rank 0 of 2 waited 4 s in rlx.distributed.initialize() for rank 1."]),
        ("absent", ["initialize() for rank 1. The program of rank 1 has ended without calling it."]),
        ("ends", ["ended with code 0 without leaving the others", "Rank 0 waited 4 s for rank 1 in the group 'world'"]),
    ],
)
def test_a_rank_that_is_missing_is_named(ending: Path, how: str, said: list[str]) -> None:
    code, text = launched(2, ending, how, timeout="4")
    assert code != 0 and all(words in text for words in said) and "went on" not in text, text


def test_a_save_may_take_longer_than_exchanges(ending: Path) -> None:
    folder = ending.with_name("model.shards")
    code, text = launched(2, ending, "slow", str(folder), timeout="3")
    assert code == 0 and text.count("went on") == 2, text
    assert len(list(folder.glob("*-1.safetensors"))) == 1 and rlx.load(folder)["x"].sum() == 1 << 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_no_rank_outlives_the_launcher(ending: Path, number: int) -> None:
    with subprocess.Popen([*LAUNCH, "2", str(ending), "waits"], **BOTH) as started:
        assert started.stdout is not None
        text = ""
        while text.count(">") < 2:
            text += started.stdout.read(1)
        started.send_signal(number)
        started.stdout.read()
    # those that are ended by the system need a moment
    pids, end = re.findall(r"<(\d+)>", text), time.monotonic() + 100
    while time.monotonic() < end and any(owners._start(int(pid)) for pid in pids):
        time.sleep(0.1)
    assert not any(owners._start(int(pid)) for pid in pids)
    assert started.returncode != 0
    code, text = launched(1, Path("-m"), "platform")  # the next job
    assert code == 0 and not leftovers.unused_memory()
    assert not [*Path(tempfile.gettempdir()).glob(f"rlx-launch-*-{started.pid}-*")]


FORKING = """
import os, sys
import rlx
rlx.distributed.initialize()
if rlx.process_index() == 1:
    pid = os.fork()
    if pid == 0:
        raise SystemExit(int(sys.argv[1]))
    assert os.waitpid(pid, 0)[1] == int(sys.argv[1]) << 8
assert rlx.distributed.all_reduce(1) == 2
print("went on", flush=True)
"""


@pytest.mark.parametrize("code", ["0", "3"])
def test_the_end_of_a_forked_child_does_not_end_the_job(tmp_path: Path, code: str) -> None:
    (tmp_path / "forking.py").write_text(FORKING)
    found, text = launched(2, tmp_path / "forking.py", code, timeout="5")
    assert found == 0 and text.count("went on") == 2, text


CHILD = """
import subprocess, sys
import rlx
rlx.distributed.initialize()
if sys.argv[1] == "parent":
    done = subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True)
    assert done.returncode == 1 and "ShardingError: This process was started by the process of rank" in done.stderr
    assert rlx.distributed.all_reduce(1) == 2
    print("went on", flush=True)
"""


def test_child_processes_of_ranks_do_not_join(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    code, text = launched(2, tmp_path / "child.py", "parent")
    assert code == 0 and text.count("went on") == 2, text


LISTENING = """
import os, pathlib
import rlx

def sockets():
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            pass

def listening():
    tables = "".join(pathlib.Path("/proc/net", kind).read_text() for kind in ("tcp", "tcp6"))
    rows = [line.split() for line in tables.splitlines() if "inode" not in line]
    own = {*sockets()}
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}

before = listening()  # a port of the launcher would be open in all that it starts
assert not before, before
rlx.distributed.initialize()
rlx.distributed.all_reduce(rlx.numpy.ones(100_000))
assert listening() == before, (before, listening())
print("no port", flush=True)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_ranks_on_one_machine_listen_on_no_port(tmp_path: Path) -> None:
    (tmp_path / "listening.py").write_text(LISTENING)
    code, text = launched(2, tmp_path / "listening.py")
    assert code == 0 and text.count("no port") == 2, text
