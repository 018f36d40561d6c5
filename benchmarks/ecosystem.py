"""JAX's libraries on rlx beside jax: the programs of tests/compat/libraries, from start to end, and once more.

    .venv-compat/bin/python -m benchmarks.ecosystem [PROGRAM ...]

needs the environment that `make test-compat` makes; `make bench` has the same figures of the libraries that it finds.
A program runs in a process of its own for each framework, with an empty cache of compiled kernels the first time and a
warm one the second; `again` is its second run in that process, when nothing is traced or compiled for the first time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "compat" / "libraries"

_RUN = """
import json, runpy, sys, time, warnings
warnings.simplefilter("ignore")
start = time.perf_counter()
if sys.argv[2] == "rlx":
    import rlx.compat
    rlx.compat.as_jax()
import jax
run = runpy.run_path(sys.argv[1])["run"]
imported = time.perf_counter()
jax.block_until_ready(jax.tree_util.tree_leaves(run()))
first = time.perf_counter()
jax.block_until_ready(jax.tree_util.tree_leaves(run()))
print(json.dumps([imported - start, first - imported, time.perf_counter() - first]))
"""


def measured(program: Path, framework: str, cache: str) -> dict[str, float]:
    """Seconds of the whole process, its imports, its first run, and its second."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "RLX_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu"}
    start = time.perf_counter()
    command = [sys.executable, "-c", _RUN, str(program), framework]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    whole = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{program.stem} on {framework}: {done.stderr[-2000:]}")
    imports, first, again = json.loads(done.stdout.splitlines()[-1])
    return {"start to end": whole - again, "imports": imports, "first run": first, "again": again}


def library(program: Path) -> str:
    """The package that a program is about: what its name begins with."""
    return program.stem.split("_")[0]


def times(program: Path) -> dict[str, dict[str, float]]:
    """What `measured` gives for jax, for rlx with an empty cache ("cold"), and once more ("warm")."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        contenders = {"jax": "jax", "cold": "rlx", "warm": "rlx"}
        return {name: measured(program, framework, cache) for name, framework in contenders.items()}


def ratios(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """jax's seconds as a multiple of rlx's: from start to end with both caches, and once more."""
    jax, cold, warm = found["jax"], found["cold"], found["warm"]
    ends = {name: jax["start to end"] / rlx["start to end"] for name, rlx in (("cold", cold), ("warm", warm))}
    return ends | {"again": jax["again"] / warm["again"]}


def geometric_means(programs: Iterable[dict[str, dict[str, float]]]) -> dict[str, float]:
    """Of the ratios of several programs."""
    found = [ratios(program) for program in programs]
    return {name: statistics.geometric_mean(ratio[name] for ratio in found) for name in found[0]}


def main(names: list[str]) -> None:
    """Print a row for each program, and geometric means of rlx's times in jax's."""
    print("| program | jax, start to end | rlx, cold | rlx, warm | jax, again | rlx, again |")
    print("|---|---|---|---|---|---|")
    found = []
    for program in sorted(PROGRAMS.glob("*.py")):
        if names and program.stem not in names:
            continue
        found.append(times(program))
        jax, cold, warm = found[-1]["jax"], found[-1]["cold"], found[-1]["warm"]
        columns = [jax["start to end"], cold["start to end"], warm["start to end"], jax["again"], warm["again"]]
        print(f"| {program.stem} | " + " | ".join(f"{t:.2f} s" for t in columns) + " |", flush=True)
    for name, mean in geometric_means(found).items():
        print(f"{name}: rlx is {mean:.2f} times as fast as jax in the geometric mean of {len(found)} programs")


if __name__ == "__main__":
    main(sys.argv[1:])
