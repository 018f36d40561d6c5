"""Small scans and while loops as one native loop with the carries in registers."""

from __future__ import annotations

from collections.abc import Callable

from rlx.backends.numba.emit import KernelCode
from rlx.ir.kernels import Buffer, Scan, While

__all__ = ["carried_code", "carried_row"]


def carried_code(kernel: Scan | While) -> KernelCode | None:
    """The loop's code, or None where its body is not small enough."""
    return None


def carried_row(kernel: Scan | While, slot_of: Callable[[Buffer], int]) -> list[int]:
    """The run-time arguments of the loop's function."""
    return []
