"""Fuse matrix products with the nests that only produce their operands and the nest that only reads their result.

The windows of a convolution are then never stored: the product reads their source. Biases and activations are
computed when the result is stored. Each group is a RowTiles of one tile (see ir.fused_products).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from rlx.ir.fused_products import is_map, operand_digits, result_digits, with_stores
from rlx.ir.kernels import Buffer, Contract, Instruction, Kernel, Loops, Operand, Plan, RowTiles
from rlx.ir.options import LoweringOptions
from rlx.ir.scalar import operation_cost
from rlx.planning.memory import arena_bytes
from rlx.planning.row_tiles import row_tiles_of

__all__ = ["fuse_products"]

_POSITION = np.dtype(np.int64)


def fuse_products(plan: Plan, options: LoweringOptions) -> Plan:
    """The plan with products of at least `options.products.fused` rows and columns grouped with their neighbours.

    Thinner products are grouped if the nest of an operand writes more than it reads, like the windows of a convolution.
    A plan with barriers stays unchanged if groups would take more memory.
    """
    least = options.products.fused
    if not least:
        return plan
    uses = _uses(plan.kernels)
    operands = {o.buffer for k in plan.kernels if _is_product(k) for o in (k.lhs, k.rhs) if uses[o.buffer] == 2}
    kernels = [part for kernel in plan.kernels for part in _parts(kernel, operands, options)]
    uses = _uses(kernels)
    taken: set[int] = set()
    groups: dict[int, RowTiles] = {}
    for number, kernel in enumerate(kernels):
        if _is_product(kernel):
            members = _members(number, kernels, uses, taken, options)
            if len(members) > 1 and (_is_large(kernel, least) or any(_grows(kernels[n]) for n in members)):
                taken.update(members)
                inside = [k for n in members if isinstance(k := kernels[n], (Loops, Contract))]
                groups[members[-1]] = row_tiles_of(inside, uses, 1, options.alignment)
    fused = tuple(groups.get(n, k) for n, k in enumerate(kernels) if n in groups or n not in taken)
    if plan.barriers and arena_bytes(fused, options.alignment) > arena_bytes(plan.kernels, options.alignment):
        return plan
    return replace(plan, kernels=fused)


def _uses(kernels: Sequence[Kernel]) -> Counter[Buffer]:
    """The number of kernels that touch each buffer."""
    return Counter(buffer for kernel in kernels for buffer in {*kernel.reads, *kernel.writes})


def _is_product(kernel: Kernel) -> TypeGuard[Contract]:
    return isinstance(kernel, Contract) and min(kernel.rows, kernel.columns, kernel.depth) > 0


def _is_large(product: Contract, least: int) -> bool:
    return min(product.rows, product.columns) >= least


def _grows(kernel: Kernel) -> bool:
    """Whether a nest writes more than it reads."""
    written, read = (sum(b.nbytes for b in side) for side in ({*kernel.writes}, {*kernel.reads}))
    return isinstance(kernel, Loops) and written > read


def _parts(kernel: Kernel, operands: set[Buffer], options: LoweringOptions) -> list[Kernel]:
    """A nest that makes operands of several products as one nest for each of those, and one for the rest."""
    if not isinstance(kernel, Loops) or len(kernel.stores) < 2 or not _is_cheap(kernel, options):
        return [kernel]
    apart = [s for s in kernel.stores if kernel.operands[s.access.operand] in operands]
    apart = [s for s in apart if kernel.operands[s.access.operand].role == "temporary"]
    rest = [s for s in kernel.stores if s not in apart]
    return [with_stores(kernel, part) for part in (*([s] for s in apart), rest) if part]


def _is_cheap(kernel: Loops, options: LoweringOptions) -> bool:
    """Whether a map is cheap enough to be computed again."""
    cheap = sum(operation_cost(i.op) for i in kernel.instructions if _is_value(i)) <= options.products.fused_cost
    near = not any(_reads(kernel, n) for i in kernel.instructions if i.op == "load" for n in i.args)
    return is_map(kernel) and cheap and near and {*kernel.reads}.isdisjoint(kernel.writes)


def _is_value(instruction: Instruction) -> bool:
    """Whether an instruction makes more than a position, or a condition."""
    return instruction.dtype != _POSITION and instruction.dtype.kind != "b"


def _reads(kernel: Loops, number: int) -> bool:
    """Whether an instruction depends on memory, and not only on indices."""
    instruction = kernel.instructions[number]
    return instruction.op == "load" or any(_reads(kernel, n) for n in instruction.args)


def _members(
    number: int, kernels: Sequence[Kernel], uses: Mapping[Buffer, int], taken: set[int], options: LoweringOptions
) -> list[int]:
    """A product and the kernels fused with it, by their numbers in order; they run at the position of the last one."""
    product = kernels[number]
    assert isinstance(product, Contract)
    found = [number]
    reader = _reader(number, kernels)
    if reader is not None and reader not in taken:
        inside = {*kernels[reader].writes}
        if inside.isdisjoint(product.reads) and _stays(product, number, reader, kernels, ()):
            found.append(reader)
    last = found[-1]
    for operand in (product.lhs, product.rhs):
        maker = _maker(operand, number, kernels, uses, options)
        if maker is None or maker in (*taken, *found) or not _stays(kernels[maker], maker, last, kernels, found):
            continue
        if {*kernels[last].writes}.isdisjoint(kernels[maker].reads):
            found.insert(0, maker)
    return sorted(found)


def _stays(kernel: Kernel, number: int, later: int, kernels: Sequence[Kernel], members: Sequence[int]) -> bool:
    """Whether no operand of a kernel is written between it and a later one."""
    between = (k for n, k in enumerate(kernels) if number < n < later and n not in members)
    written = {buffer for k in between for buffer in k.writes}
    return written.isdisjoint(kernel.reads)


def _maker(
    operand: Operand, number: int, kernels: Sequence[Kernel], uses: Mapping[Buffer, int], options: LoweringOptions
) -> int | None:
    """The number of the nest that makes an operand for a product alone, cheaply enough to do it for every tile."""
    buffer = operand.buffer
    if buffer.role != "temporary" or uses[buffer] != 2:
        return None
    for n in range(number - 1, -1, -1):
        kernel = kernels[n]
        if buffer not in kernel.writes:
            continue
        if not isinstance(kernel, Loops) or len(kernel.stores) != 1 or not _is_cheap(kernel, options):
            return None
        return n if operand_digits(kernel, operand) is not None else None
    return None


def _reader(number: int, kernels: Sequence[Kernel]) -> int | None:
    """The number of the map that is the first to read a product's result."""
    product = kernels[number]
    assert isinstance(product, Contract)
    buffer = product.out.buffer
    if product.accumulate:
        return None
    for n in range(number + 1, len(kernels)):
        kernel = kernels[n]
        if buffer in (*kernel.reads, *kernel.writes):
            fits = isinstance(kernel, Loops) and is_map(kernel) and buffer not in kernel.writes
            return n if fits and result_digits(kernel, product.out) is not None else None
    return None
