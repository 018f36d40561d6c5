"""The peak rates of a machine, and the least time that they allow for some work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from rlx.ir.work import Work

__all__ = ["Evidence", "Peaks", "Rates", "front"]

# the products that a transcendental function counts as: about the cost of its polynomial
TRANSCENDENTAL_FLOPS = 12.0
LEAST_EVIDENCE = 2e-6  # seconds: the clock is too coarse for shorter times
ROUNDING = 1 + 1e-12  # so that a rate raised to a kernel's rate certainly allows the kernel

Rates = tuple[tuple[int, float], ...]


class Evidence(NamedTuple):
    """One run of a kernel: its counted work, the part that was certainly done, the time in seconds, and the bytes of
    the numbers that it computes with."""

    work: Work
    certain: Work
    seconds: float
    itemsize: int = 4


def front(points: Iterable[tuple[int, float]]) -> Rates:
    """The Pareto front of points (bytes, bytes per second), by size.

    A rate reached with more bytes also holds for fewer, so rates decrease with the size.

    >>> front([(1024, 2e9), (512, 1e9), (4096, 1e9)])
    ((1024, 2000000000.0), (4096, 1000000000.0))
    """
    kept: list[tuple[int, float]] = []
    for size, rate in sorted(points, reverse=True):
        if not kept or rate > kept[-1][1]:
            kept.append((size, rate))
    return tuple(reversed(kept))


def _rate(rates: Rates, nbytes: int) -> float:
    """The rate at a size, interpolated over the logarithm of the size; constant outside the points."""
    for (low, fast), (high, slow) in pairwise(rates):
        if low <= nbytes <= high:
            part = math.log(nbytes / low) / math.log(high / low)
            return (1 - part) * fast + part * slow
    return rates[0][1] if nbytes < rates[0][0] else rates[-1][1]


@dataclass(frozen=True)
class Peaks:
    """Peaks of a device with a number of threads.

    copies: pairs of the bytes that a copy reads and writes, and the bytes per second at that size, which decrease from
    cache to cache. reads: the same for a sum, which only reads. products: floating-point operations per second of a
    large matrix product, float32 and float64.

    >>> import rlx
    >>> peaks = rlx.profiling.machine_peaks()
    >>> peaks.bandwidth(10**6) > 0, peaks.float32_products > 0
    (True, True)
    """

    device: str
    threads: int
    copies: Rates
    reads: Rates
    float32_products: float
    float64_products: float

    def bandwidth(self, nbytes: int) -> float:
        """Bytes per second of a copy that moves `nbytes` bytes."""
        return _rate(self.copies, nbytes)

    def reading_bandwidth(self, nbytes: int) -> float:
        """Bytes per second of a kernel that only reads `nbytes` bytes."""
        return _rate(self.reads, nbytes)

    def seconds(self, work: Work, itemsize: int = 4) -> tuple[float, float]:
        """The least time for the operations of some work, and for its bytes; the larger one is the roofline.

        Bytes read in excess of bytes written count at the speed of reads, the rest at the speed of copies.
        """
        products = self.float64_products if itemsize >= 8 else self.float32_products
        operations = work.flops + TRANSCENDENTAL_FLOPS * work.transcendentals
        beyond = max(0, work.reads - work.writes)
        copied = (work.bytes - beyond) / self.bandwidth(work.bytes)
        return operations / products, copied + beyond / self.reading_bandwidth(work.bytes)

    def allow(self, evidence: Evidence) -> bool:
        """Whether the peaks allow all counted work in the measured time."""
        return max(self.seconds(evidence.work, evidence.itemsize)) <= evidence.seconds

    def or_better(self, other: Peaks) -> Peaks:
        """The better of two measurements of one machine, number by number."""
        return replace(
            self,
            copies=front(self.copies + other.copies),
            reads=front(self.reads + other.reads),
            float32_products=max(self.float32_products, other.float32_products),
            float64_products=max(self.float64_products, other.float64_products),
        )

    def raised_to(self, evidence: Evidence) -> Peaks:
        """Peaks raised, if necessary, to allow the certain work of a kernel."""
        work, seconds = evidence.certain, evidence.seconds
        if seconds < LEAST_EVIDENCE:
            return self
        computing, moving = (least * ROUNDING / seconds for least in self.seconds(work, evidence.itemsize))
        found = self
        if computing > ROUNDING:
            name = "float64_products" if evidence.itemsize >= 8 else "float32_products"
            found = replace(found, **{name: getattr(self, name) * computing})
        if moving > ROUNDING:
            copies, reads = self.copies, self.reads
            if work.writes:
                copies = front([*copies, (work.bytes, moving * self.bandwidth(work.bytes))])
            if work.reads > work.writes:
                reads = front([*reads, (work.bytes, moving * self.reading_bandwidth(work.bytes))])
            found = replace(found, copies=copies, reads=reads)
        return found

    def __str__(self) -> str:
        large, fastest = self.copies[-1][1], self.copies[0][1]
        return (
            f"{self.device}, {self.threads} threads: copies {large / 1e9:.0f} GB/s ({fastest / 1e9:.0f} in cache),"
            f" reads {self.reads[-1][1] / 1e9:.0f} GB/s, products {self.float32_products / 1e9:.0f} GFLOP/s in float32,"
            f" {self.float64_products / 1e9:.0f} in float64"
        )
