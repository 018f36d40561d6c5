"""Processes under torchrun, through torch.distributed: exchanges, training, and members that do not come."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlx import distributed, errors
from tests.distributed import hosts

HERE = Path(__file__).parent
LAUNCH = Path(sys.executable).parent / "torchrun"
TORCH = importlib.util.find_spec("torch") is not None


def launched(count: int, program: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what processes printed."""
    words = [LAUNCH, "--standalone", "--nproc-per-node", str(count), program, *arguments]
    variables = {"RLX_COLLECTIVE_TIMEOUT": "600"} | os.environ | {"RLX_NUM_THREADS": "1"}
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=variables
    )
    return done.returncode, done.stdout


@pytest.mark.lm  # where torch is installed
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.parametrize("count", [2, 3])
def test_exchanges(count: int) -> None:
    code, text = launched(count, HERE / "exchanging.py")
    assert code == 0, text
    assert all(f"rank {rank} of {count}: fine" in text for rank in range(count)), text


@pytest.mark.lm
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_training_on_several_processes_is_training_on_one() -> None:
    code, text = launched(2, HERE.parents[1] / "examples" / "data_parallel.py")
    assert code == 0 and text.count("same bits everywhere: True") == 4, text


@pytest.mark.lm
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("killed", "Signal 9 (SIGKILL)"),
        ("raises", "ValueError: mine alone"),
        ("shapes", "rank 1: all_reduce (sum) of float32[4] at failing.py:14, called at failing.py:"),
        ("programs", "rank 1: all_reduce (sum) of float32[3] at failing.py:15, called at failing.py:"),
    ],
)
def test_a_member_that_does_something_else_is_named(how: str, said: str) -> None:
    code, text = launched(3, HERE / "failing.py", how)
    assert code != 0 and said in text and "went on" not in text, text


@pytest.mark.lm
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_a_silent_member_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "silent.py"
    program.write_text(
        "import time, rlx\n"
        "rlx.distributed.initialize()\n"
        "rlx.distributed.barrier()\n"
        "time.sleep(15 if rlx.process_index() == 1 else 0)\n"
        "rlx.distributed.all_reduce(rlx.numpy.ones(3))\n"
    )
    monkeypatch.setenv("RLX_COLLECTIVE_TIMEOUT", "5")
    code, text = launched(2, program)
    assert code != 0 and "Rank 0 waited 5 s for rank 1 in the group 'world': all_reduce (sum)" in text, text


@pytest.mark.lm
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.skipif(hosts.missing() != "", reason=hosts.missing() or "there are hosts")
def test_two_nodes_and_a_cable_that_is_pulled(tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(
        f"import runpy, time\nrunpy.run_path({str(HERE / 'exchanging.py')!r})['main']()\nimport rlx\n"
        "rlx.distributed.initialize()\n"
        "print('begun', flush=True)\n"
        "while True:\n"
        "    rlx.distributed.all_reduce(rlx.numpy.ones(100_000))\n"
        "    time.sleep(0.02)\n"
    )
    meeting = ("--nnodes", 2, "--master-addr", "a", "--master-port", 29500)
    wait = {"RLX_COLLECTIVE_TIMEOUT": "5", "RLX_NUM_THREADS": "1"}
    with hosts.network(tmp_path, 2) as nodes, contextlib.ExitStack() as scope:
        started = [
            scope.enter_context(node.start(LAUNCH, *meeting, "--node-rank", rank, program, variables=wait))
            for rank, node in enumerate(nodes)
        ]
        for rank, one in enumerate(started):
            assert one.stdout is not None
            text = [*iter(one.stdout.readline, "begun\n")]
            assert f"rank {rank} of 2: fine\n" in text, text
        nodes[1].link("down")
        text, _ = started[0].communicate(timeout=60)
        assert "Rank 0 waited 5 s for rank 1 in the group 'world': all_reduce (sum) of float32[100000]" in text, text
        for node in nodes:
            node.run("pkill", "-f", "steps.py")


@pytest.mark.skipif(TORCH, reason="torch is installed")
def test_without_torch_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(errors.UnsupportedError, match="exchange through torch.distributed"):
        distributed.initialize()
    assert not distributed.is_initialized()
