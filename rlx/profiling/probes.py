"""Measurement of peaks: rlx's own kernels on its own threads, repeated until they get no faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx import numpy as jnp
from rlx.backends.cpu.runtime.threads import get_num_threads, set_num_threads
from rlx.config import config, scoped
from rlx.profiling.roofline import Peaks, Rates, front
from rlx.profiling.timed_call import TimedCall

__all__ = ["best_of_tries", "measure_peaks"]

TRAFFIC = tuple(1 << n for n in range(15, 28))  # bytes moved by a copy or a sum
ORDER = 1024  # of the matrices whose product is timed
# a try runs all probes; tries stop after this number of consecutive tries without an improvement
STILL_TRIES = 2
BETTER = 1.03
MOST_TRIES = 12
MOST_SECONDS = 2.0
# runs of one probe in one try
PROBE_SECONDS = 1.5e-3
MOST_RUNS = 100
LEAST_RUNS = 2


class Probe(NamedTuple):
    """A call, and its number of bytes or operations."""

    call: TimedCall
    amount: float

    def rate(self) -> float:
        """The best rate of several runs."""
        start, times = time.perf_counter(), []
        while len(times) < LEAST_RUNS or (time.perf_counter() - start < PROBE_SECONDS and len(times) < MOST_RUNS):
            times.append(sum(step.nanoseconds for step in self.call.run().times))
        return self.amount / max(min(times), 1.0) * 1e9


def best_of_tries(
    attempt: Callable[[], Sequence[float]], most: int | None = None, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The best of each figure over several tries: until STILL_TRIES in a row improve none by BETTER.

    >>> best_of_tries(iter([(1.0, 5.0), (2.0, 4.0), (2.0, 5.0), (1.5, 5.1)]).__next__)
    [2.0, 5.1]
    """
    start = clock()
    best = list(attempt())
    tries = 1
    still = 0
    while still < STILL_TRIES and tries < (most or MOST_TRIES) and clock() - start < MOST_SECONDS:
        found = attempt()
        tries += 1
        improved = any(new > BETTER * old for new, old in zip(found, best, strict=True))
        still = 0 if improved else still + 1
        best = [max(pair) for pair in zip(found, best, strict=True)]
    return best


def measure_peaks(threads: int | None = None, tries: int | None = None) -> Peaks:
    """Measure, regardless of stored peaks. Meanwhile the whole process uses `threads` threads.

    tries: the maximum number of tries; None continues until there is no improvement, about a second.

    >>> import rlx
    >>> rlx.profiling.measure_peaks(threads=1, tries=1).threads
    1
    """
    before = get_num_threads()
    count = before if threads is None else threads
    set_num_threads(count)
    try:
        with scoped(disable_jit=False):
            probes = [*_traffic(jnp.negative, 2), *_traffic(jnp.sum, 1), _product("float32"), _product("float64")]
            *moved, single, double = best_of_tries(lambda: [probe.rate() for probe in probes], tries)
    finally:
        set_num_threads(before)
    return Peaks(config.device, count, _rates(moved[: len(TRAFFIC)]), _rates(moved[len(TRAFFIC) :]), single, double)


def _rates(rates: Sequence[float]) -> Rates:
    return front(zip(TRAFFIC, rates, strict=True))


def _traffic(function: Callable[..., Any], passes: int) -> list[Probe]:
    """Probes of a function that moves each byte of its operand once per pass."""
    operand = np.ones(max(TRAFFIC) // passes // 4, np.float32)
    return [Probe(TimedCall(function, (operand[: size // passes // 4],), {}), size) for size in TRAFFIC]


def _product(dtype: str) -> Probe:
    matrix = np.full((ORDER, ORDER), 1.0 / ORDER, dtype)
    return Probe(TimedCall(jnp.matmul, (matrix, matrix), {}), 2.0 * ORDER**3)
