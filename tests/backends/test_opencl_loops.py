"""Loops that groups share, on OpenCL's runtimes for processors: two groups run there at the same time, on two threads.

OpenCL promises no such thing. Where it were not so they would wait for ever: they do that in a process of their own,
which is given up after a while.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

if os.environ.get("RLX_TEST_OPENCL") != "1":
    pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")

SCRIPT = Path(__file__).with_name("every_loop.py")
GROUPS = min(2, os.cpu_count() or 1)


def run(*arguments: int) -> str:
    """What the script prints."""
    path = os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parent.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.thorough
def test_groups_share_loops() -> None:
    """Every strategy as a phase, loops in loops, branches, every way in which carries move."""
    lines = run(GROUPS).splitlines()
    assert len(lines) == 14 and sum(f"by {GROUPS}," in line for line in lines) >= 9, lines


@pytest.mark.thorough
def test_groups_share_random_loops() -> None:
    assert run(GROUPS, 16).count("ran random loop") == 16


@pytest.mark.thorough
def test_one_group_may_take_all_turns() -> None:
    assert run(1).count("by 1,") >= 12
