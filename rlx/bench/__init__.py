"""Timing: a function against others (run), typical programs (run_benchmark, PATTERNS), any code (Tick)."""

from __future__ import annotations

from rlx.bench.clock import CacheBuster, Tick, time_ns
from rlx.bench.harness import Result, run
from rlx.bench.parity import Parity, parity
from rlx.bench.patterns import PATTERNS, BenchmarkPattern, run_benchmark
from rlx.bench.timing import percentile, times_in_turn
from rlx.offered_names import offer_names

__all__ = [
    "PATTERNS",
    "BenchmarkPattern",
    "CacheBuster",
    "Parity",
    "Result",
    "Tick",
    "parity",
    "percentile",
    "run",
    "run_benchmark",
    "time_ns",
    "times_in_turn",
]

offer_names(globals())
