"""Run a plan in NumPy: bind its buffers, place its temporaries in one arena, run its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from rlx.backends.reference.kernels import GARBAGE, Memory, RunPlan, run_kernel
from rlx.ir.kernels import Buffer, Kernel, Plan, RowTiles

__all__ = ["run_plan"]


def run_plan(
    plan: Plan,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    run: Callable[[Kernel, Memory, RunPlan], None] = run_kernel,
) -> None:
    """Run on flat arrays of the buffers' dtypes and sizes; `outputs` are written. `run` runs each kernel."""
    memory = _bind(plan, inputs, outputs)
    with np.errstate(all="ignore"):
        for kernel in plan.kernels:
            run(kernel, memory, partial(run_plan, run=run))


def _bind(plan: Plan, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Memory:
    arena = bytearray([GARBAGE]) * plan.arena
    local = {buffer for kernel in plan.kernels if isinstance(kernel, RowTiles) for buffer in kernel.local}
    temporaries = [b for b in plan.buffers if b.role == "temporary" and b not in local]
    memory: Memory = {buffer: _temporary(buffer, plan, arena) for buffer in temporaries}
    for buffer in plan.buffers:
        if buffer.role == "constant":
            memory[buffer] = buffer.elements
    memory.update(zip(plan.inputs, inputs, strict=True))
    memory.update(zip(plan.outputs, outputs, strict=True))
    return memory


def _temporary(buffer: Buffer, plan: Plan, arena: bytearray) -> np.ndarray:
    """The buffer's range in the arena, so that errors in memory planning show as wrong results."""
    if buffer not in plan.offsets:
        raise ValueError(f"temporary {buffer.name or buffer} has no offset in the arena")
    if buffer.size == 0:
        return np.empty(0, buffer.dtype)
    return np.ndarray((buffer.size,), buffer.dtype, arena, plan.offsets[buffer])
