"""The picture of a run: how many times rlx's time another library takes, program by program."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from benchmarks.report import OTHERS, ratio, spoken

__all__ = ["COLOURS", "TEXT", "digest", "draw"]

# readable on white and on the dark grey of dark pages alike, and with colour blindness; a mark of its own each
TEXT = "#777777"
COLOURS = {"jax": "#2f7fd0", "torch": "#c8590f", "torch.compile": "#a86fb8", "numpy": "#1f8f6a"}
MARKS = {"jax": "o", "torch": "^", "torch.compile": "s", "numpy": "D"}


def digest(results: dict[str, Any]) -> str:
    """What the picture was drawn from; it stands in the picture, so that a test can tell an old one."""
    drawn = [[program["name"], program["median"]] for program in results["programs"]]
    return hashlib.blake2b(json.dumps(drawn).encode(), digest_size=16).hexdigest()


def draw(results: dict[str, Any], target: Path) -> None:
    """Write the picture as SVG: a row a program, a mark a library, to the right of 1 where rlx is faster."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    programs = results["programs"][::-1]
    settings = {"svg.hashsalt": "rlx", "svg.fonttype": "none", "font.size": 9.0, "text.color": TEXT}
    settings |= {"axes.edgecolor": TEXT, "xtick.color": TEXT, "ytick.color": TEXT, "axes.labelcolor": TEXT}
    with matplotlib.rc_context(settings):
        figure, axes = pyplot.subplots(figsize=(7.5, 0.24 * len(programs) + 1.2), layout="constrained")
        axes.set_xscale("log")
        for name in OTHERS:
            rows = [row for row, program in enumerate(programs) if name in program["median"]]
            if rows:
                values = [ratio(programs[row], name) for row in rows]
                axes.plot(values, rows, MARKS[name], color=COLOURS[name], markersize=5, label=name)
        axes.axvline(1.0, color=TEXT, linewidth=1.0)
        axes.set_yticks(range(len(programs)), [spoken(program["name"]) for program in programs])
        axes.set_ylim(-0.7, len(programs) - 0.3)
        axes.grid(axis="y", color=TEXT, alpha=0.25, linewidth=0.5)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
        axes.set_xlabel("time as a multiple of rlx's: right of 1×, rlx is faster")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside upper center", ncols=len(OTHERS), frameon=False)
        metadata = {"Date": None, "Creator": None, "Description": digest(results)}
        figure.savefig(target, format="svg", transparent=True, metadata=metadata)
        pyplot.close(figure)
