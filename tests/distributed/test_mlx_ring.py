"""Processes under mlx.launch: exchanges, training, and members that do not come."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed import hosts

HERE = Path(__file__).parent
LAUNCH = Path(sys.executable).parent / "mlx.launch"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")


def launched(program: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what two processes printed."""
    words = [LAUNCH, "-n", "2", "--backend", "ring", "--", sys.executable, program, *arguments]
    variables = os.environ | {"RLX_NUM_THREADS": "1", "RLX_COLLECTIVE_TIMEOUT": "600"}
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=variables
    )
    return done.returncode, done.stdout


def test_exchanges_and_training() -> None:
    _, text = launched(HERE / "exchanging.py")
    assert all(f"rank {rank} of 2: fine" in text for rank in range(2)), text
    _, text = launched(HERE.parents[1] / "examples" / "data_parallel.py")
    assert text.count("same bits everywhere: True") == 4, text


@pytest.mark.skipif(hosts.missing() != "", reason=hosts.missing() or "there are hosts")
def test_exchanges_between_hosts(tmp_path: Path) -> None:
    with hosts.network(tmp_path, 2) as nodes:
        places = ("--hosts", ",".join(node.address for node in nodes), "--cwd", os.getcwd())
        words = (LAUNCH, *places, "--env", f"PYTHONPATH={HERE.parents[1]}", "--backend", "ring", "--", sys.executable)
        _, text = nodes[0].run(*words, HERE / "exchanging.py", seconds=100)
    assert all(f"rank {rank} of 2: fine" in text for rank in range(2)), text


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("shapes", "rank 1: all_reduce (sum) of float32[4] at failing.py:14, called at failing.py:26."),
        ("raises", "ValueError: mine alone"),
    ],
)
def test_a_member_that_does_something_else_is_named(how: str, said: str) -> None:
    _, text = launched(HERE / "failing.py", how)
    assert said in text and "went on" not in text, text
