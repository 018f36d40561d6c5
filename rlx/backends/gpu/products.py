"""Matrix products: tiles of the result in registers, of the operands in a group's memory."""

from __future__ import annotations

import math

import numpy as np

from rlx.backends.c.types import literal, register_type, suffix
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, ceiling, step_of
from rlx.backends.loops.decompose import contract_as_loops
from rlx.backends.loops.dialect import Parameter
from rlx.ir.kernels import Access, Contract, Instruction, Loops, Operand, Store

__all__ = ["product_as_loops", "tiled_product"]

_TILE = 64  # rows and columns of the result that a group makes
_DEPTH = 16  # and how much of the operands it has at a time
_EACH = 4  # rows and columns of an item
_LEAST = 16  # smaller results are made by items, or rows, of their own
_LONG = 64  # a sum of so many products is shared by items, where there are few sums


def product_as_loops(kernel: Contract, limits: Limits) -> Loops | None:
    """A nest for a product; None where tiles are better."""
    dtype = kernel.out.buffer.dtype
    results = kernel.batches * kernel.rows * kernel.columns
    plain = dtype.kind == "f" and kernel.summed_in == dtype and not kernel.tf32
    if plain and results < limits.units * limits.group and kernel.depth >= _LONG and _is_thin(kernel):
        return _as_rows(kernel)
    if plain and not _is_thin(kernel) and kernel.depth and results:
        return None
    return contract_as_loops(kernel)


def _is_thin(kernel: Contract) -> bool:
    return min(kernel.rows, kernel.columns) < _LEAST


def _as_rows(kernel: Contract) -> Loops:
    """Every element of the result as a reduced row."""
    shape = (*kernel.out.shape[:-2], kernel.rows, kernel.columns, kernel.depth)
    dtype = kernel.out.buffer.dtype

    def strides(operand: Operand, row: int, column: int, deep: int) -> tuple[int, ...]:
        return (*operand.strides[:-2], row, column, deep)

    left = Access(0, strides(kernel.lhs, kernel.lhs.strides[-2], 0, kernel.lhs.strides[-1]), kernel.lhs.offset)
    right = Access(1, strides(kernel.rhs, 0, kernel.rhs.strides[-1], kernel.rhs.strides[-2]), kernel.rhs.offset)
    out = Access(2, strides(kernel.out, kernel.out.strides[-2], kernel.out.strides[-1], 0), kernel.out.offset)
    instructions = (
        Instruction("load", (), dtype, left),
        Instruction("load", (), dtype, right),
        Instruction("mul", (0, 1), dtype),
        Instruction("reduce", (2,), dtype, "add"),
    )
    added = "add" if kernel.accumulate else None
    return Loops(
        shape, len(shape) - 1, (kernel.lhs.buffer, kernel.rhs.buffer, kernel.out.buffer), instructions,
        (Store(3, out, accumulate=added, once=kernel.accumulate),), len(shape) - 1,
        origins=kernel.origins, label=kernel.label or "matmul",
    )  # fmt: skip


