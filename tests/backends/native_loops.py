"""Run single Loops kernels through the CPU code generator, for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from rlx.backends.cpu.emit.kernel_code import KernelCode, loops_code, loops_extent, loops_row
from rlx.backends.cpu.runtime.compile import compile_ir
from rlx.ir.kernels import Loops

_SIGNATURE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)


_addresses: dict[bytes, int] = {}


def native(code: KernelCode) -> int:
    """The compiled function of a kernel; equal keys are compiled once."""
    if code.key not in _addresses:
        _addresses[code.key] = compile_ir(code.ir, code.symbol)[1]
    return _addresses[code.key]


def run_native(
    kernel: Loops,
    operands: Sequence[np.ndarray],
    cuts: Sequence[int] | None = None,
    address: int | None = None,
) -> None:
    """Run on flat arrays, one for each operand, in the pieces that `cuts` give."""
    function = _SIGNATURE(address or native(loops_code(kernel)))
    slots = np.array([array.ctypes.data for array in operands], np.int64)
    numbers = {id(b): n for n, b in reversed(list(enumerate(kernel.operands)))}
    row = np.array(loops_row(kernel, lambda buffer: numbers[id(buffer)]), np.int64)
    extent = loops_extent(kernel)
    if kernel.chunks > 1:
        edges = [extent * c // kernel.chunks for c in range(kernel.chunks + 1)]
    else:
        edges = sorted({0, extent, *(cuts or ())})
    for chunk, (begin, end) in enumerate(zip(edges, edges[1:], strict=False)):
        function(slots.ctypes.data, row.ctypes.data, begin, end, chunk)
