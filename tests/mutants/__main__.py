"""Try the mutations in a copy of the tree: python -m tests.mutants [--from N] [--to M]."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
LEAST = 0.85  # share that has to be killed
SECONDS = 600  # for the tests of one mutation


def copied(folder: Path) -> Path:
    """A copy of the files that git knows or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def passes(tree: Path, tests: str) -> bool:
    """Whether tests pass in a copy, as `make test` selects and runs them."""
    environment = os.environ | {"RLX_CHECK": "1", "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-m", "not thorough", *shlex.split(tests)]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def killed(tree: Path, mutant: Mutant) -> bool:
    file = tree / mutant.file
    before = file.read_text()
    assert before.count(mutant.old) == 1, mutant
    file.write_text(before.replace(mutant.old, mutant.new))
    try:
        return not passes(tree, mutant.tests)
    finally:
        file.write_text(before)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutation to try")
    parser.add_argument("--last", type=int, default=len(MUTANTS), help="the number behind the last one")
    chosen = parser.parse_args()
    mutants = MUTANTS[chosen.first : chosen.last]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="rlx-mutants-") as folder:
        tree = copied(Path(folder))
        for tests in dict.fromkeys(mutant.tests for mutant in mutants):
            if not passes(tree, tests):
                print(f"without a mutation fails: {tests}", flush=True)
                return 1
        for number, mutant in enumerate(mutants, chosen.first):
            started = time.monotonic()
            dead = killed(tree, mutant)
            survivors += not dead
            word = "killed" if dead else "SURVIVED"
            print(
                f"{number:3} {word:8} {time.monotonic() - started:5.0f} s  {mutant.file}: {mutant.old.strip()}",
                flush=True,
            )
    share = 1 - survivors / len(mutants)
    print(f"killed {len(mutants) - survivors} of {len(mutants)} ({share:.0%})")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