def tiled_product(kernel: Contract, limits: Limits, dialect: DeviceDialect) -> Step:
    """A group makes 64 rows and columns of a result, an item 4 of each; operands go by in slices of 16."""
    dtype, (m, n, k) = kernel.out.buffer.dtype, (kernel.rows, kernel.columns, kernel.depth)
    kind, zero, fma = register_type(dtype), literal(dtype, 0), f"fma{suffix(dtype)}"
    tiles = (ceiling(m, _TILE), ceiling(n, _TILE))
    across = _TILE // _EACH
    items = across * across
    largest = max(o.buffer.size for o in (kernel.lhs, kernel.rhs, kernel.out))
    with dialect.positions(limits.wide or largest + _TILE * _TILE >= 1 << 30):
        item = dialect.number_in_group()
        batch = [f"point / {tiles[0] * tiles[1]}u"]
        indices = []
        for number, size in reversed([*enumerate(kernel.out.shape[:-2])]):
            indices.append(dialect.fixed(f"batch{number}", f"{batch[0]} % {size}u"))
            batch[0] = f"{batch[0]} / {size}u"

        def begin(operand: Operand) -> str:
            terms = [(s, f"batch{d}") for d, s in enumerate(operand.strides[:-2]) if s]
            return dialect.position(terms, operand.offset)

        def load(name: str, operand: Operand, outer: str, sizes: tuple[int, int], deep_first: bool) -> list[str]:
            """A slice of an operand; neighbours read neighbours, whichever axis those are along."""
            row, column = operand.strides[-2:]
            free, deep = (column, row) if deep_first else (row, column)
            near_deep = deep == 1 and free != 1
            split = (
                f"const int d = i % {_DEPTH}, f = i / {_DEPTH};" if near_deep
                else f"const int f = i % {_TILE}, d = i / {_TILE};"
            )  # fmt: skip
            place = dialect.position([(free, f"({outer} + f)"), (deep, "(depth + d)")], 0)
            inside = f"{outer} + f < {sizes[0]} && depth + d < {sizes[1]}"
            return [
                f"for (int i = {item}; i < {_TILE * _DEPTH}; i += {items}) {{",
                f"    {split}",
                f"    {name}_tile[d][f] = {inside} ? {name}[{name}_begin + {place}] : {zero};",
                "}",
            ]

        target = dialect.position([(kernel.out.strides[-2], "row"), (kernel.out.strides[-1], "column")], 0)
        combine = f"out[out_begin + {target}] + sums[r][c]" if kernel.accumulate else "sums[r][c]"
        body = [
            f"{dialect.group_space} {kind} lhs_tile[{_DEPTH}][{_TILE} + 1];",
            f"{dialect.group_space} {kind} rhs_tile[{_DEPTH}][{_TILE} + 1];",
            dialect.number("point", f"({dialect.number_type}){dialect.group_number()}"),
            dialect.fixed("first_column", f"point % {tiles[1]}u * {_TILE}"),
            dialect.fixed("first_row", f"point / {tiles[1]}u % {tiles[0]}u * {_TILE}"),
            *indices,
            *(
                dialect.fixed(f"{name}_begin", begin(operand))
                for name, operand in (("lhs", kernel.lhs), ("rhs", kernel.rhs), ("out", kernel.out))
            ),
            f"const int across = {item} % {across}, down = {item} / {across};",
            f"{kind} sums[{_EACH}][{_EACH}];",
            f"for (int r = 0; r < {_EACH}; ++r) for (int c = 0; c < {_EACH}; ++c) sums[r][c] = {zero};",
            dialect.loop("depth", "0", str(k)).replace("++depth", f"depth += {_DEPTH}"),
            *(f"    {line}" for line in load("lhs", kernel.lhs, "first_row", (m, k), False)),
            *(f"    {line}" for line in load("rhs", kernel.rhs, "first_column", (n, k), True)),
            f"    {dialect.barrier()}",
            f"    {dialect.unroll}",
            f"    for (int d = 0; d < {_DEPTH}; ++d) {{",
            f"        {kind} left[{_EACH}], right[{_EACH}];",
            f"        for (int e = 0; e < {_EACH}; ++e) {{",
            f"            left[e] = lhs_tile[d][down + {across} * e];",
            f"            right[e] = rhs_tile[d][across + {across} * e];",
            "        }",
            f"        for (int r = 0; r < {_EACH}; ++r)",
            f"            for (int c = 0; c < {_EACH}; ++c) sums[r][c] = {fma}(left[r], right[c], sums[r][c]);",
            "    }",
            f"    {dialect.barrier()}",
            "}",
            f"for (int r = 0; r < {_EACH}; ++r)",
            f"    for (int c = 0; c < {_EACH}; ++c) {{",
            f"        {dialect.fixed('row', f'first_row + down + {across} * r')}",
            f"        {dialect.fixed('column', f'first_column + across + {across} * c')}",
            f"        if (row < {m} && column < {n}) out[out_begin + {target}] = {combine};",
            "    }",
        ]
    buffers = [kernel.lhs.buffer, kernel.rhs.buffer, kernel.out.buffer]
    parameters = [Parameter(name, np.dtype(dtype), name == "out") for name in ("lhs", "rhs", "out")]
    groups = math.prod(tiles) * kernel.batches
    return step_of(kernel.label or "matmul", "tiled product", dialect, parameters, buffers, body, groups, items)
