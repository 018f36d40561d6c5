"""Rough nanoseconds of a kernel on one thread: enough to decide about threads and the GIL.

rlx.code.cost counts the operations of nests, and has the rates of a processor; this module adds the other kernels.
"""

from __future__ import annotations

import math
from functools import reduce

from rlx.code.cost import PROCESSOR, cost_of, counts_of_nest
from rlx.ir.kernels import (
    Branch,
    Callback,
    Collective,
    Contract,
    Kernel,
    Library,
    Loops,
    Plan,
    RowTiles,
    Scan,
    Sort,
    While,
    all_kernels,
)
from rlx.ir.routine_work import routine_flops
from rlx.ir.size_functions import greatest, least, logarithm, whole

__all__ = [
    "STRETCH_NANOSECONDS", "THREAD_NANOSECONDS", "is_abandonable", "is_long", "kernel_cost", "longest_stretch",
    "parallel_parts", "plan_cost",
]  # fmt: skip

THREAD_NANOSECONDS = 5_000.0  # work that is worth one more thread
# a plan that checks for Ctrl-C less often runs outside the main thread; the estimate may be five times too low
STRETCH_NANOSECONDS = 5e7
HOST_STEP = 20_000.0
SORTED_ELEMENT = 10.0
UNKNOWN = 1e9
LIBRARY_FLOPS_PER_NANOSECOND = 5.0


def kernel_cost(kernel: Kernel) -> float:
    """Estimated nanoseconds; infinite loops count as very long."""
    if isinstance(kernel, Loops):
        return 1e9 * cost_of(counts_of_nest(kernel), PROCESSOR).seconds
    if isinstance(kernel, Contract):
        items = kernel.out.buffer.dtype.itemsize / 4
        return 200.0 + 0.02 * items * math.prod(kernel.out.shape) * kernel.depth
    if isinstance(kernel, RowTiles):
        return sum(map(kernel_cost, kernel.kernels))
    if isinstance(kernel, Scan):
        return kernel.length * (10.0 + plan_cost(kernel.body))
    if isinstance(kernel, Branch):
        return reduce(greatest, map(plan_cost, kernel.branches), 0.0)
    if isinstance(kernel, While):
        return UNKNOWN
    if isinstance(kernel, Sort):
        return HOST_STEP + SORTED_ELEMENT * kernel.keys * kernel.rows * kernel.length
    return HOST_STEP


def plan_cost(plan: Plan) -> float:
    """Estimated nanoseconds of a plan."""
    return sum(kernel_cost(kernel) for kernel in plan.kernels)


def parallel_parts(kernel: Kernel) -> int:
    """The most parts of a kernel's work that are each worth a thread."""
    return greatest(1, whole(least(kernel_cost(kernel) / THREAD_NANOSECONDS, 1 << 40)))


def longest_stretch(plan: Plan) -> float:
    """A rough upper bound for the nanoseconds between a plan's checks for Ctrl-C.

    0 if it is not abandonable.
    """
    return reduce(greatest, map(_stretch, all_kernels(plan)), 0.0) if is_abandonable(plan) else 0.0


def is_abandonable(plan: Plan) -> bool:
    """Whether another thread may run a plan: users' functions and exchanges belong to the thread that called it."""
    return not any(isinstance(kernel, (Callback, Collective)) for kernel in all_kernels(plan))


def is_long(plan: Plan) -> bool:
    """Whether a plan is abandonable and long, and runs in one thread that does not check for Ctrl-C."""
    return is_abandonable(plan) and max(plan_cost(plan), longest_stretch(plan)) >= STRETCH_NANOSECONDS


def _stretch(kernel: Kernel) -> float:
    """Nanoseconds of a serial loop, a sort or a routine; other kernels look often enough."""
    if isinstance(kernel, Loops) and not kernel.parallel:
        return kernel_cost(kernel) / kernel.chunks
    if isinstance(kernel, Sort):
        return kernel.rows * kernel.length * logarithm(kernel.length + 2)
    if isinstance(kernel, Library):
        return (routine_flops(kernel) or 0.0) / LIBRARY_FLOPS_PER_NANOSECOND
    return 0.0
