"""One run of a profile as Chrome trace events (the JSON that Perfetto reads).

Format: "Trace Event Format", catapult project; timestamps and durations in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlx.profiling.measured import KernelProfile, Measured

__all__ = ["trace_events", "write_trace"]


def write_trace(path: Path, profile: Measured) -> Path:
    """Write the file; -> its path."""
    content = {
        "traceEvents": list(trace_events(profile)),
        "displayTimeUnit": "ns",
        "otherData": {"function": profile.name, "device": profile.device, "peaks": str(profile.peaks)},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def trace_events(profile: Measured) -> Iterator[dict[str, Any]]:
    """A complete event for each run of a kernel; a loop spans the kernels inside it."""
    for name, number in (("process_name", f"rlx {profile.name}"), ("thread_name", profile.device)):
        yield {"ph": "M", "name": name, "pid": 1, "tid": 1, "args": {"name": number}}
    by_path = {kernel.path: kernel for kernel in profile.kernels}
    events = list(profile.median_run.events)
    origin = events[0].begin if events else 0
    opened: dict[str, int] = {}  # loops and branches -> when their first kernel started
    for step, begin, end in events:
        path = profile.steps[step].path
        for holder in _holders(path):
            opened.setdefault(holder, begin)
        start = opened.pop(path, begin)
        yield _complete(by_path[path], start - origin, end - start)


def _holders(path: str) -> Iterator[str]:
    """The loops and branches that contain a kernel, outermost first."""
    parts = path.split(".")
    for count in range(1, len(parts) - 1, 2):
        yield ".".join(parts[:count])


def _complete(kernel: KernelProfile, begin: int, duration: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {"kernel": kernel.path, "bytes": kernel.work.bytes, "flops": kernel.work.flops}
    if kernel.label:
        arguments["operations"] = kernel.label
    return {
        "ph": "X",
        "name": kernel.title,
        "cat": kernel.kind,
        "pid": 1,
        "tid": 1,
        "ts": begin / 1e3,
        "dur": duration / 1e3,
        "args": arguments,
    }
