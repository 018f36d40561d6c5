"""Computed addresses of a nest as indices of entries of a table, which MLX's gathers and scatters take.

MLX counts negative indices from the end, as NumPy does. It does not check bounds: other indices read other memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlx.backends.mlx.library import MxArray, dtype_of_memory, mx
from rlx.backends.mlx.scalar import ScalarArray, constant
from rlx.ir.kernels import Instruction

__all__ = ["EntryAddress", "checked_place", "place_of"]


@dataclass(frozen=True)
class EntryAddress:
    """An address as the index of an entry, which is an instruction's value, times the distance between entries.

    distance: negative if entries are counted backwards. count: the number of entries; None if unknown. wraps: negative
    indices count from the end. clamped: indices out of bounds mean the nearest entry; only then indices are known to be
    in bounds. unclamped: the instruction that is clamped.
    """

    index: int
    distance: int
    count: int | None
    wraps: bool
    clamped: bool = False
    unclamped: int = -1

    def numbers(self, values: Sequence[ScalarArray]) -> MxArray:
        """Indices of entries; all are in bounds if they are clamped."""
        value = values[self.index]
        if not self.clamped:
            return value.array
        assert self.count is not None
        least, most = (int(n) for n in (np.iinfo(value.dtype).min, np.iinfo(value.dtype).max))
        low, high = max(-self.count if self.wraps else 0, least), min(self.count - 1, most)
        array = mx.maximum(value.array, constant(low, value.dtype)) if least < 0 else value.array
        return mx.minimum(array, constant(high, value.dtype))

    def are_inside(self, values: Sequence[ScalarArray]) -> MxArray:
        """The condition that an index is in bounds: one unsigned comparison."""
        assert self.count is not None
        value = values[self.index]
        unsigned = np.dtype(f"u{value.dtype.itemsize}")
        entries = 2 * self.count if self.wraps else self.count
        moved = value.array + constant(self.count, value.dtype) if self.wraps else value.array
        return mx.view(moved, dtype_of_memory(unsigned)) < constant(entries, unsigned)


def place_of(instructions: Sequence[Instruction], address: int) -> EntryAddress:
    """The entry that begins at an address."""
    product = _with_constant(instructions, address, "mul")
    number, distance = product if product is not None and product[1] else (address, 1)
    lowest = _with_constant(instructions, number, "min")
    clamped = None if lowest is None else _with_constant(instructions, lowest[0], "max")
    if lowest is None or clamped is None or clamped[1] != 0 or lowest[1] < 0:
        return _counted(instructions, number, distance)
    (unclamped, _), count = clamped, lowest[1] + 1
    found = _counted(instructions, unclamped, distance)
    if found.count != count:  # other negative indices are made positive by operations
        found = replace(found, index=_before_casts(instructions, unclamped), count=count, wraps=False)
    return replace(found, clamped=True, unclamped=unclamped)


def checked_place(instructions: Sequence[Instruction], address: int, guard: int) -> EntryAddress | None:
    """The place of an address if a guard checks that the entry exists, and nothing else."""
    place = place_of(instructions, address)
    both = instructions[guard]
    if not place.clamped or place.count is None or both.op != "and":
        return None
    bounds = {(op, place.unclamped): limit for op, limit in (("ge", 0), ("le", place.count - 1))}
    for number in both.args:
        found = _with_constant(instructions, number, instructions[number].op)
        if found is None or bounds.pop((instructions[number].op, found[0]), None) != found[1]:
            return None
    info = np.iinfo(instructions[place.index].dtype)
    return place if info.min < 0 and 2 * place.count <= info.max else None


def _counted(instructions: Sequence[Instruction], number: int, distance: int) -> EntryAddress:
    """An index, and whether negative ones count from the end.

    MLX's counting from the end is used only for tables that are not reversed.
    """
    index = _before_casts(instructions, number)
    chosen = instructions[index]
    if chosen.op == "select" and distance > 0:
        negative, moved, given = chosen.args
        sign, end = _with_constant(instructions, negative, "lt"), _with_constant(instructions, moved, "add")
        if sign == (given, 0) and end is not None and end[0] == given and end[1] > 0:
            return EntryAddress(given, distance, end[1], wraps=True)
    return EntryAddress(index, distance, None, wraps=False)


def _before_casts(instructions: Sequence[Instruction], number: int) -> int:
    """The integer that casts only widened."""
    instruction = instructions[number]
    while instruction.op == "cast":
        source = instructions[instruction.args[0]].dtype
        if source.kind not in "iu" or not np.can_cast(source, instruction.dtype, "safe"):
            break
        number = instruction.args[0]
        instruction = instructions[number]
    return number


def _with_constant(instructions: Sequence[Instruction], number: int, op: str) -> tuple[int, int] | None:
    """The operand and the constant of an integer operation with a constant, in either order if it commutes."""
    instruction = instructions[number]
    if instruction.op != op or len(instruction.args) != 2:
        return None
    x, y = instruction.args
    for one, other in ((x, y), (y, x))[: 2 if op in ("add", "mul", "min", "max") else 1]:
        held = instructions[other]
        if held.op == "constant" and held.dtype.kind in "iu":
            return one, int.from_bytes(held.attribute, "little", signed=held.dtype.kind == "i")
    return None
