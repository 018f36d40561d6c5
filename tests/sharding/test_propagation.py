"""How results of jit are divided, and what RLX_EXPLAIN says of it: propagation.py in a process with eight devices."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "propagation.py"
EIGHT = {"RLX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}


def run(library: str, **environment: str) -> tuple[dict[str, str], str]:
    """The specs of all programs, and what is on standard error."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), library],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **EIGHT, **environment},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout), done.stderr


@pytest.mark.thorough
def test_results_are_divided_as_on_jax_and_exchanges_are_listed() -> None:
    found, said = run("rlx", RLX_EXPLAIN="1")
    assert found == run("jax")[0]
    kinds = re.findall(
        r"^  (all-gather|all-reduce) over (.*), (\d+) bytes on each device(.*): (\w+) at (.*):\d+ ", said, re.M
    )
    files = {file for *_, file in kinds}
    assert files == {str(SCRIPT)}
    # rows of 8 float32 divided in 2; all of 64 numbers over a contraction that b divides, with rows over a
    expected = [
        ("all-reduce", "'a'", "16", "", "reduce_sum"),
        ("all-reduce", "'b'", "96", "", "dot_general"),
        ("all-gather", "'a'", "512", "", "scan"),
        ("all-gather", "'a'", "256", "", "add"),
        ("all-reduce", "'a'", "32", ", 3 times", "reduce_sum"),
        ("all-reduce", "'a'", "256", ", 3 times", "dot_general"),
        ("all-reduce", "'a'", "4", ", in each round", "reduce_sum"),
        ("all-reduce", "'a'", "192", "", "scatter_add"),
        ("all-reduce", "'b'", "4608", "", "conv_general_dilated"),
    ]
    assert [(*what, str(SCRIPT)) in kinds for what in expected] == [True] * len(expected)


def test_nothing_is_said_unless_asked_for() -> None:
    assert "exchange" not in run("rlx")[1]
