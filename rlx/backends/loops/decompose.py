"""Kernels in terms of Loops, for backends that do not claim them."""

from __future__ import annotations

from itertools import count

import numpy as np

from rlx.ir.kernels import Access, Contract, Instruction, Loops, Operand, Store

__all__ = ["contract_as_loops"]


def contract_as_loops(kernel: Contract) -> Loops:
    """A matrix product as loops over (batches, rows, depth, columns), which accumulate along contiguous columns.

    Complex products use real and imaginary parts. Does not raise: every Contract has this form.
    """
    batch = tuple(size for size in kernel.out.shape[:-2] if size != 1)
    rows, columns, depth = kernel.rows, kernel.columns, kernel.depth
    sizes = (*batch, rows, depth, columns)
    outer = len(batch) + 2
    is_complex = kernel.out.buffer.dtype.kind == "c"
    scale = 2 if is_complex else 1
    real = kernel.out.buffer.dtype.type(0).real.dtype if is_complex else kernel.out.buffer.dtype
    numbers = count()
    instructions: list[Instruction] = []

    def emit(op: str, *args: int, attribute: object = None) -> int:
        instructions.append(Instruction(op, args, np.dtype(real), attribute))
        return next(numbers)

    def strides(operand: Operand, row: int, deep: int, column: int) -> tuple[int, ...]:
        batches = zip(kernel.out.shape[:-2], operand.strides[:-2], strict=True)
        return tuple(scale * s for s in (*(s for size, s in batches if size != 1), row, deep, column))

    left = strides(kernel.lhs, kernel.lhs.strides[-2], kernel.lhs.strides[-1], 0)
    right = strides(kernel.rhs, 0, kernel.rhs.strides[-2], kernel.rhs.strides[-1])
    out = strides(kernel.out, kernel.out.strides[-2], 0, kernel.out.strides[-1])
    parts = range(scale)
    x = [emit("load", attribute=Access(0, left, scale * kernel.lhs.offset + part)) for part in parts]
    y = [emit("load", attribute=Access(1, right, scale * kernel.rhs.offset + part)) for part in parts]
    if is_complex:
        values = [
            emit("sub", emit("mul", x[0], y[0]), emit("mul", x[1], y[1])),
            emit("add", emit("mul", x[0], y[1]), emit("mul", x[1], y[0])),
        ]
    else:
        values = [emit("mul", x[0], y[0])]
    fresh = not kernel.accumulate
    stores = tuple(
        Store(value, Access(2, out, scale * kernel.out.offset + part), accumulate="add", initialize=fresh)
        for part, value in enumerate(values)
    )
    return Loops(
        sizes=sizes,
        outer=outer,
        operands=(kernel.lhs.buffer, kernel.rhs.buffer, kernel.out.buffer),
        instructions=tuple(instructions),
        stores=stores,
        parallel=len(batch) + 1,
        origins=kernel.origins,
        label=kernel.label or "matmul",
        equations=kernel.equations,
    )
