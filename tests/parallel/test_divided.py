"""Models divided over eight CPU devices: what divided.py found, in a process of its own. And the examples there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLES = sorted((HERE.parent.parent / "examples").glob("parallel_*.py"))
WAYS = [path for path in EXAMPLES if path.stem != "parallel_plan"]


def python(*arguments: str, devices: int = 8) -> str:
    """What a process with so many devices prints."""
    command, environment = [sys.executable, *arguments], {**os.environ, "RLX_NUM_CPU_DEVICES": str(devices)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.thorough  # test_costs.py runs each way of dividing, too
def test_models_divided_over_eight_devices_are_the_models() -> None:
    """One process runs all: starting it takes as long as most of its cases."""
    found = json.loads(python(str(HERE / "divided.py")))
    failed = {name: text for name, text in found.items() if text}
    assert len(found) >= 10
    assert not failed, "\n".join(f"{name}:\n{text}" for name, text in failed.items())


@pytest.mark.thorough
def test_models_divided_over_processes_are_those_of_one_process() -> None:
    found = json.loads(python(str(HERE / "spanning.py"), devices=4))
    failed = {name: text for name, text in found.items() if text}
    assert len(found) == 5
    assert not failed, "\n".join(f"{name}:\n{text}" for name, text in failed.items())


@pytest.mark.thorough  # tests/test_examples.py runs them on one device
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_on_eight_devices(path: Path) -> None:
    assert "8 devices" in python(str(path))


@pytest.mark.thorough
@pytest.mark.parametrize("devices", [2, 4])
def test_a_gpt_holds_what_was_planned_on_fewer_devices(devices: int) -> None:
    """In all ways; the example asserts it."""
    path = next(path for path in EXAMPLES if path.stem == "parallel_plan")
    assert f"{devices} devices match the plan" in python(str(path), devices=devices)


@pytest.mark.parametrize("path", WAYS, ids=lambda path: path.stem)
def test_an_example_of_a_way_is_under_a_hundred_lines(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < 100
