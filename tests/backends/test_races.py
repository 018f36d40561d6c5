"""No two items of a group meet in memory unordered, and none leaves its arrays: Oclgrind interprets every strategy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [] if os.environ.get("RLX_TEST_OPENCL") == "1" else pytest.mark.thorough
SCRIPT = Path(__file__).with_name("every_strategy.py")
FOLDERS = ("/usr/lib/oclgrind", "/usr/lib/x86_64-linux-gnu/oclgrind")
found = (Path(folder) / "liboclgrind-rt-icd.so" for folder in FOLDERS)
library = next((path for path in found if path.exists()), None)

pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")
if library is None:
    pytest.skip("Oclgrind is not installed; on Debian: apt install oclgrind", allow_module_level=True)

from every_strategy import PROGRAMS, UNITS  # noqa: E402


def interpreted(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script, with Oclgrind as the only OpenCL device."""
    (tmp_path / "oclgrind.icd").write_text(f"{library}\n")
    environment = os.environ | {"OCL_ICD_VENDORS": str(tmp_path), "OCLGRIND_DATA_RACES": "1"}
    environment["OCLGRIND_MAX_ERRORS"] = "20"
    environment["RLX_CLBLAST"] = "0"  # for Oclgrind says that it is a GPU, where CLBlast would multiply
    environment["OCLGRIND_LOCAL_MEM_SIZE"] = str(1 << 17)  # it adds up the memory of all kernels of a program
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


def test_items_do_not_race(tmp_path: Path) -> None:
    done = interpreted(tmp_path)
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert told.count("ran ") == len(PROGRAMS) and "race" not in told and "Invalid" not in told, told


def test_items_of_fragments_do_not_race(tmp_path: Path) -> None:
    """Attention by units for matrices, and its gradient."""
    done = interpreted(tmp_path, "--fragments")
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert told.count("ran ") == len(UNITS) and "race" not in told and "Invalid" not in told, told


def test_a_missing_barrier_of_fragments_is_found(tmp_path: Path) -> None:
    """That between two heads, in the gradient of a bias."""
    assert "data race" in interpreted(tmp_path, "--fragments", "--without-barrier=4").stderr


def test_a_missing_barrier_is_found(tmp_path: Path) -> None:
    """Otherwise the test above would say nothing."""
    assert "data race" in interpreted(tmp_path, "--without-barriers").stderr
