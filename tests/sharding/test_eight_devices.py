"""Eight CPU devices in one process: what eight_devices.py found, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EIGHT = {"RLX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}


def python(*arguments: str, **environment: str) -> str:
    """What a process of Python prints."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What went wrong with each case."""
    return json.loads(python(str(HERE / "eight_devices.py"), **EIGHT))


def test_every_case_was_run(found: dict[str, str]) -> None:
    assert len(found) >= 50


def test_programs_on_eight_devices_give_what_they_give_on_jax(found: dict[str, str]) -> None:
    failed = {name: text for name, text in found.items() if text}
    assert not failed, "\n".join(f"{name}:\n{text}" for name, text in failed.items())
