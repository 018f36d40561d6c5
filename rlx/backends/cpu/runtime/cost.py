"""Rough nanoseconds of a kernel on one thread: enough to decide about threads and the GIL.

What a kernel computes and moves is counted in rlx.ir.work; here it is guessed how long that takes.
"""

from __future__ import annotations

import math

from rlx.ir.kernels import Branch, Contract, Kernel, Loops, Plan, RowTiles, Scan, While
from rlx.ir.scalar import ALPHABET

__all__ = ["THREAD_NANOSECONDS", "kernel_cost", "parallel_parts", "plan_cost"]

THREAD_NANOSECONDS = 5_000.0  # work that is worth one more thread
HOST_STEP = 20_000.0
UNKNOWN = 1e9

_CHEAP = 0.04
_EXPENSIVE = 0.4
_VERY_EXPENSIVE = 100.0
_FREE = {"constant", "index"}
_EXPENSIVE_OPERATIONS = frozenset(op for op, facts in ALPHABET.items() if facts.cost > 1)


def _loops_cost(kernel: Loops) -> float:
    element = 0.0
    for instruction in kernel.instructions:
        if instruction.op == "special":
            element += _VERY_EXPENSIVE
        elif instruction.op in _EXPENSIVE_OPERATIONS:
            element += _EXPENSIVE
        elif instruction.op not in _FREE:
            element += _CHEAP
        if instruction.op == "load" and instruction.args:
            element += _EXPENSIVE
    for store in kernel.stores:
        element += _CHEAP if store.address is None and store.accumulate is None else _EXPENSIVE
    return element * math.prod(kernel.sizes)


def kernel_cost(kernel: Kernel) -> float:
    """Estimated nanoseconds; infinite loops count as very long."""
    if isinstance(kernel, Loops):
        return 5.0 + _loops_cost(kernel)
    if isinstance(kernel, Contract):
        items = kernel.out.buffer.dtype.itemsize / 4
        return 200.0 + 0.02 * items * math.prod(kernel.out.shape) * kernel.depth
    if isinstance(kernel, RowTiles):
        return sum(map(kernel_cost, kernel.kernels))
    if isinstance(kernel, Scan):
        return kernel.length * (10.0 + plan_cost(kernel.body))
    if isinstance(kernel, Branch):
        return max((plan_cost(branch) for branch in kernel.branches), default=0.0)
    if isinstance(kernel, While):
        return UNKNOWN
    return HOST_STEP


def plan_cost(plan: Plan) -> float:
    """Estimated nanoseconds of a plan."""
    return sum(kernel_cost(kernel) for kernel in plan.kernels)


def parallel_parts(kernel: Kernel) -> int:
    """Into how many parts a kernel's work may be cut and still be worth a thread each."""
    return max(1, int(min(kernel_cost(kernel) / THREAD_NANOSECONDS, 1 << 40)))
