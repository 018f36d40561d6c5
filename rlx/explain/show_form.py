"""The result of a compiler step as text: a program, nests or a plan."""

from __future__ import annotations

from rlx.ir.kernels import Plan
from rlx.ir.program import Program
from rlx.ir.show import show_lines, show_program
from rlx.ir.show_plan import describe_plan
from rlx.lowering.nest import Nests
from rlx.planning.schedule import schedule

__all__ = ["counted", "form_lines", "form_text"]


def form_text(form: Program | Nests | Plan) -> str:
    """A program as Python that runs; nests and plans as one line a kernel."""
    if isinstance(form, Program):
        return show_program(form)
    return describe_plan(schedule(form) if isinstance(form, Nests) else form)


def form_lines(form: Program | Nests | Plan) -> list[str]:
    """The lines to compare two stages by: equations, or kernels."""
    return show_lines(form) if isinstance(form, Program) else form_text(form).splitlines()


def counted(form: Program | Nests | Plan) -> str:
    """The number of equations or kernels."""
    if isinstance(form, Program):
        return f"{len(form.equations)} equations"
    if isinstance(form, Nests):
        return f"{len(form.steps)} nests and other kernels"
    return f"{len(form.kernels)} kernels"
