"""Time rlx against JAX, and NumPy where that is natural, in one process and in turn: `make bench`.

    python benchmarks/run.py [--only NAME,NAME] [--rounds N] [--output FILE]

Each round runs every library once (A B C A B C ...), so that what else the machine does falls on all alike; a row shows
the medians. `cold` is the first call: tracing, compiling and running, with an empty disk cache, after each library has
compiled something trivial. `difference` is the relative distance between the results of rlx and JAX. The table is
printed, and everything is written as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from programs import Program, programs

RESULTS = Path(__file__).resolve().parent / "results"
ROUND_SECONDS = 0.05
SEED = 0


class Contender:
    """A library's version of a program: its arguments on its own arrays, its first call, its times."""

    def __init__(self, call: Callable[..., Any], arguments: tuple[Any, ...], wait: Callable[[Any], Any]) -> None:
        self.call, self.arguments, self.wait = call, arguments, wait
        self.times: list[float] = []
        start = time.perf_counter()
        self.result = wait(call(*arguments))
        self.cold = time.perf_counter() - start

    def seconds(self, repeats: int) -> float:
        """Mean seconds of `repeats` calls in a row."""
        start = time.perf_counter()
        for _ in range(repeats):
            result = self.call(*self.arguments)
        self.wait(result)
        return (time.perf_counter() - start) / repeats

    @property
    def median(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.times)


def contender(program: Program, library: Any) -> Contender:
    """The program jitted by a library with JAX's names."""
    function, arguments = program.build(library, np.random.default_rng(SEED))
    arguments = library.tree.map(library.numpy.asarray, arguments)
    return Contender(library.jit(function), arguments, library.block_until_ready)


def numpy_contender(program: Program, library: Any) -> Contender | None:
    """The program in NumPy, if it is stated."""
    if program.numpy is None:
        return None
    _, arguments = program.build(library, np.random.default_rng(SEED))
    return Contender(program.numpy, arguments, lambda result: result)


def distance(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest relative distance between corresponding leaves."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            raise AssertionError(f"results differ in shape: {a.shape} and {b.shape}")
        wide, other = a.astype(np.float64), b.astype(np.float64)
        worst = max(worst, float(np.linalg.norm(wide - other) / (np.linalg.norm(other) + 1e-30)))
    return worst


def measure(program: Program, rlx: Any, jax: Any, rounds: int) -> dict[str, Any]:
    """Run the contenders of one program in turn; seconds by library."""
    contenders = {"rlx": contender(program, rlx), "jax": contender(program, jax)}
    plain = numpy_contender(program, rlx)
    if plain is not None:
        contenders["numpy"] = plain
    warm = sum(c.seconds(1) for c in contenders.values()) / len(contenders)
    repeats = max(1, min(5000, int(ROUND_SECONDS / warm)))
    for _ in range(rounds):
        for c in contenders.values():
            c.times.append(c.seconds(repeats))
    ours = [np.asarray(leaf) for leaf in rlx.tree.leaves(contenders["rlx"].result)]
    theirs = [np.asarray(leaf) for leaf in jax.tree.leaves(contenders["jax"].result)]
    return {
        "name": program.name,
        "median": {name: c.median for name, c in contenders.items()},
        "cold": {name: contenders[name].cold for name in ("rlx", "jax")},
        "rounds": {name: c.times for name, c in contenders.items()},
        "difference": distance(ours, theirs),
    }


HEADER = "{:24s} {:>11s} {:>11s} {:>11s} {:>8s} {:>9s} {:>9s}  {}".format(
    "program", "rlx", "jax", "numpy", "jax/rlx", "cold rlx", "cold jax", "difference"
)


def row(found: dict[str, Any]) -> str:
    """One line of the table."""
    median, cold = found["median"], found["cold"]
    plain = f"{median['numpy'] * 1e3:8.3f} ms" if "numpy" in median else ""
    return (
        f"{found['name']:24s} {median['rlx'] * 1e3:8.3f} ms {median['jax'] * 1e3:8.3f} ms {plain:>11s}"
        f" {median['jax'] / median['rlx']:8.2f} {cold['rlx']:7.2f} s {cold['jax']:7.2f} s  {found['difference']:.1e}"
    )


def summary(rows: list[dict[str, Any]]) -> str:
    """The geometric mean of the ratios, and where rlx is behind."""
    ratios = [r["median"]["jax"] / r["median"]["rlx"] for r in rows]
    colds = [r["cold"]["jax"] / r["cold"]["rlx"] for r in rows]
    behind = [r["name"] for r, ratio in zip(rows, ratios, strict=True) if ratio < 1.0]
    return (
        f"{len(rows)} programs: jax/rlx {statistics.geometric_mean(ratios):.2f} in the geometric mean,"
        f" {statistics.geometric_mean(colds):.2f} for the first call; slower than jax: {', '.join(behind) or 'none'}"
    )


def chosen(names: str | None) -> list[Program]:
    """The programs that --only names, all by default."""
    if names is None:
        return programs
    wanted = names.split(",")
    unknown = set(wanted) - {p.name for p in programs}
    if unknown:
        there = ", ".join(p.name for p in programs)
        raise SystemExit(f"no such program: {', '.join(sorted(unknown))}; there are: {there}")
    return [p for p in programs if p.name in wanted]


def machine(rlx: Any, jax: Any) -> dict[str, Any]:
    """Where and with what the numbers were measured."""
    versions = {module.__name__: module.__version__ for module in (rlx, jax, np)}
    where = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    return {"when": datetime.now(UTC).isoformat(), **where, **versions}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of programs, separated by commas")
    parser.add_argument("--rounds", type=int, default=7, help="how often each library runs a program (default 7)")
    parser.add_argument("--output", type=Path, default=RESULTS / "latest.json", help="where the JSON goes")
    options = parser.parse_args()
    selected = chosen(options.only)
    # cold means cold: a disk cache of this run's own, set before rlx is imported
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["RLX_CACHE_DIR"] = cache
        import jax

        import rlx

        for library in (rlx, jax):
            library.jit(lambda x: x + 1.0)(np.ones(3, np.float32))
        print(HEADER)
        rows = []
        for program in selected:
            rows.append(measure(program, rlx, jax, options.rounds))
            print(row(rows[-1]), flush=True)
        print(summary(rows))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"where": machine(rlx, jax), "programs": rows}, indent=1))
        print(f"written to {options.output}")


if __name__ == "__main__":
    main()
