"""`make check-gpu`: what it counts holds with a driver that has no device; the whole runs on OpenCL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_cupy import FakeCupy, installed

from benchmarks.check_gpu import Expectation, counted_expectations


@pytest.mark.thorough
def test_what_is_counted_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training loops are graphs, memory does not grow, and new sizes compile nothing."""
    for _ in installed(monkeypatch, FakeCupy(capacity=1 << 30)):
        found = counted_expectations("cuda")
        assert len(found) == 8 and [e for e in found if not e.holds] == []


def test_an_expectation_that_fails_is_marked() -> None:
    assert Expectation("graphs", "8 of 60", "95 %", False).row() == "| graphs | 8 of 60 | 95 % | **no** |"


@pytest.mark.thorough
def test_the_whole_runs_on_a_processor() -> None:
    if os.environ.get("RLX_TEST_OPENCL") != "1":
        pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")
    command = [sys.executable, "-m", "benchmarks.check_gpu", "--device", "opencl", "--quick"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| yes |") >= 4 and "GB/s" in done.stdout
