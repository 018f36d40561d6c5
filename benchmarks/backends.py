"""The benchmark programs on two of rlx's devices in turn, in one process: how much slower the second one is.

    python -m benchmarks.backends [--device numba] [--only NAME,NAME] [--rounds N]

A row: the first call (compilation and a run) and the median time of a call on each device, their ratio, and how far the
results are apart, relative to their norm. The last line is the geometric mean of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from benchmarks.contenders import ROUND_SECONDS, SEED, TOLERANCE, Contender
from benchmarks.programs import Program, programs
from benchmarks.torch_programs import leaves

FIRST = "cpu"


def contender(program: Program, device: str) -> Contender:
    """The program jitted for a device."""
    function, arguments = program.build(rlx, np.random.default_rng(SEED))
    return Contender(rlx.jit(function, device=device), rlx.tree.map(jnp.asarray, arguments), rlx.block_until_ready)


def distance(one: Any, other: Any) -> float:
    """The norm of the difference of two results, relative to that of the first."""
    x, y = (np.concatenate([np.ravel(np.asarray(a, np.float64)) for a in leaves(result)]) for result in (one, other))
    return float(np.linalg.norm(x - y) / (np.linalg.norm(x) + 1e-30))


def compare(program: Program, device: str, rounds: int) -> float:
    """Print a program's row; how much slower the device is."""
    both = [contender(program, name) for name in (FIRST, device)]
    for one in both:
        one.seconds(1)
    repeats = max(1, int(ROUND_SECONDS / max(one.seconds(1) for one in both)))
    for _ in range(rounds):
        for one in both:
            one.times.append(one.seconds(repeats))
    apart = distance(both[0].result, both[1].result)
    ratio = both[1].median / both[0].median
    first, second = (f"{one.cold:7.2f} s {one.median * 1e3:9.3f} ms" for one in both)
    wrong = "" if apart < TOLERANCE else "  WRONG"
    row = f"{program.name:24} {FIRST} {first}   {device} {second}   ratio {ratio:6.2f}   apart {apart:.0e}{wrong}"
    print(row, flush=True)
    return ratio


def main() -> None:
    """Compare two devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="numba")
    parser.add_argument("--only")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [p.name for p in programs]
    ratios = [compare(p, options.device, options.rounds) for p in programs if p.name in wanted]
    print(f"{len(ratios)} programs: geometric mean {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
