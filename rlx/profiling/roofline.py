"""What a machine can do at its best, and the least time that this allows for some work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from rlx.ir.work import Work

__all__ = ["Evidence", "Peaks", "Rates", "front"]

# a transcendental function counts as so many products: about what its polynomial takes
TRANSCENDENTAL_FLOPS = 12.0
LEAST_EVIDENCE = 2e-6  # seconds: what is shorter, the clock tells too roughly to prove a rate
ROUNDING = 1 + 1e-12  # so that a rate that was raised to what a kernel did allows it for sure

Rates = tuple[tuple[int, float], ...]


class Evidence(NamedTuple):
    """One run of a kernel: all the work that is counted for it, the part of it that was done for certain, the
    seconds that it took, and the bytes of the numbers that it computes with."""

    work: Work
    certain: Work
    seconds: float
    itemsize: int = 4


def front(points: Iterable[tuple[int, float]]) -> Rates:
    """The points (bytes, bytes in a second) that no larger one surpasses, by size.

    What is as fast with more bytes is so with fewer, too: so rates fall with the size.

    >>> front([(1024, 2e9), (512, 1e9), (4096, 1e9)])
    ((1024, 2000000000.0), (4096, 1000000000.0))
    """
    kept: list[tuple[int, float]] = []
    for size, rate in sorted(points, reverse=True):
        if not kept or rate > kept[-1][1]:
            kept.append((size, rate))
    return tuple(reversed(kept))


def _rate(rates: Rates, nbytes: int) -> float:
    """The rate at a size: between two points by its logarithm, outside that of the nearest."""
    for (low, fast), (high, slow) in pairwise(rates):
        if low <= nbytes <= high:
            part = math.log(nbytes / low) / math.log(high / low)
            return (1 - part) * fast + part * slow
    return rates[0][1] if nbytes < rates[0][0] else rates[-1][1]


@dataclass(frozen=True)
class Peaks:
    """Peaks of a device with a number of threads.

    copies: pairs of the bytes that a copy reads and writes, and bytes in a second at that size, which
    falls from cache to cache. reads: the same of a sum, which only reads. products: floating-point
    operations in a second of a large matrix product, float32 and float64.

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
        """Bytes in a second of a copy that moves so many."""
        return _rate(self.copies, nbytes)

    def reading_bandwidth(self, nbytes: int) -> float:
        """Bytes in a second of a kernel that only reads, and so many."""
        return _rate(self.reads, nbytes)

    def seconds(self, work: Work, itemsize: int = 4) -> tuple[float, float]:
        """The least time for the operations of some work, and for its bytes; the larger one is the roofline.

        What is read beyond as much as is written counts at the speed of reading, the rest at that of copies.
        """
        products = self.float64_products if itemsize >= 8 else self.float32_products
        operations = work.flops + TRANSCENDENTAL_FLOPS * work.transcendentals
        beyond = max(0, work.reads - work.writes)
        copied = (work.bytes - beyond) / self.bandwidth(work.bytes)
        return operations / products, copied + beyond / self.reading_bandwidth(work.bytes)

    def allow(self, evidence: Evidence) -> bool:
        """Whether all the work that is counted can be done in the time that it took."""
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
        """Peaks that allow what a kernel has done for certain; these ones where they do."""
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
