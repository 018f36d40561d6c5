"""JAX's libraries on rlx beside jax: the programs of tests/compat/libraries, from start to end, and once more.

Needs the environment that `make test-compat` makes: .venv-compat/bin/python -m benchmarks.ecosystem [PROGRAM ...]
A program runs in a process of its own for each framework, with an empty cache of compiled kernels the first time and a
warm one the second; `again` is its second run in that process, when nothing is traced or compiled for the first time.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
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


def main(names: list[str]) -> None:
    """Print a row for each program, and geometric means of rlx's times in jax's."""
    ratios: dict[str, list[float]] = {"cold": [], "warm": [], "again": []}
    print("| program | jax, start to end | rlx, cold | rlx, warm | jax, again | rlx, again |")
    print("|---|---|---|---|---|---|")
    for program in sorted(PROGRAMS.glob("*.py")):
        if names and program.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as cache:
            jax = measured(program, "jax", cache)
            cold, warm = measured(program, "rlx", cache), measured(program, "rlx", cache)
        ratios["cold"].append(jax["start to end"] / cold["start to end"])
        ratios["warm"].append(jax["start to end"] / warm["start to end"])
        ratios["again"].append(jax["again"] / warm["again"])
        ends = [jax["start to end"], cold["start to end"], warm["start to end"], jax["again"], warm["again"]]
        print(f"| {program.stem} | " + " | ".join(f"{t:.2f} s" for t in ends) + " |", flush=True)
    for name, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{name}: rlx is {mean:.2f} times as fast as jax in the geometric mean of {len(found)} programs")


if __name__ == "__main__":
    main(sys.argv[1:])
