"""The measurements of a profiled call: time and work of each kernel and of the call."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from rlx.backends.timing import TimedRun, TimedStep
from rlx.errors import short_name
from rlx.ir.program import Origin
from rlx.ir.work import Work
from rlx.profiling.roofline import Peaks
from rlx.profiling.steady import disagree

__all__ = ["KernelProfile", "Measured"]


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a profiled call.

    path: its number in the plan, or its path ("3.body.0": the first kernel of the loop that is kernel 3). seconds: the
    median over several calls; a loop's time excludes its inner kernels. runs: the number of runs in one call. work: the
    computation and memory traffic of all these runs. origins: the user's lines. roofline: the least time that the
    machine's peaks allow, in seconds, and `bound` its limiting resource; 0 and "" if it is not known, as for work that
    is counted in full but may be done in part (a gather that reads one element many times).

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
        """Compulsory bytes over time; None if they are not known or nothing ran."""
        return self.work.bytes / self.seconds / 1e9 if self.seconds and self.work.exact else None

    @property
    def gigaflops(self) -> float | None:
        """Billions of floating-point operations per second; None if they are not known."""
        operations = self.work.flops + self.work.transcendentals
        return operations / self.seconds / 1e9 if self.seconds and self.work.exact else None

    @property
    def efficiency(self) -> float | None:
        """The roofline's time divided by the measured time; 1, the maximum, is the machine's peak."""
        return self.roofline / self.seconds if self.roofline else None

    @property
    def source(self) -> str:
        """The user's line that made its result: file, line and text."""
        if not self.origins:
            return ""
        first = self.origins[0]
        text = linecache.getline(first.file, first.line).strip()
        return f"{short_name(first.file)}:{first.line}" + (f"  {text}" if text else "")


    @property
    def title(self) -> str:
        """The user's line that it is named after and the number of its other lines; without a line, its operations."""
        more = len(self.origins) - 1
        also = f" (+{more} {'line' if more == 1 else 'lines'})" if more > 0 else ""
        return f"{self.source}{also}" if self.source else f"{self.kind} {self.label}".strip()


@dataclass(frozen=True)
class Measured:
    """The times of a call and of its kernels; `Profile` documents the fields."""

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
        """Whether the total time of the kernels is within a fifth of the call's time."""
        return not self.kernels or not disagree(self.seconds, self.call_seconds)

    @property
    def work(self) -> Work:
        """The work of a call."""
        return sum((kernel.work for kernel in self.kernels), Work())

    def slowest(self, count: int = 10) -> list[KernelProfile]:
        """The slowest kernels, slowest first."""
        return sorted(self.kernels, key=lambda kernel: -kernel.seconds)[:count]
