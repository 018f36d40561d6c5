"""Addresses of the values of a program in one memory."""

from __future__ import annotations

import math
from typing import NamedTuple

from rlx.planning.arena import MemoryBlock, place
from rlx.quant.integer_program import IntegerProgram, IntegerReshape

__all__ = ["ValueAddresses", "addresses_of"]


class ValueAddresses(NamedTuple):
    """The address of each value by its index, and the bytes of memory."""

    at: dict[int, int]
    size: int


def addresses_of(program: IntegerProgram, shared: bool, alignment: int) -> ValueAddresses:
    """Addresses of the values, which share memory where their lifetimes allow it, if `shared`.

    A reshaped value is the same bytes. Inputs are written before the program starts; outputs are read at its end.
    """
    roots = _roots(program)
    last = len(program.operations)
    born = dict.fromkeys((roots[i] for i in program.inputs), -1)
    dies: dict[int, int] = {}
    for k, operation in enumerate(program.operations):
        born.setdefault(roots[operation.output], k)
        dies.update((roots[i], k) for i in (*operation.inputs, operation.output))
    dies.update((roots[i], last) for i in program.outputs)
    blocks = {
        root: MemoryBlock(
            -(-math.prod(program.values[root].shape) // alignment) * alignment,
            first if shared else -1,
            dies.get(root, first) if shared else last,
            [],
        )
        for root, first in born.items()
    }
    found = place(list(blocks.values()))
    offsets = dict(zip(blocks, found.offsets, strict=True))
    return ValueAddresses({i: offsets[root] for i, root in roots.items() if root in offsets}, found.size)


def _roots(program: IntegerProgram) -> dict[int, int]:
    """For each value, the value whose bytes it is."""
    roots = {i: i for i in program.inputs}
    for operation in program.operations:
        same = isinstance(operation, IntegerReshape)
        roots[operation.output] = roots[operation.inputs[0]] if same else operation.output
    return roots
