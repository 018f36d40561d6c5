"""What was measured of a profiled call: each kernel's time and work, and those of the whole."""

from __future__ import annotations

import linecache
import os
from dataclasses import dataclass

from rlx.backends.timing import TimedRun, TimedStep
from rlx.ir.program import Origin
from rlx.ir.work import Work
from rlx.profiling.roofline import Peaks
from rlx.profiling.steady import disagree

__all__ = ["KernelProfile", "Measured"]


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a profiled call.

    path: its number in the plan, or the way to it ("3.body.0": the first kernel of the loop that is
    kernel 3). seconds: the median over several calls; a loop's is what the kernels in it do not
    tell. runs: how often it ran in one call. work: what all these runs compute and move. origins: the user's lines.
    roofline: the least time that the machine's peaks allow, in seconds, and `bound` what sets it; 0 and "" where that
    is not known, as for work that is counted in full and was done in part (a gather of one element many times).

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> found = rlx.profile(lambda x: jnp.tanh(x @ x).sum())(jnp.ones((64, 64)))
    >>> kernel = found.kernels[0]
    >>> kernel.kind, kernel.work.flops, kernel.seconds > 0
    ('Contract', 524288.0, True)
    """

    path: str
    kind: str
    label: str
    seconds: float
    runs: int
    work: Work
    roofline: float
    bound: str
    origins: tuple[Origin, ...]

    @property
    def gigabytes_per_second(self) -> float | None:
        """Compulsory bytes over time; None where they are not known or nothing ran."""
        return self.work.bytes / self.seconds / 1e9 if self.seconds and self.work.exact else None

    @property
    def gigaflops(self) -> float | None:
        """Billions of floating-point operations a second; None where they are not known."""
        operations = self.work.flops + self.work.transcendentals
        return operations / self.seconds / 1e9 if self.seconds and self.work.exact else None

    @property
    def efficiency(self) -> float | None:
        """The roofline's time as a part of the time taken; 1 is the machine's best, and nothing is more."""
        return self.roofline / self.seconds if self.roofline else None

    @property
    def source(self) -> str:
        """The first of the user's lines: file, line and text."""
        if not self.origins:
            return ""
        first = self.origins[0]
        text = linecache.getline(first.file, first.line).strip()
        return f"{os.path.basename(first.file)}:{first.line}" + (f"  {text}" if text else "")


@dataclass(frozen=True)
class Measured:
    """The times of a call and of its kernels; what the fields are, `Profile` says."""

    name: str
    device: str
    calls: int
    kernels: tuple[KernelProfile, ...]
    seconds: float
    call_seconds: float
    quickest_seconds: float
    peaks: Peaks
    steps: tuple[TimedStep, ...]
    median_run: TimedRun
    steady: bool

    @property
    def agrees(self) -> bool:
        """Whether the kernels' times together are those of a call, to a fifth of it."""
        return not self.kernels or not disagree(self.seconds, self.call_seconds)

    @property
    def work(self) -> Work:
        """What a call computes and moves."""
        return sum((kernel.work for kernel in self.kernels), Work())

    def slowest(self, count: int = 10) -> list[KernelProfile]:
        """The kernels that took longest, longest first."""
        return sorted(self.kernels, key=lambda kernel: -kernel.seconds)[:count]
