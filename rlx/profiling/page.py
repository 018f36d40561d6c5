"""A profile as a table of text, and as HTML for notebooks."""

from __future__ import annotations

import html

from rlx.columns import aligned
from rlx.profiling.measured import KernelProfile, Measured

__all__ = ["profile_markup", "profile_table", "profile_warnings"]

_HEADINGS = ("#", "line", "time", "share", "runs", "GB/s", "GFLOP/s", "roofline", "bound", "kernel")
_TEXT_COLUMNS = (0, 1, 8, 9)
_LABEL_WIDTH, _SOURCE_WIDTH = 34, 60


def profile_table(profile: Measured) -> str:
    """A header, a line for each kernel, the totals, and warnings."""
    rows = [_HEADINGS, *(_row(kernel, profile) for kernel in profile.kernels)]
    lines = [_head(profile), f"peaks: {profile.peaks}"]
    lines += aligned(rows, _TEXT_COLUMNS)
    return "\n".join([*lines, _sums(profile), *profile_warnings(profile)])


def profile_markup(profile: Measured) -> str:
    """The table as HTML; the bar in a time's cell is its fraction of the total."""
    parts = [f"<p><b>{html.escape(_head(profile))}</b><br>{html.escape(str(profile.peaks))}</p>", "<table><thead><tr>"]
    parts += [f"<th>{html.escape(heading)}</th>" for heading in _HEADINGS]
    parts.append("</tr></thead><tbody>")
    for kernel in profile.kernels:
        share = 100 * kernel.seconds / profile.seconds if profile.seconds else 0.0
        bar = f' style="background:linear-gradient(to right,#f2b8a0 {share:.1f}%,transparent {share:.1f}%)"'
        cells = [
            f"<td{bar if number == 2 else ''}>{html.escape(text)}</td>"
            for number, text in enumerate(_row(kernel, profile))
        ]
        parts.append(f"<tr>{''.join(cells)}</tr>")
    parts.append(f"</tbody></table><p>{html.escape(_sums(profile))}</p>")
    parts += [f"<p><b>{html.escape(warning)}</b></p>" for warning in profile_warnings(profile)]
    return "\n".join(parts)


def profile_warnings(profile: Measured) -> tuple[str, ...]:
    """A warning for each reason to doubt the times."""
    found = []
    if not profile.steady:
        found.append("not steady: times change from run to run (the machine may be busy), so medians may be far off")
    if not profile.agrees:
        found.append(
            f"kernels and call disagree by more than a fifth: the kernels took {_time(profile.seconds)},"
            f" an untimed call {_time(profile.call_seconds)}; "
            + (
                "a call cannot be shorter than its kernels, so profile again on an idle machine"
                if profile.seconds > profile.call_seconds
                else "the rest is the call itself (Python, memory for results, waking threads)"
            )
        )
    return tuple(found)


def _head(profile: Measured) -> str:
    return f"{profile.name} on {profile.device}, medians over the quicker half of {profile.calls} runs"


def _sums(profile: Measured) -> str:
    work = profile.work
    rest = max(0.0, profile.call_seconds - profile.seconds)
    moved = f"{work.bytes / 1e6:.3g} MB, {(work.flops + work.transcendentals) / 1e6:.3g} MFLOP"
    least = "" if work.exact else " at least"
    return (
        f"kernels {_time(profile.seconds)}{least}, {moved}; untimed call {_time(profile.call_seconds)}"
        f" ({_time(rest)} outside kernels), fastest {_time(profile.quickest_seconds)}"
    )


def _row(kernel: KernelProfile, profile: Measured) -> tuple[str, ...]:
    share = kernel.seconds / profile.seconds if profile.seconds else 0.0
    return (
        kernel.path,
        _cut(kernel.title, _SOURCE_WIDTH),
        _time(kernel.seconds),
        f"{share:.1%}",
        str(kernel.runs),
        _number(kernel.gigabytes_per_second),
        _number(kernel.gigaflops),
        "" if kernel.efficiency is None else f"{kernel.efficiency:.0%}",
        kernel.bound,
        _cut(f"{kernel.kind} {kernel.label}".strip(), _LABEL_WIDTH),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
