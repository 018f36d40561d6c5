"""The first run on a Mac: conformance on the GPU, and five programs beside MLX written by hand.

`make check-mac` runs it and prints a table to paste into an issue: the machine, how many tests passed on the device,
and for each program the time of a call, the time by hand, and the largest difference from the CPU's result, first with
operations of MLX alone, then with RLX_METAL_KERNELS=1. On Linux it runs on MLX's processor, whose times mean nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from benchmarks.mlx_programs import programs as by_hand
from benchmarks.programs import programs

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    ["tests/backends/test_mlx.py", "tests/backends/test_mlx_call.py", "tests/test_primitives.py", "-k", "mlx"],
    ["tests/lax", "tests/nn"],
)
CALLS = 20  # of which the fastest counts


def fastest(call: Callable[[], Any]) -> float:
    """Milliseconds of the fastest of some calls, after one that compiles."""
    call()
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def row(name: str) -> str:
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
    ours = fastest(lambda: rlx.block_until_ready(compiled(*there)))
    theirs = fastest(lambda: mx.eval(hand(*given)))
    return f"| {name} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} | {error:.1e} |"


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a part of the largest number."""
    size = float(np.abs(expected).max()) if expected.size else 0.0
    return float(np.abs(found - expected).max()) / (size or 1.0) if expected.size else 0.0


def table() -> str:
    """What the programs took, on the device as this process is set."""
    kernels = "with Metal kernels" if os.environ.get("RLX_METAL_KERNELS") == "1" else "operations of MLX"
    head = f"| {kernels} | rlx, ms | MLX by hand, ms | ratio | error |"
    return "\n".join([head, "|---|---|---|---|---|", *map(row, by_hand)])


def machine() -> str:
    """What it ran on."""
    import mlx.core as mx

    devices = ", ".join(d.name for d in rlx.devices("mlx"))
    versions = f"mlx {mx.__version__}, rlx {rlx.__version__}, Python {platform.python_version()}"
    return f"{platform.platform()}; {mx.device_info().get('device_name', '')}; {versions}; devices {devices}"


def conformance() -> list[str]:
    """The last line of each run of tests."""
    said = []
    for number, tests in enumerate(TESTS):
        setting = {} if number == 0 else {"RLX_DEVICE": "mlx"}
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-n", "4", *tests]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **setting}, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        failed = [line for line in lines if line.startswith("FAILED")]
        said.append(f"- {' '.join(tests)}: {lines[-1] if lines else done.stderr[-300:]}")
        said += [f"    {line}" for line in failed]
    return said


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="only the programs, as this process is set")
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    print(machine(), flush=True)
    for setting in ("0", "1"):
        command = [sys.executable, "-m", "benchmarks.check_mac", "--table"]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "RLX_METAL_KERNELS": setting}, capture_output=True, text=True
        )
        print(done.stdout if done.returncode == 0 else done.stderr[-2000:], flush=True)
    print("\n".join(conformance()))


if __name__ == "__main__":
    main()
