"""The compiled parts of a plan: loop nests, and whole loops that are one function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rlx.backends.cpu.emit.carried import carried_code
from rlx.backends.cpu.emit.kernel_code import KernelCode, loops_code
from rlx.backends.cpu.emit.layout import Layout, layout_of
from rlx.ir.kernels import Kernel, Loops, Plan, RowTiles, Scan, While, members, nested_plans

__all__ = ["CompiledKernel", "compiled_kernels"]


class CompiledKernel(NamedTuple):
    """A kernel, its code, and the layout of a loop nest's arguments."""

    kernel: Kernel
    code: KernelCode
    layout: Layout | None


def compiled_kernels(plan: Plan) -> Iterator[CompiledKernel]:
    """The kernels with separate code, in the plan and in its nested plans."""
    for kernel in plan.kernels:
        for member in members(kernel):
            if isinstance(member, Loops):
                # in row tiles a kernel runs over ranges of whole rows, so it is not cut in tiles
                layout = layout_of(member, tile=not isinstance(kernel, RowTiles))
                yield CompiledKernel(member, loops_code(member, layout), layout)
        whole = carried_code(kernel) if isinstance(kernel, (Scan, While)) else None
        if whole is not None:
            yield CompiledKernel(kernel, whole, None)
            continue
        for inner in nested_plans(kernel):
            yield from compiled_kernels(inner)
