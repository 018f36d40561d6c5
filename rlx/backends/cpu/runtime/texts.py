"""Listings of a compiled plan: its loop nests, LLVM IR and machine code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.backends.cpu.emit.plan_codes import compiled_kernels
from rlx.backends.cpu.routines.radix_sort import suits_radix_sort
from rlx.backends.cpu.runtime.compile import assembly, optimized_ir
from rlx.ir.kernels import Await, Callback, Collective, Kernel, Library, Plan, Sort
from rlx.ir.show_plan import describe_plan, show_host_steps, show_plan
from rlx.ir.user_functions import ArrayCall
from rlx.offered_names import LateModule

if TYPE_CHECKING:
    from rlx.backends.cpu.routines import native_library
else:
    native_library = LateModule("rlx.backends.cpu.routines.native_library")

__all__ = ["plan_texts"]


def plan_texts(plan: Plan) -> dict[str, str]:
    """The plan as Python source, a line for each kernel, the Python, IR and assembly of every
    distinct function, and which kernels are steps of Python code."""
    from rlx.backends.numba.listing import plan_listing  # only listings need the other backend

    codes = {found.code.key: found.code for found in compiled_kernels(plan)}
    return {
        "plan": show_plan(plan),
        "kernels": describe_plan(plan),
        "loops": plan_listing(plan),
        "llvm": "\n\n".join(optimized_ir(code.ir) for code in codes.values()),
        "assembly": "\n\n".join(assembly(code.ir) for code in codes.values()),
        "host": show_host_steps(plan, step_reason),
    }


def step_reason(kernel: Kernel) -> str | None:
    """The Python code that runs a kernel, and why; None if native code runs it."""
    if isinstance(kernel, Sort) and not suits_radix_sort(kernel):
        return "sort: NumPy's"
    if isinstance(kernel, Callback) and not isinstance(kernel.function, ArrayCall):
        return f"callback: {getattr(kernel.function, '__name__', 'a function')}"
    if isinstance(kernel, Await):
        return "await: an exchange ends"
    if isinstance(kernel, Collective):
        return f"{kernel.exchange.kind}: processes meet"
    if isinstance(kernel, Library) and (reason := native_library.host_reason(kernel)):
        return f"{kernel.routine}: {reason}"
    return None
