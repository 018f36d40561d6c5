"""The parts of the run-time system, and their LLVM IR."""

from __future__ import annotations

from rlx.backends.cpu.emit.ir_text import QUICK
from rlx.backends.cpu.routines.gemm import gemm_step
from rlx.backends.cpu.routines.radix_sort import sort_step
from rlx.backends.cpu.runtime.executor import (
    branch_step,
    carried_step,
    chunked_step,
    clock_step,
    copy_step,
    entry,
    host_step,
    kernel_step,
    long_kernel_step,
    parallel_step,
    scan_step,
    while_step,
)
from rlx.backends.cpu.runtime.known_calls import call_jitted
from rlx.backends.cpu.runtime.native import NativeFunction
from rlx.backends.cpu.runtime.native_compiler import filler_text, module_text
from rlx.backends.cpu.runtime.parallel_regions import launch
from rlx.backends.cpu.runtime.row_tile_steps import row_tiles_step

__all__ = ["PARTS_OF_RUNTIME", "runtime_text"]

# The run-time system in parts, each compiled when a plan first needs it; functions that several
# parts call are in each part, and keep their state in the pool and in frames.
PARTS_OF_RUNTIME: dict[str, tuple[NativeFunction, ...]] = {
    "core": (entry, kernel_step, long_kernel_step, parallel_step, chunked_step, copy_step, host_step, launch),
    "products": (gemm_step, row_tiles_step),
    "control": (carried_step, scan_step, while_step, branch_step),
    "sorting": (sort_step,),
    "clock": (clock_step,),
    "calls": (call_jitted,),
}


def runtime_text(part: str) -> str:
    """LLVM IR of a part of the run-time system, with `rlx_runtime(words)` giving its addresses in order."""
    functions = PARTS_OF_RUNTIME[part]
    return QUICK + module_text(functions) + filler_text("rlx_runtime", [function.name for function in functions])
