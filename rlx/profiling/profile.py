"""rlx.profile: the time of every kernel of a call, next to its roofline and the line that wrote it."""

from __future__ import annotations

import linecache
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlx.backends.timing import StepTime, TimedRun, TimedStep
from rlx.errors import RlxError
from rlx.ir.kernels import Kernel, Loops
from rlx.ir.program import Equation, Origin
from rlx.ir.work import Work, kernel_work
from rlx.profiling.page import profile_markup, profile_table
from rlx.profiling.peaks import Peaks, machine_peaks
from rlx.profiling.timed_call import TimedCall
from rlx.profiling.trace_file import write_trace

__all__ = ["KernelProfile", "Profile", "profile"]

WARM_UP_RUNS = 2


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a profiled call.

    path: its number in the plan, or the way to it ("3.body.0": the first kernel of the loop that is
    kernel 3). seconds: median over the runs of the call; a loop's is what the kernels in it do not
    tell. runs: how often it ran in one call. work: what all these runs compute and move. origins: the user's lines.
    roofline: the least time that the machine's peaks allow, in seconds, and `bound` what sets it.

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
        """The roofline's time as a part of the time taken; 1 is the machine's best."""
        return self.roofline / self.seconds if self.seconds and self.work.exact and self.roofline else None

    @property
    def source(self) -> str:
        """The first of the user's lines: file, line and text."""
        if not self.origins:
            return ""
        first = self.origins[0]
        text = linecache.getline(first.file, first.line).strip()
        return f"{os.path.basename(first.file)}:{first.line}" + (f"  {text}" if text else "")


@dataclass(frozen=True)
class Profile:
    """The kernels of a call with their times. Print it for a table; see also `slowest` and `save_trace`.

    seconds: the kernels' times together. call_seconds: a whole run without clocks, from Python: what it
    takes longer than the kernels is the call itself.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> found = rlx.profile(lambda x: jnp.tanh(x).sum(), runs=2)(jnp.ones(1000))
    >>> found.calls, len(found.kernels), found.seconds > 0
    (2, 1, True)
    """

    name: str
    device: str
    calls: int
    kernels: tuple[KernelProfile, ...]
    seconds: float
    call_seconds: float
    peaks: Peaks
    steps: tuple[TimedStep, ...]
    median_run: TimedRun

    @property
    def work(self) -> Work:
        """What a call computes and moves."""
        return sum((kernel.work for kernel in self.kernels), Work())

    def slowest(self, count: int = 10) -> list[KernelProfile]:
        """The kernels that took longest, longest first."""
        return sorted(self.kernels, key=lambda kernel: -kernel.seconds)[:count]

    def save_trace(self, path: str | Path) -> Path:
        """Write the median run as Chrome trace events, for ui.perfetto.dev or chrome://tracing; -> the path."""
        return write_trace(Path(path), self)

    def table(self) -> str:
        """A line for each kernel, in the order in which they run."""
        return profile_table(self)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return profile_markup(self)


def profile(fun: Callable[..., Any], runs: int = 10) -> Callable[..., Profile]:
    """A function of the same arguments as `fun` that runs it compiled and returns a Profile.

    Args:
      fun: a plain function or a jitted one. Its effects (callbacks, prints) happen at every run.
      runs: how many runs the medians are over; two more come first, to warm up.

    Returns: a function of arrays that gives the time of each kernel, the bytes and floating-point
      operations that it needs, what part of the machine's measured peak that is, and the user's
      line. Timing costs other calls nothing: the kernels are the same, run by a table of their own.
    Raises: RlxError if runs < 1; InputTypeError for arguments without values; UnsupportedError on a
      device whose kernels cannot be timed.

    >>> import rlx, rlx.numpy as jnp
    >>> found = rlx.profile(lambda x: jnp.tanh(x @ x).sum())(jnp.ones((64, 64)))
    >>> [kernel.kind for kernel in found.kernels], found.kernels[0].work.flops
    (['Contract', 'Loops'], 524288.0)
    """
    if runs < 1:
        raise RlxError(f"profile got runs={runs}.", "At least one run is needed.")

    def profiled(*args: Any, **kwargs: Any) -> Profile:
        call = TimedCall(fun, args, kwargs)
        peaks = machine_peaks()
        for _ in range(WARM_UP_RUNS):
            call.run()
        found = [call.run() for _ in range(runs)]
        plain = [call.plain_seconds() for _ in range(runs)]
        totals = [sum(step.nanoseconds for step in run.times) for run in found]
        middle = sorted(range(runs), key=totals.__getitem__)[runs // 2]
        kernels = _kernels(call.steps, [run.times for run in found], peaks)
        return Profile(
            call.name, call.device, runs, kernels, sum(kernel.seconds for kernel in kernels), statistics.median(plain),
            peaks, call.steps, found[middle],
        )  # fmt: skip

    return profiled


def _kernels(
    steps: Sequence[TimedStep], times: Sequence[Sequence[StepTime]], peaks: Peaks
) -> tuple[KernelProfile, ...]:
    holders = {step.path.rsplit(".", 2)[0] for step in steps if "." in step.path}
    kernels = []
    for number, (path, kernel) in enumerate(steps):
        if kernel is None:
            continue
        nanoseconds = statistics.median(run[number].nanoseconds for run in times)
        turns = times[-1][number].runs
        # what a loop does is counted where it is timed: at the kernels inside, if those are
        work = Work() if path in holders else kernel_work(kernel).repeated(turns)
        single = Work() if path in holders or not turns else kernel_work(kernel)
        computing, moving = peaks.seconds(single, _itemsize(kernel))
        kernels.append(
            KernelProfile(
                path,
                type(kernel).__name__,
                getattr(kernel, "label", ""),
                nanoseconds / 1e9,
                turns,
                work,
                max(computing, moving) * turns,
                "operations" if computing > moving else "bytes",
                _origins(kernel),
            )
        )
    return tuple(sorted(kernels, key=lambda found: _order(found.path)))


def _order(path: str) -> tuple[tuple[int, str], ...]:
    """Kernels by number, and what is inside one behind it."""
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in path.split("."))


def _itemsize(kernel: Kernel) -> int:
    """Bytes of the widest real float that the kernel computes with."""
    if isinstance(kernel, Loops):
        return max((i.dtype.itemsize for i in kernel.instructions if i.dtype.kind == "f"), default=4)
    dtypes = [buffer.dtype for buffer in (*kernel.reads, *kernel.writes)]
    return max((d.itemsize // (2 if d.kind == "c" else 1) for d in dtypes if d.kind in "fc"), default=4)


def _origins(kernel: Kernel) -> tuple[Origin, ...]:
    found = [o.origin if isinstance(o, Equation) else o for o in getattr(kernel, "origins", ())]
    return tuple(dict.fromkeys(o for o in found if o is not None))
