"""rlx.profile: the time of every kernel of a call, next to its roofline and the line that wrote it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlx.backends.timing import StepTime, TimedStep
from rlx.config import scoped
from rlx.errors import OptionError, RlxError, describe
from rlx.ir.kernels import Buffer, Contract, Kernel, Loops, RowTiles
from rlx.ir.program import Origin
from rlx.ir.work import Work, certain_work, kernel_work
from rlx.profiling.measured import KernelProfile, Measured
from rlx.profiling.page import profile_markup, profile_table, profile_warnings
from rlx.profiling.peaks import peaks_for
from rlx.profiling.pictures import beside, roofline_picture, timeline
from rlx.profiling.roofline import Evidence, Peaks
from rlx.profiling.steady import steady_sample
from rlx.profiling.timed_call import TimedCall
from rlx.profiling.trace_file import write_trace
from rlx.trace.flat import check_function

__all__ = ["KernelProfile", "Profile", "profile"]


@dataclass(frozen=True)
class Profile(Measured):
    """The kernels of a call with their times. Print it for a table; see also `slowest` and `save_trace`.

    calls: the number of runs; medians are over the quicker half. seconds: the total time of the kernels. call_seconds:
    the time of a whole run without timers, measured in Python; the part that exceeds the kernels is the overhead of the
    call. quickest_seconds: the least of these times. steady: whether the times were stable over the runs. median_run:
    the median run.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> found = rlx.profile(lambda x: jnp.tanh(x).sum(), runs=2)(jnp.ones(1000))
    >>> found.calls >= 2, len(found.kernels), found.seconds > 0
    (True, 1, True)
    """

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt these times; tables and pages also show them."""
        return profile_warnings(self)

    def save_trace(self, path: str | Path) -> Path:
        """Write the median run as Chrome trace events, for ui.perfetto.dev or chrome://tracing; -> the path."""
        return write_trace(Path(path), self)

    def timeline(self, axes: Any = None) -> Any:
        """Draw the median run with matplotlib, a row for each kernel; -> the axes, by default new ones.

        Raises UnsupportedError without matplotlib.
        """
        return timeline(self, axes)

    def roofline(self, axes: Any = None) -> Any:
        """Draw each kernel's GFLOP/s over its operations per byte, under the machine's roofline; -> the axes."""
        return roofline_picture(self, axes)

    def beside(self, before: Measured, axes: Any = None) -> Any:
        """Draw the kernels' times before a change next to these; -> the axes."""
        return beside(before, self, axes)

    def table(self) -> str:
        """A line for each kernel, in execution order."""
        return profile_table(self)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return profile_markup(self)


def profile(fun: Callable[..., Any], runs: int = 10) -> Callable[..., Profile]:
    """Return a function with the arguments of `fun` that runs it compiled and returns a Profile.

    Args:
      fun: a plain function or a jitted one. Its side effects (callbacks, prints) happen in every run.
      runs: the minimum number of runs; medians are over the quicker half. The same number of runs without timers
        alternates with them. There are a few warm-up runs, and more runs, for about two seconds at most, until steady.
        A function that exchanges arrays with other processes is profiled by all of them; its number of runs then
        depends on `runs` only.

    Returns: a function of arrays that returns the time of each kernel, the bytes and floating-point operations that it
      needs, its fraction of the machine's measured peak, and the user's line. Profiling does not slow other calls down:
      it runs the same kernels from a separate table.
    Raises: RlxError if runs < 1; OptionError if it is not an integer; InputTypeError for arguments without values;
      UnsupportedError on a device whose kernels cannot be timed.

    >>> import rlx, rlx.numpy as jnp
    >>> found = rlx.profile(lambda x: jnp.tanh(x @ x).sum())(jnp.ones((64, 64)))
    >>> [kernel.kind for kernel in found.kernels], found.kernels[0].work.flops
    (['Contract', 'Loops'], 524288.0)
    """
    check_function(fun)
    if not isinstance(runs, (int, np.integer)):
        raise OptionError(
            f"profile got runs={describe(runs)}.", "Pass the arguments to the result: rlx.profile(f)(*args)."
        )
    if runs < 1:
        raise RlxError(f"profile got runs={runs}.", "At least one run is needed.")

    def profiled(*args: Any, **kwargs: Any) -> Profile:
        call = TimedCall(fun, args, kwargs)
        sample = steady_sample(call.round, runs, counted=call.exchanges)
        timed = sorted(_timed(call.steps, [run.times for run in sample.runs]), key=lambda found: _order(found.path))
        lines = call.lines()
        with scoped(device=call.device):
            peaks = peaks_for([evidence for found in timed if (evidence := found.evidence()) is not None])
        kernels = tuple(found.profile(peaks, lines) for found in timed)
        return Profile(
            call.name, call.device, len(sample.rounds), kernels, sum(kernel.seconds for kernel in kernels),
            sample.call_seconds, sample.quickest_seconds, peaks, call.steps, sample.median_run, sample.steady,
        )  # fmt: skip

    return profiled


