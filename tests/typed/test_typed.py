"""Decorated and transformed functions keep their signatures for type checkers: those that are installed."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
USES, ROOT = FOLDER / "uses.py", FOLDER.parent.parent
BIN = Path(sys.executable).parent
WRONG = {n for n, line in enumerate(USES.read_text(encoding="utf-8").splitlines(), 1) if line.endswith("# wrong")}

# what each says of a wrong line: file, line
CHECKERS = {
    "mypy": (["mypy", "--no-error-summary", "--follow-imports=silent", "--no-incremental"], r"uses\.py:(\d+): error"),
    "pyright": (["pyright"], r"uses\.py:(\d+):\d+ - error"),
    "ty": (["ty", "check", "--output-format", "concise", "--project", str(ROOT)], r"uses\.py:(\d+):\d+: error"),
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_typical_uses_are_typed(checker: str, tmp_path: Path) -> None:
    """Right uses pass with the types that they state, and wrong ones are refused, all of them."""
    command, pattern = CHECKERS[checker]
    program = shutil.which(str(BIN / command[0])) or shutil.which(command[0])
    if program is None:
        pytest.skip(f"{checker} is not installed: make test-types")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT), "MYPY_CACHE_DIR": str(tmp_path)}
    words = [program, *command[1:], str(USES)]
    found = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment)
    refused = {int(number) for number in re.findall(pattern, found.stdout)}
    assert refused == WRONG, found.stdout + found.stderr


MODULES = "rlx rlx.numpy rlx.numpy.linalg rlx.lax rlx.nn rlx.optim rlx.random rlx.scipy rlx.sharding".split()


def test_checkers_know_every_public_name(tmp_path: Path) -> None:
    """Those that are imported on first use are stated for type checkers."""
    program = shutil.which(str(BIN / "pyright"))
    if program is None:
        pytest.skip("pyright is not installed: make test-types")
    names = [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__]
    file = tmp_path / "names.py"
    file.write_text("\n".join([*(f"import {module}" for module in MODULES), *names]), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [program, "--pythonpath", sys.executable, str(file)]
    found = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment)
    unknown = [line for line in found.stdout.splitlines() if "- error" in line]
    assert "0 errors" in found.stdout, "\n".join(unknown)


def test_an_editable_install_is_a_path(tmp_path: Path) -> None:
    """Type checkers and editors follow the path in a .pth file; they do not run hooks of the import system."""
    if not any(int(found.version.split(".")[0]) >= 77 for found in distributions(name="setuptools")):
        pytest.skip("setuptools is too old: make test-types")
    tree = tmp_path / "tree"
    for name in ("rlx", "rlx-stubs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    (tree / "tests").mkdir()
    build = "import sys; from setuptools import build_meta; print(build_meta.build_editable(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(tmp_path)], capture_output=True, text=True, cwd=tree)
    wheel = next(tmp_path.glob("*.whl"), None)
    assert wheel is not None, done.stderr
    with zipfile.ZipFile(wheel) as archive:
        paths = [archive.read(name).decode().strip() for name in archive.namelist() if name.endswith(".pth")]
    assert paths == [str(tree)]


def test_typical_uses_run() -> None:
    """What is typed so is so."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(USES)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_there_are_wrong_uses() -> None:
    assert len(WRONG) >= 9
