"""PoCL, a second OpenCL runtime: without sub-groups, so that rows are shared another way than on Intel's."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from primitive_cases import cases

HERE = Path(__file__).parent
SHARE = 16  # of the primitives one in so many
library = ctypes.util.find_library("pocl")

pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")
if library is None:
    pytest.skip("PoCL is not installed; on Debian: apt install libpocl2", allow_module_level=True)


def run(folder: Path, *command: str) -> str:
    """What a command of Python's prints, with PoCL as the only OpenCL runtime."""
    (folder / "pocl.icd").write_text(f"{library}\n")
    environment = os.environ | {"OCL_ICD_VENDORS": str(folder), "RLX_TEST_OPENCL": "1"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_another_runtime(tmp_path: Path) -> None:
    shown = "from rlx.backends.opencl.engine import *; e = OpenCLEngine(devices()[0]); "
    shown += "print(e.device.platform.name, e.shuffles)"
    assert run(tmp_path, "-c", shown) == "Portable Computing Language False\n"


def test_every_strategy(tmp_path: Path) -> None:
    assert run(tmp_path, str(HERE / "every_strategy.py")).count("ran ") >= 9


def test_a_sample_of_the_primitives(tmp_path: Path) -> None:
    names = sorted({c.primitive.name for c in cases()})[::SHARE]
    tests = [f"{HERE}/test_opencl.py::test_a_primitive_computes_the_reference[{name}]" for name in names]
    assert f"{len(names)} passed" in run(tmp_path, "-m", "pytest", "-q", "-n", "0", "-m", "", "-o", "addopts=", *tests)
