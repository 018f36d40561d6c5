"""What a compiled plan looks like: its loop nests, LLVM IR and machine code."""

from __future__ import annotations

from collections.abc import Iterator

from rlx.backends.numba.carried import carried_code
from rlx.backends.numba.compile import assembly, optimized_ir
from rlx.backends.numba.emit import KernelCode, loops_code
from rlx.backends.numba.loop_text import loop_text
from rlx.ir.kernels import Branch, Kernel, Loops, Plan, Scan, While

__all__ = ["plan_texts"]


def plan_texts(plan: Plan) -> dict[str, str]:
    """Loop nests of every kernel in order; IR and assembly of every distinct one."""
    kernels = list(_kernels(plan))
    nests = [loop_text(kernel) for kernel in kernels if isinstance(kernel, Loops)]
    codes = {code.key: code for kernel in kernels if (code := _code(kernel)) is not None}
    return {
        "loops": "\n\n".join(nests),
        "llvm": "\n\n".join(optimized_ir(code.ir) for code in codes.values()),
        "assembly": "\n\n".join(assembly(code.ir) for code in codes.values()),
    }


def _code(kernel: Kernel) -> KernelCode | None:
    if isinstance(kernel, Loops):
        return loops_code(kernel)
    return carried_code(kernel) if isinstance(kernel, (Scan, While)) else None


def _kernels(plan: Plan) -> Iterator[Kernel]:
    """Every kernel that is compiled, those of loop bodies and branches included."""
    for kernel in plan.kernels:
        yield kernel
        if isinstance(kernel, Scan) and carried_code(kernel) is None:
            yield from _kernels(kernel.body)
        elif isinstance(kernel, While) and carried_code(kernel) is None:
            yield from _kernels(kernel.condition)
            yield from _kernels(kernel.body)
        elif isinstance(kernel, Branch):
            for branch in kernel.branches:
                yield from _kernels(branch)
