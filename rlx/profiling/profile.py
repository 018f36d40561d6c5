"""rlx.profile: the time of every kernel of a call, next to its roofline and the line that wrote it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlx.backends.timing import StepTime, TimedStep
from rlx.config import scoped
from rlx.errors import RlxError
from rlx.ir.kernels import Buffer, Contract, Kernel, Loops, RowTiles
from rlx.ir.program import Equation, Origin
from rlx.ir.work import Work, certain_work, kernel_work
from rlx.profiling.measured import KernelProfile, Measured
from rlx.profiling.page import profile_markup, profile_table, profile_warnings
from rlx.profiling.peaks import peaks_for
from rlx.profiling.pictures import beside, roofline_picture, timeline
from rlx.profiling.roofline import Evidence, Peaks
from rlx.profiling.steady import steady_sample
from rlx.profiling.timed_call import TimedCall
from rlx.profiling.trace_file import write_trace

__all__ = ["KernelProfile", "Profile", "profile"]


@dataclass(frozen=True)
class Profile(Measured):
    """The kernels of a call with their times. Print it for a table; see also `slowest` and `save_trace`.

    calls: how many runs were looked at; medians are over the quicker half of them. seconds: the kernels'
    times together. call_seconds: a whole run without clocks, from Python: what it takes longer than the
    kernels is the call itself; quickest_seconds: the least of these times. steady: whether the times
    stayed the same over the runs. median_run: the run in the middle.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> found = rlx.profile(lambda x: jnp.tanh(x).sum(), runs=2)(jnp.ones(1000))
    >>> found.calls >= 2, len(found.kernels), found.seconds > 0
    (True, 1, True)
    """

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against these times; tables and pages say it, too."""
        return profile_warnings(self)

    def save_trace(self, path: str | Path) -> Path:
        """Write the median run as Chrome trace events, for ui.perfetto.dev or chrome://tracing; -> the path."""
        return write_trace(Path(path), self)

    def timeline(self, axes: Any = None) -> Any:
        """Draw the median run with matplotlib, a row for each kernel; -> the axes, new ones if none are given.

        Raises UnsupportedError without matplotlib.
        """
        return timeline(self, axes)

    def roofline(self, axes: Any = None) -> Any:
        """Draw each kernel's GFLOP/s over its operations a byte, under what the machine's peaks allow; -> the axes."""
        return roofline_picture(self, axes)

    def beside(self, before: Measured, axes: Any = None) -> Any:
        """Draw the times of kernels before a change beside these; -> the axes."""
        return beside(before, self, axes)

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
      runs: at least so many runs, of the quicker half of which the medians are. As many without clocks come in
        between, some before to warm up, and more, for about two seconds at most, where times are not steady.

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
        sample = steady_sample(call.round, runs)
        timed = sorted(_timed(call.steps, [run.times for run in sample.runs]), key=lambda found: _order(found.path))
        with scoped(device=call.device):
            peaks = peaks_for([evidence for found in timed if (evidence := found.evidence()) is not None])
        kernels = tuple(found.profile(peaks) for found in timed)
        return Profile(
            call.name, call.device, len(sample.rounds), kernels, sum(kernel.seconds for kernel in kernels),
            sample.call_seconds, sample.quickest_seconds, peaks, call.steps, sample.median_run, sample.steady,
        )  # fmt: skip

    return profiled


@dataclass(frozen=True)
class _Timed:
    """A kernel, and what a sample of runs tells of it; work: of one of its runs."""

    path: str
    kernel: Kernel
    seconds: float
    runs: int
    work: Work

    def evidence(self) -> Evidence | None:
        """What it tells about the machine; None where its time or its work is not known."""
        if not (self.seconds and self.runs and self.work.exact):
            return None
        return Evidence(self.work, certain_work(self.kernel), self.seconds / self.runs, _itemsize(self.kernel))

    def profile(self, peaks: Peaks) -> KernelProfile:
        """Its row of the table; its roofline is not known where more is counted than can have been done."""
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
            _origins(self.kernel),
        )


def _timed(steps: Sequence[TimedStep], times: Sequence[Sequence[StepTime]]) -> Iterator[_Timed]:
    """What several runs tell of each kernel."""
    # what a loop does is counted where it is timed: at the kernels inside, if those are
    holders = {step.path.rsplit(".", 2)[0] for step in steps if "." in step.path}
    for number, (path, kernel) in enumerate(steps):
        if kernel is not None:
            seconds = statistics.median(run[number].nanoseconds for run in times) / 1e9
            work = Work() if path in holders else kernel_work(kernel)
            yield _Timed(path, kernel, seconds, times[-1][number].runs, work)


def _order(path: str) -> tuple[tuple[int, str], ...]:
    """Kernels by number, and what is inside one behind it."""
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in path.split("."))


def _itemsize(kernel: Kernel) -> int:
    """Bytes of the real floats that the kernel computes with: the widest, but of several products the narrowest."""
    if isinstance(kernel, Loops):
        return max((i.dtype.itemsize for i in kernel.instructions if i.dtype.kind == "f"), default=4)
    products = [k for k in kernel.kernels if isinstance(k, Contract)] if isinstance(kernel, RowTiles) else []
    if products:
        return min(map(_itemsize, products))
    return max(map(_float_size, (*kernel.reads, *kernel.writes)), default=4)


def _float_size(buffer: Buffer) -> int:
    """Bytes of a buffer's real floats; 4 if it holds something else."""
    kind, size = buffer.dtype.kind, buffer.dtype.itemsize
    return {"f": size, "c": size // 2}.get(kind, 4)


def _origins(kernel: Kernel) -> tuple[Origin, ...]:
    found = [o.origin if isinstance(o, Equation) else o for o in getattr(kernel, "origins", ())]
    return tuple(dict.fromkeys(o for o in found if o is not None))
