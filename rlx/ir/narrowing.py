"""Index arithmetic of nests in 32 bits, where no value needs more: devices compute it faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx.ir.kernels import Instruction, Loops

__all__ = ["narrowed"]

_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)
_MOST = (1 << 31) - 1
_Range = tuple[int, int]


def narrowed(kernel: Loops) -> Loops:
    """The nest with int64 values as int32 if all of them come from indices and constants and stay in its range.

    Values of other instructions, and addresses of loads and stores, keep the nest as it is.
    """
    wide = {n for n, i in enumerate(kernel.instructions) if i.dtype == _INT64}
    ranges: dict[int, _Range] = {}
    for number in sorted(wide):
        found = _range(kernel, kernel.instructions[number], ranges)
        if found is None or max(-found[0], found[1]) > _MOST:
            return kernel
        ranges[number] = found
    addressed = {a for i in kernel.instructions if i.op == "load" for a in i.args}
    addressed |= {n for s in kernel.stores for n in (s.value, s.address) if n is not None}
    if wide & addressed:
        return kernel
    return replace(kernel, instructions=tuple(map(_narrow, kernel.instructions)))


def _narrow(instruction: Instruction) -> Instruction:
    if instruction.dtype != _INT64:
        return instruction
    if instruction.op == "constant":
        value = int(np.frombuffer(instruction.attribute, _INT64)[0])
        return replace(instruction, dtype=_INT32, attribute=np.asarray(value, _INT32).tobytes())
    return replace(instruction, dtype=_INT32)


def _range(kernel: Loops, instruction: Instruction, ranges: dict[int, _Range]) -> _Range | None:
    """The least and the greatest value of an instruction; None if they are not known."""
    if instruction.op == "index":
        return 0, max(kernel.sizes[instruction.attribute] - 1, 0)
    if instruction.op == "constant":
        value = int(np.frombuffer(instruction.attribute, _INT64)[0])
        return value, value
    operands = [ranges.get(number) for number in instruction.args]
    if None in operands or instruction.op not in ("add", "sub", "mul", "neg"):
        return None
    (low, high), *others = (found for found in operands if found is not None)
    if instruction.op == "neg":
        return -high, -low
    ((least, greatest),) = others
    if instruction.op == "mul":
        ends = [x * y for x in (low, high) for y in (least, greatest)]
        return min(ends), max(ends)
    return (low + least, high + greatest) if instruction.op == "add" else (low - greatest, high - least)
