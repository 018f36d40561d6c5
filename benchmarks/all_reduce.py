"""How long an all_reduce of 4 MB takes beside MPI's own: `rlx launch -n 2 benchmarks/all_reduce.py`.

The two alternate in every round, so that other load affects both; medians and the smallest times are of rank 0.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx

ELEMENTS, ROUNDS = 1 << 20, 60


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
        ours, raw = [], []
        for _ in range(ROUNDS):
            ours.append(seconds(lambda x=x: summed(x)))
            raw.append(seconds(lambda x=x, out=out: MPI.COMM_WORLD.Allreduce(x, out)))
        if rlx.process_index() == 0:
            for name, of in (("median", statistics.median), ("least", min)):
                mine, theirs = of(ours[5:]), of(raw[5:])
                times = f"rlx {mine * 1e3:.4f} ms, MPI {theirs * 1e3:.4f} ms"
                print(f"{count} float32, {name}: {times}: {mine / theirs:.2f} times", flush=True)


if __name__ == "__main__":
    main()
