"""What a compiled plan looks like: its loop nests, LLVM IR and machine code."""

from __future__ import annotations

from collections.abc import Iterator

from rlx.backends.numba.carried import carried_code
from rlx.backends.numba.compile import assembly, optimized_ir
from rlx.backends.numba.emit import KernelCode, loops_code
from rlx.backends.numba.loop_text import loop_text
from rlx.backends.numba.native_library import host_reason
from rlx.backends.numba.table import inner_plans
from rlx.ir.kernels import Callback, Library, Loops, Plan, Scan, Sort, While
from rlx.ir.show_plan import describe_plan, show_plan

__all__ = ["plan_texts"]


def plan_texts(plan: Plan) -> dict[str, str]:
    """The plan as Python source, a line for each kernel, the loop nest of each, IR and assembly of every
    distinct function, and which kernels are steps of Python code."""
    codes = {code.key: code for code in _codes(plan)}
    return {
        "plan": show_plan(plan),
        "kernels": describe_plan(plan),
        "loops": "\n\n".join(_nests(plan)),
        "llvm": "\n\n".join(optimized_ir(code.ir) for code in codes.values()),
        "assembly": "\n\n".join(assembly(code.ir) for code in codes.values()),
        "host": "\n".join(_host_steps(plan)),
    }


def _host_steps(plan: Plan) -> Iterator[str]:
    """A line for each kernel that Python code runs, under its lock."""
    for kernel in plan.kernels:
        if isinstance(kernel, Sort):
            yield "sort: NumPy's"
        elif isinstance(kernel, Callback) and kernel.native is None:
            yield f"callback: {getattr(kernel.function, '__name__', 'a function')}"
        elif isinstance(kernel, Library) and (reason := host_reason(kernel)):
            yield f"{kernel.routine}: {reason}"
        for inner in inner_plans(kernel):
            yield from _host_steps(inner)


def _nests(plan: Plan) -> Iterator[str]:
    """The loop nests of a plan and of the plans inside it."""
    for kernel in plan.kernels:
        if isinstance(kernel, Loops):
            yield loop_text(kernel)
        for inner in inner_plans(kernel):
            yield from _nests(inner)


def _codes(plan: Plan) -> Iterator[KernelCode]:
    """What is compiled: kernels, and whole loops where those are one function."""
    for kernel in plan.kernels:
        if isinstance(kernel, Loops):
            yield loops_code(kernel)
            continue
        whole = carried_code(kernel) if isinstance(kernel, (Scan, While)) else None
        if whole is not None:
            yield whole
            continue
        for inner in inner_plans(kernel):
            yield from _codes(inner)
