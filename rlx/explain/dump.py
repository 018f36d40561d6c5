"""Every stage of a compiled program as files, for RLX_DUMP."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlx.explain.show_form import counted, form_text
from rlx.ir.kernels import Plan
from rlx.ir.program import Program
from rlx.ir.show_plan import describe_plan, show_plan

__all__ = ["dump"]


def dump(stages: Sequence[Any], directory: str) -> Path:
    """Write the result of each compiler step into a folder of `directory`; returns the folder.

    The folder is named after the program and its fingerprint, so that a program that is compiled
    again overwrites its own files. Writers of several processes do not see each other's halves.
    """
    first: Program = stages[0].program
    folder = Path(directory) / f"{first.name}-{first.fingerprint.hex()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for number, stage in enumerate(stages):
        suffix = "py" if isinstance(stage.form, Program) else "txt"
        head = f"# {first.name} after {stage.name}: {counted(stage.form)}, {stage.seconds * 1e3:.3f} ms\n"
        _write(folder / f"{number:02}-{stage.name}.{suffix}", head + form_text(stage.form))
    plan: Plan = stages[-1].form
    _write(folder / "plan.txt", describe_plan(plan))
    _write(folder / "plan.py", show_plan(plan))
    _write(folder / "fusion.txt", "".join(f"{decision}\n" for decision in plan.report or ()))
    return folder


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(f"{path.suffix}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
