"""The first run on a Mac: conformance on the GPU, and five programs beside MLX written by hand.

`make check-mac` runs it and prints a table to paste into an issue: the machine, how many tests passed on the device,
and for each program the time of a call, the time by hand, and the largest difference from the CPU's result, first with
operations of MLX alone, then with RLX_METAL_KERNELS=1. On Linux it runs on MLX's processor, whose times mean nothing.
`--quick` is a first look: one call of the three smaller programs, and the facts about MLX that the backend relies on.
The exit status is 1 where something has failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from benchmarks.mlx_programs import compared as by_hand
from benchmarks.programs import programs

ROOT = Path(__file__).resolve().parent.parent
OWN = [f"tests/backends/test_{name}.py" for name in ("mlx", "mlx_call", "mlx_calls", "metal")]
TESTS = ([*OWN, "tests/test_primitives.py", "-k", "mlx or metal"], ["tests/lax", "tests/nn"])
QUICK = (["tests/backends/test_mlx.py", "-k", "test_fact", "-n", "0"],)
SMALL = ("layer_norm_gradient", "mlp_adam_step", "nbody_forces")
CALLS = 20  # of which the fastest counts


def fastest(call: Callable[[], Any], calls: int) -> float:
    """Milliseconds of the fastest of some calls, after one that compiles."""
    call()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def row(name: str, calls: int = CALLS) -> str:
    """A program's line of the table."""
    import mlx.core as mx

    (program,) = (p for p in programs if p.name == name)
    function, arguments = program.build(rlx, np.random.default_rng(0))
    expected = rlx.tree.leaves(rlx.jit(function, device="cpu")(*arguments))
    there = rlx.device_put(arguments, "mlx")
    compiled = rlx.jit(function, device="mlx")
    found = rlx.tree.leaves(compiled(*there))
    error = max(_error(np.asarray(f), np.asarray(e)) for f, e in zip(found, expected, strict=True))
    given = rlx.tree.map(mx.array, arguments)
    hand = mx.compile(by_hand[name](mx))
    ours = fastest(lambda: rlx.block_until_ready(compiled(*there)), calls)
    theirs = fastest(lambda: mx.eval(hand(*given)), calls)
    return f"| {name} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} | {error:.1e} |"


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a part of the largest number."""
    size = float(np.abs(expected).max()) if expected.size else 0.0
    return float(np.abs(found - expected).max()) / (size or 1.0) if expected.size else 0.0


def table(names: Iterable[str], calls: int) -> str:
    """What the programs took, on the device as this process is set."""
    kernels = "with Metal kernels" if os.environ.get("RLX_METAL_KERNELS") == "1" else "operations of MLX"
    head = f"| {kernels} | rlx, ms | MLX by hand, ms | ratio | error |"
    return "\n".join([head, "|---|---|---|---|---|", *(row(name, calls) for name in names)])


def machine() -> str:
    """What it ran on."""
    import mlx.core as mx

    devices = ", ".join(d.name for d in rlx.devices("mlx"))
    versions = f"mlx {mx.__version__}, rlx {rlx.__version__}, Python {platform.python_version()}"
    return f"{platform.platform()}; {mx.device_info().get('device_name', '')}; {versions}; devices {devices}"


def conformance(runs: Sequence[Sequence[str]]) -> tuple[list[str], bool]:
    """The last line of each run of tests, and the tests that failed; whether all have passed.

    The device's own tests name it; the others run on the default device.
    """
    said, passed = [], True
    for tests in runs:
        env = surroundings(RLX_DEVICE="cpu") if OWN[0] in tests else surroundings()
        command = [sys.executable, "-m", "pytest", "--tb=line", "-n", "auto", *COMES, *tests]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        said.append(f"- {' '.join(tests)}: {lines[-1] if lines else done.stderr[-300:]}")
        said += [f"    {line}" for line in lines if line.startswith(("FAILED", "ERROR"))]
        passed &= done.returncode == 0
    return said, passed


# on a Mac what has float64 stays on the CPU, which is said once, and a warning is an error in tests
COMES = ["-W", "ignore:The default device 'mlx' has no:UserWarning"]


def surroundings(**settings: str) -> dict[str, str]:
    """The environment of a run on the device: on a Mac its default, the GPU, elsewhere MLX's processor."""
    here = {name: value for name, value in os.environ.items() if name != "RLX_DEVICE"}
    return {**here, **({} if sys.platform == "darwin" else {"RLX_DEVICE": "mlx"}), **settings}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all of it; 1 where something has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one call of three programs, and few tests")
    parser.add_argument("--table", action="store_true", help="only the programs, as this process is set")
    options = parser.parse_args(arguments)
    if options.table:
        print(table(SMALL, 1) if options.quick else table(by_hand, CALLS))
        return 0
    print(machine(), flush=True)
    passed = True
    for setting in ("0", "1") if sys.platform == "darwin" else ("0",):  # elsewhere nothing compiles Metal
        command = [sys.executable, "-m", "benchmarks.check_mac", "--table", *(["--quick"] if options.quick else [])]
        env = surroundings(RLX_METAL_KERNELS=setting)
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        print(done.stdout if done.returncode == 0 else done.stderr[-2000:], flush=True)
        passed &= done.returncode == 0
    said, all_passed = conformance(QUICK if options.quick else TESTS)
    print("\n".join(said))
    return 0 if passed and all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
