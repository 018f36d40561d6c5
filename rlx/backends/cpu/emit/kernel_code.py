"""Loops kernels as LLVM IR, with sizes, strides and offsets as run-time arguments.

The function is `void symbol(i64* slots, i64* row, i64 begin, i64 end, i64 chunk)`: `slots` holds
addresses of buffers, `row` the numbers of `loops_row`, [begin, end) the iterations to run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from rlx.backends.cpu.emit.ir_text import QUICK
from rlx.backends.cpu.emit.layout import Layout, layout_of
from rlx.backends.cpu.emit.nests import NestWalk, nest_module
from rlx.backends.cpu.emit.panels import PanelWalk
from rlx.backends.cpu.emit.tiling import tiled
from rlx.ir.kernels import Buffer, Instruction, Loops

__all__ = ["KernelCode", "kernel_code", "loops_code", "loops_extent", "loops_row"]

_VERSION = "7"
_FEW = 1 << 20  # iterations; a kernel with fewer takes about a millisecond
TO_HALF = "__truncdfhf2"


@dataclass(frozen=True, slots=True)
class KernelCode:
    """Code that is compiled once for all kernels of equal `key`; the IR is generated on demand."""

    key: bytes
    symbol: str
    external: tuple[str, ...]
    produce: Callable[[str], str]

    @property
    def ir(self) -> str:
        """LLVM IR text of a module that defines `symbol`."""
        return self.produce(self.symbol)


def kernel_code(
    family: str, signature: object, external: tuple[str, ...], produce: Callable[[str], str]
) -> KernelCode:
    """A KernelCode whose key is the content hash of `signature`."""
    key = hashlib.sha256(repr((family, _VERSION, signature)).encode()).digest()[:20]
    return KernelCode(key, f"rlx_{family}_{key.hex()}", external, produce)


def external_symbols(kernel: Loops) -> tuple[str, ...]:
    """External functions that the run time binds: special functions, and float16 conversions that LLVM may call."""
    found = {f"rlx_special_{i.attribute}" for i in kernel.instructions if i.op == "special"}
    dtypes = (i.dtype for i in (*kernel.operands, *kernel.instructions))
    return tuple(sorted(found | {TO_HALF for dtype in dtypes if dtype.name == "float16"}))


def instruction_signature(instruction: Instruction) -> tuple[object, ...]:
    """The part of an instruction that its code depends on, accesses aside."""
    attribute = None if instruction.op == "load" else instruction.attribute
    return (instruction.op, instruction.args, instruction.dtype.name, attribute)


def loops_code(kernel: Loops, layout: Layout | None = None) -> KernelCode:
    """The code of a kernel; equal for kernels that differ in sizes, strides and offsets only."""
    layout = layout or layout_of(kernel)
    signature = (
        layout.signature,
        tuple(
            (i.op, i.dtype.name) if n in layout.constant_slots else instruction_signature(i)
            for n, i in enumerate(kernel.instructions)
        ),
        tuple((s.value, s.address, s.accumulate, s.initialize, s.guard, s.once) for s in kernel.stores),
    )
    external = external_symbols(kernel)
    walk = PanelWalk if layout.tiling.panel else NestWalk
    # not a part of the key: the first kernel decides for all sizes
    head = QUICK if math.prod(kernel.sizes) < _FEW else ""
    return kernel_code("loops", signature, external, lambda symbol: head + nest_module(walk(layout), symbol))


def loops_row(kernel: Loops, slot_of: Callable[[Buffer], int]) -> list[int]:
    """The run-time arguments of a kernel: slots, sizes, then offsets and strides of accesses."""
    return layout_of(kernel).row(slot_of)


def loops_extent(kernel: Loops, layout: Layout | None = None) -> int:
    """The number of iterations that [begin, end) of the compiled function counts."""
    kernel = (layout.tiling if layout else tiled(kernel)).kernel
    if kernel.chunks > 1:
        return kernel.sizes[0]
    return math.prod(kernel.sizes[: kernel.parallel]) if kernel.parallel else 1
