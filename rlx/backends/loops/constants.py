"""Which constants of a kernel are arguments of its code."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.dims import is_sized
from rlx.ir.kernels import Instruction, Loops
from rlx.ir.size_functions import plain_size

__all__ = ["argument_constants", "constant_number"]

# integers up to this, such factors, and operands of these operations stay part of the code
_SMALL_INTEGER = 1
_SIMPLE_FACTORS = frozenset((0.0, 0.5, 1.0, 2.0, float("inf")))
_WANTS_CONSTANTS = frozenset(
    ("div", "rem", "pow", "special", "shift_left", "shift_right_logical", "shift_right_arithmetic")
)


def argument_constants(kernel: Loops) -> list[int]:
    """Constants that are arguments, so that other sizes, rates and weights of a loss share the code.

    Not those that compilers make better code of: simple factors, divisors and shifts.
    """
    wanting = [i for i in kernel.instructions if i.op in _WANTS_CONSTANTS and (i.dtype.kind != "f" or i.op != "div")]
    kept = {a for i in wanting for a in i.args}
    return [
        n
        for n, i in enumerate(kernel.instructions)
        if i.op == "constant" and n not in kept and _is_argument(i)
    ]


def _is_argument(instruction: Instruction) -> bool:
    number = constant_number(instruction)
    if instruction.dtype.name in ("int32", "int64"):
        return bool(abs(plain_size(number)) > _SMALL_INTEGER)
    if instruction.dtype.name not in ("float32", "float64"):
        return False
    if is_sized(number):
        return all(abs(number) != factor for factor in sorted(_SIMPLE_FACTORS))
    return abs(float(number)) not in _SIMPLE_FACTORS


def constant_number(instruction: Instruction) -> Any:
    """The number of a constant, which may be a symbolic size."""
    if is_sized(instruction.attribute):
        return instruction.attribute.item()
    return np.frombuffer(instruction.attribute, instruction.dtype.newbyteorder("<"))[0]
