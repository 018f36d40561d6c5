"""Eight CPU devices in one process: what eight_devices.py found, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough  # the process with eight devices takes long to compile its programs

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


def test_the_page_s_blocks_run_on_eight_devices() -> None:
    page = (HERE.parent.parent / "docs" / "sharding.md").read_text("utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert python("-c", code, RLX_NUM_CPU_DEVICES="8").startswith("┌───────┐\n│ CPU 0 │\n├───────┤\n│ CPU 1 │")


def test_the_number_of_devices_is_a_setting() -> None:
    code = """
import rlx
rlx.config.update("jax_num_cpu_devices", 3)
assert rlx.config.num_cpu_devices == rlx.local_device_count() == len(rlx.devices("cpu")) == 3
rlx.config.update("num_cpu_devices", 3)
"""
    python("-c", code, RLX_NUM_CPU_DEVICES="2")
    code = """
import rlx
try:
    rlx.devices()
except rlx.errors.DeviceError as error:
    assert "RLX_NUM_CPU_DEVICES must be a positive integer, not 'many'" in str(error)
else:
    raise AssertionError
"""
    python("-c", code, RLX_NUM_CPU_DEVICES="many")
