"""Whether rlx.profile can be believed on this machine: what it says beside what a clock around the call says.

    python -m benchmarks.profile_trust [--order N] [PROGRAM ...]

Each program runs in a process of its own, which begins with two profiles and calls the jitted function itself behind
each. A row shows the kernels' times together, the profile's call without clocks, the call timed from outside (the
median of the quicker half), the first over the last (the bar is 0.7 to 1.3), the largest share of a roofline (the bar
is 100%), and `!` where the profile itself warns. Start it on a machine that does nothing else; the load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CALLS = 30
LEAST, MOST = 0.7, 1.3
HEADINGS = ("program", "profile", "kernels", "call", "outside", "ratio", "share", "")

Row = dict[str, Any]


def normalise(jnp: Any, x: Any) -> Any:
    """Each row minus its mean, over its deviation."""
    centred = x - x.mean(1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)


# name: (the function of rlx.numpy and a square matrix, its order as a part of --order)
PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "normalisation": (normalise, 1.0),
    "product": (lambda jnp, x: x @ x, 0.25),
    "large_product": (lambda jnp, x: x @ x, 0.5),
    "copy": (lambda jnp, x: -x, 1.0),
    "row_sums": (lambda jnp, x: x.sum(1), 1.0),
    "tanh": (lambda jnp, x: jnp.tanh(x), 0.5),
    "perceptron": (lambda jnp, x: jnp.tanh(jnp.tanh(x @ x) @ x).sum(), 0.25),
    "sort": (lambda jnp, x: jnp.sort(x), 0.25),
    "small": (lambda jnp, x: jnp.tanh(x @ x), 0.0625),
}


def measure(name: str, order: int) -> list[Row]:
    """Two profiles of a program in this process, and its calls timed from outside."""
    import rlx

    function, part = PROGRAMS[name]
    size = max(8, int(order * part))
    matrix = rlx.numpy.asarray(np.random.default_rng(0).random((size, size), np.float32) / size)
    compiled = rlx.jit(lambda x: function(rlx.numpy, x))
    rows = []
    for turn in ("first", "second"):
        found = rlx.profile(compiled)(matrix)
        row: Row = {"program": f"{name} {size}", "profile": turn, "kernels": found.seconds, "call": found.call_seconds}
        calls = sorted(_seconds(compiled, matrix) for _ in range(CALLS))
        row["outside"] = statistics.median(calls[: CALLS // 2])
        row["share"] = max((k.efficiency for k in found.kernels if k.efficiency is not None), default=None)
        row |= {"warnings": found.warnings, "peaks": str(found.peaks)}
        rows.append(row)
    return rows


def _seconds(function: Callable[[Any], Any], operand: Any) -> float:
    start = time.perf_counter()
    function(operand)
    return time.perf_counter() - start


def in_a_process(name: str, order: int) -> list[Row]:
    """`measure` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.profile_trust", "--order", str(order), "--here", name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def cells(row: Row) -> tuple[str, ...]:
    """A row as text; small programs may have more around their kernels, which the profile then says."""
    ratio = row["kernels"] / row["outside"]
    share = "" if row["share"] is None else f"{row['share']:.0%}"
    times = (f"{1e3 * row[column]:.3f} ms" for column in ("kernels", "call", "outside"))
    return (row["program"], row["profile"], *times, f"{ratio:.2f}", share, "!" if row["warnings"] else "")


def text(rows: list[Row]) -> str:
    """The table, what the profiles warn of, and how many rows are within the bars."""
    table = [HEADINGS, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in table]
    lines += [f"{r['program']}, {r['profile']}: {said}" for r in rows for said in r["warnings"]]
    close = sum(LEAST <= row["kernels"] / row["outside"] <= MOST for row in rows)
    most = max((row["share"] for row in rows if row["share"] is not None), default=0.0)
    lines.append(f"{close} of {len(rows)} profiles are within {LEAST} to {MOST} of the call; largest share {most:.1%}")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help="all by default")
    parser.add_argument("--order", type=int, default=4096, help="of the largest matrices")
    parser.add_argument("--here", action="store_true", help="one program in this process, as JSON")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.programs[0], options.order)))
        return
    print(f"load before: {load()}")
    rows = [row for name in options.programs or PROGRAMS for row in in_a_process(name, options.order)]
    print(text(rows))
    print(f"peaks at the end: {rows[-1]['peaks']}\nload after: {load()}")


def load() -> str:
    """What the machine does besides, over one, five and fifteen minutes."""
    return ", ".join(f"{load:.2f}" for load in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"


if __name__ == "__main__":
    main()
