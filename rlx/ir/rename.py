"""Kernels over other buffers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlx.ir.kernels import Access, Buffer, Kernel, Loops

__all__ = ["renamed"]


def renamed(kernel: Kernel, renames: dict[Buffer, Buffer]) -> Kernel:
    """The kernel with some of its buffers replaced."""
    if not any(b in renames for b in (*kernel.reads, *kernel.writes)):
        return kernel

    def swap(value: Any) -> Any:
        if isinstance(value, Buffer):
            return renames.get(value, value)
        if isinstance(value, tuple):
            return tuple(swap(v) for v in value)
        if hasattr(value, "buffer"):
            return replace(value, buffer=swap(value.buffer))
        return value

    fields = kernel.__dataclass_fields__
    buffers = {
        name: swap(getattr(kernel, name))
        for name in fields
        if name not in ("equations", "origins", "instructions", "stores", "sizes", "offsets")
    }
    result = replace(kernel, **buffers)
    return _distinct_operands(result) if isinstance(result, Loops) else result


def _distinct_operands(kernel: Loops) -> Loops:
    """One operand for each buffer, after two operands became the same."""
    if len(set(kernel.operands)) == len(kernel.operands):
        return kernel
    operands = tuple(dict.fromkeys(kernel.operands))
    number = {old: operands.index(buffer) for old, buffer in enumerate(kernel.operands)}

    def moved(access: Access) -> Access:
        return replace(access, operand=number[access.operand])

    instructions = tuple(replace(i, attribute=moved(i.attribute)) if i.op == "load" else i for i in kernel.instructions)
    stores = tuple(replace(s, access=moved(s.access)) for s in kernel.stores)
    return replace(kernel, operands=operands, instructions=instructions, stores=stores)
