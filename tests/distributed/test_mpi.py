"""Processes under MPI, started by `rlx launch`: exchanges, training, and members that do not come."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRAINING = HERE.parents[1] / "examples" / "data_parallel.py"

pytestmark = [
    pytest.mark.skipif("RLX_TEST_MPI" not in os.environ, reason="RLX_TEST_MPI is not set: see make test-mpi"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
]


def launched(count: int, program: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what was printed."""
    words = [sys.executable, "-m", "rlx", "launch", "-n", str(count), str(program), *arguments]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
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
        ("shapes", "rank 1: all_reduce (sum) of float32[4] at failing.py:14."),
        ("programs", "rank 1: all_reduce (sum) of float32[3] at failing.py:15."),
    ],
)
def test_a_member_that_does_something_else_is_named(how: str, said: str) -> None:
    begun = time.monotonic()
    code, text = launched(3, HERE / "failing.py", how)
    assert code != 0 and said in text, text
    assert "went on" not in text and time.monotonic() - begun < 30
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