@dataclass(frozen=True)
class _KernelTimes:
    """A kernel and its times in a sample of runs; work: the work of a single run."""

    path: str
    kernel: Kernel
    seconds: float
    runs: int
    work: Work

    def evidence(self) -> Evidence | None:
        """The kernel as evidence of the machine's peaks; None if its time or its work is not known."""
        if not (self.seconds and self.runs and self.work.exact):
            return None
        return Evidence(self.work, certain_work(self.kernel), self.seconds / self.runs, _itemsize(self.kernel))

    def profile(self, peaks: Peaks, lines: Mapping[int, tuple[Origin, ...]]) -> KernelProfile:
        """Its row of the table; its roofline is not known if the counted work exceeds the possible work."""
        evidence = self.evidence()
        known = evidence is not None and peaks.allow(evidence)
        computing, moving = peaks.seconds(self.work, _itemsize(self.kernel)) if known else (0.0, 0.0)
        roofline = max(computing, moving) * self.runs
        return KernelProfile(
            self.path,
            type(self.kernel).__name__,
            getattr(self.kernel, "label", ""),
            self.seconds,
            self.runs,
            self.work.repeated(self.runs),
            min(roofline, self.seconds),  # they may differ by the rounding of a division
            "" if not roofline else "operations" if computing > moving else "bytes",
            lines.get(id(self.kernel), ()),
        )


def _timed(steps: Sequence[TimedStep], times: Sequence[Sequence[StepTime]]) -> Iterator[_KernelTimes]:
    """The times of each kernel in several runs."""
    # a loop's work is counted where it is timed: at its inner kernels, if these are timed
    holders = {step.path.rsplit(".", 2)[0] for step in steps if "." in step.path}
    for number, (path, kernel) in enumerate(steps):
        if kernel is not None:
            seconds = statistics.median(run[number].nanoseconds for run in times) / 1e9
            work = Work() if path in holders else kernel_work(kernel)
            yield _KernelTimes(path, kernel, seconds, times[-1][number].runs, work)


def _order(path: str) -> tuple[tuple[int, str], ...]:
    """Sort key: kernels by number, inner kernels after their loop."""
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in path.split("."))


def _itemsize(kernel: Kernel) -> int:
    """Bytes of the real floats that the kernel computes with: the widest, but the narrowest of several products."""
    if isinstance(kernel, Loops):
        return max((i.dtype.itemsize for i in kernel.instructions if i.dtype.kind == "f"), default=4)
    products = [k for k in kernel.kernels if isinstance(k, Contract)] if isinstance(kernel, RowTiles) else []
    if products:
        return min(map(_itemsize, products))
    return max(map(_float_size, (*kernel.reads, *kernel.writes)), default=4)


def _float_size(buffer: Buffer) -> int:
    """Bytes of a buffer's real floats; 4 for other dtypes."""
    kind, size = buffer.dtype.kind, buffer.dtype.itemsize
    return {"f": size, "c": size // 2}.get(kind, 4)
