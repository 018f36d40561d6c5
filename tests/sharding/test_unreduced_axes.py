"""Arrays with unreduced and reduced axes: what unreduced_axes.py found, in processes of their own with four devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOUR = {
    "RLX_NUM_CPU_DEVICES": "4",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "0",
}


def check(least: int, *libraries: str) -> None:
    """Run the cases with these libraries, of which there are some."""
    command = [sys.executable, str(Path(__file__).with_name("unreduced_axes.py")), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **FOUR})
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    failed = {name: text for name, text in found.items() if text}
    assert len(found) >= least and not failed, "\n".join(f"{name}:\n{text}" for name, text in failed.items())


def test_unreduced_and_reduced_axes() -> None:
    check(3, "rlx")


@pytest.mark.thorough
def test_unreduced_and_reduced_axes_are_those_of_jax() -> None:
    check(8, "rlx", "jax")
