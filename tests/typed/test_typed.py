"""Decorated and transformed functions keep their signatures for type checkers: those that are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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


def test_typical_uses_run() -> None:
    """What is typed so is so."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(USES)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_there_are_wrong_uses() -> None:
    assert len(WRONG) >= 9
