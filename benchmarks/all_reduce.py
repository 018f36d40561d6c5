"""How long an all_reduce of 4 MB takes beside MPI's own: `rlx launch -n 2 benchmarks/all_reduce.py`.

The two alternate in every round, so that other load affects both; the ratio is the median of the rounds' ratios, of
rank 0. Once for an array of rlx and once for one of NumPy, which jit copies.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx

ELEMENTS, ROUNDS = 1 << 20, 100


def seconds(call: Callable[[], Any]) -> float:
    """What a call takes once all processes have come."""
    rlx.distributed.barrier()
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def main() -> None:
    """Print times in milliseconds, and their ratio."""
    rlx.distributed.initialize()
    from mpi4py import MPI  # MPI is started by now

    summed = rlx.jit(lambda x: rlx.distributed.all_reduce(x))
    for count in (ELEMENTS, 8):
        x, out = np.ones(count, np.float32), np.empty(count, np.float32)
        own = rlx.numpy.asarray(x)
        calls: dict[str, Callable[[], Any]] = {
            "MPI": lambda x=x, out=out: MPI.COMM_WORLD.Allreduce(x, out),
            "rlx": lambda x=own: summed(x),
            "rlx, of NumPy's array": lambda x=x: summed(x),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                times[name].append(seconds(call))
        if rlx.process_index() == 0:
            for name, found in times.items():
                ratio = statistics.median(a / b for a, b in zip(found[5:], times["MPI"][5:], strict=True))
                least, median = min(found[5:]) * 1e3, statistics.median(found[5:]) * 1e3
                print(f"{count} float32, {name}: least {least:.4f} ms, median {median:.4f} ms: {ratio:.2f} times MPI's")


if __name__ == "__main__":
    main()
