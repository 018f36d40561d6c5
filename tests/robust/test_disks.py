"""The cache on disks that are full, cannot be written or hold garbage: results stay right, and a warning says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
import numpy as np, rlx, rlx.numpy as jnp
x = np.arange(5.0)
np.testing.assert_allclose(rlx.jit(lambda x: jnp.sin(x) * 2 + x.sum())(x), np.sin(x) * 2 + x.sum())
from rlx.backends.cpu.runtime import store
print(store.statistics().compiled)
"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")


def compiled(folder: Path, before: str = "") -> tuple[int, str]:
    """How many kernels a process compiled that works with this cache, and its warnings."""
    # a limit on the size of files would cut Python's own files of bytecode, too
    environment = os.environ | {"RLX_CACHE_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "default", "-c", before + WORK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


@pytest.mark.thorough
@posix
def test_files_that_cannot_grow(tmp_path: Path) -> None:
    """Nothing half written stays, and the next process fills the cache."""
    number, warned = compiled(tmp_path, "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))\n")
    assert number > 0
    assert warned.count("RuntimeWarning") == 1 and "cannot be written" in warned
    assert not list((tmp_path / "native").iterdir())
    assert compiled(tmp_path) == (number, "")
    assert compiled(tmp_path) == (0, "")


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """Root may write everywhere, so the refusal is made up."""
    refuse = """
import os
def refuse(path, *arguments, **options):
    raise PermissionError(13, "Permission denied", str(path))
os.mkdir = refuse
"""
    number, warned = compiled(tmp_path / "home" / "cache", refuse)
    assert number > 0
    assert warned.count("RuntimeWarning") == 1 and "cannot be made (Permission denied)" in warned


@pytest.mark.thorough
def test_a_full_cache_on_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    """It serves all the same, without the mark of its last use."""
    assert compiled(tmp_path)[0] > 0
    read_only = """
import os
def refuse(*arguments, **options):
    raise OSError(30, "Read-only file system")
os.utime = os.replace = refuse
"""
    assert compiled(tmp_path, read_only) == (0, "")


@pytest.mark.selected(1)
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_every_entry_is_damaged(tmp_path: Path, damage: str) -> None:
    """All are built again, silently, and are whole afterwards."""
    number, _ = compiled(tmp_path)
    for file in (tmp_path / "native").iterdir():
        data = file.read_bytes()
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        file.write_bytes({"truncated": data[:middle], "flipped": flipped, "empty": b""}[damage])
    assert compiled(tmp_path) == (number, "")
    assert compiled(tmp_path) == (0, "")


@pytest.mark.thorough
def test_a_foreign_processor_has_entries_of_its_own(tmp_path: Path) -> None:
    """What one processor's code is called, another does not look for."""
    number, _ = compiled(tmp_path)
    # only the name of the code says so: the code itself stays fit to run here
    foreign = """
import llvmlite.binding as llvm
from rlx.backends.cpu.runtime import store
own = llvm.get_host_cpu_name
llvm.get_host_cpu_name = lambda: "another"
store.fingerprint()
llvm.get_host_cpu_name = own
"""
    assert compiled(tmp_path, foreign) == (number, "")
    assert compiled(tmp_path, foreign) == (0, "")
    assert compiled(tmp_path) == (0, "")
