"""Plots of profiles with matplotlib: a timeline, a roofline, and a comparison of two profiles."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from rlx.errors import UnsupportedError
from rlx.profiling.measured import KernelProfile, Measured
from rlx.profiling.trace_file import trace_events

__all__ = ["beside", "roofline_picture", "timeline"]

_LABEL = 44
_BESIDE = 16  # rows of the largest differences


def axes_or_new(axes: Any, height: float) -> Any:
    """The given axes, or the axes of a new figure. Raises UnsupportedError without matplotlib."""
    if axes is not None:
        return axes
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        pyplot = None
    if pyplot is None:
        raise UnsupportedError("Plots of profiles need matplotlib.", "pip install matplotlib; tables work without it.")
    return pyplot.subplots(figsize=(8.0, height), layout="constrained")[1]


def timeline(profile: Measured, axes: Any = None) -> Any:
    """The median run: a bar for each run of a kernel, a row for each kernel."""
    events = [event for event in trace_events(profile) if event["ph"] == "X"]
    axes = axes_or_new(axes, 1.0 + 0.25 * len(profile.kernels))
    rows = {kernel.path: number for number, kernel in enumerate(profile.kernels)}
    for event in events:
        number = rows[event["args"]["kernel"]]
        axes.broken_barh([(event["ts"], event["dur"])], (number - 0.4, 0.8), color=f"C{number % 10}")
    axes.set_yticks(range(len(rows)), [_name(kernel) for kernel in profile.kernels], fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="µs", title=f"{profile.name}: the median run")
    return axes


def roofline_picture(profile: Measured, axes: Any = None) -> Any:
    """Each kernel by its operations per byte and its GFLOP/s, under the machine's roofline."""
    axes = axes_or_new(axes, 4.0)
    shown = [k for k in profile.kernels if k.gigaflops and k.work.bytes]
    intensities = [k.work.intensity for k in shown]
    low, high = min([*intensities, 0.05]) / 2, max([*intensities, 50.0]) * 2
    across = [low * (high / low) ** (step / 100) for step in range(101)]
    peaks = profile.peaks
    largest = max((k.work.bytes for k in shown), default=2**20)
    for bandwidth, style in ((peaks.bandwidth(2**27), "-"), (peaks.bandwidth(2**16), ":")):
        roof = [min(x * bandwidth, peaks.float32_products) / 1e9 for x in across]
        axes.plot(across, roof, style, color="gray", label=f"{bandwidth / 1e9:.0f} GB/s")
    for number, kernel in enumerate(shown):
        size = 20 + 80 * kernel.work.bytes / largest
        axes.scatter([kernel.work.intensity], [kernel.gigaflops], s=size, color=f"C{number % 10}", label=_name(kernel))
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s")
    axes.set_title(f"{profile.name}: roofline")
    axes.legend(fontsize=6)
    return axes


def beside(before: Measured, after: Measured, axes: Any = None) -> Any:
    """The times of two profiles' kernels by the text of their lines: the largest changes, and the totals."""
    times = [_by_name(profile.kernels) for profile in (before, after)]
    names = sorted(times[0] | times[1], key=lambda n: -abs(times[1].get(n, 0.0) - times[0].get(n, 0.0)))[:_BESIDE]
    rows = [("all kernels", before.seconds, after.seconds)]
    rows += [(name, times[0].get(name, 0.0), times[1].get(name, 0.0)) for name in names]
    axes = axes_or_new(axes, 1.0 + 0.35 * len(rows))
    places = range(len(rows))
    axes.barh([p - 0.2 for p in places], [1e6 * row[1] for row in rows], 0.38, color="C7", label="before")
    axes.barh([p + 0.2 for p in places], [1e6 * row[2] for row in rows], 0.38, color="C0", label="after")
    axes.set_yticks(places, [row[0][:_LABEL] for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="µs", title=f"{before.name} before, {after.name} after")
    axes.legend()
    return axes


def _by_name(kernels: Sequence[KernelProfile]) -> dict[str, float]:
    found: dict[str, float] = {}
    for kernel in kernels:
        name = kernel.source.partition("  ")[2] or kernel.title  # line numbers change with the program
        found[name] = found.get(name, 0.0) + kernel.seconds
    return found


def _name(kernel: KernelProfile) -> str:
    return f"{kernel.path} {kernel.title}"[:_LABEL]
