"""Units that scale sums to codes, in a pipeline of `REQUANTIZER_CYCLES` cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx.fpga.modules import Module, Type
from rlx.fpga.signals import Integer, Value, clamped, number, select

__all__ = ["REQUANTIZER_CYCLES", "ScaledSum", "requantizer", "rounding_shift"]

REQUANTIZER_CYCLES = 4


@dataclass(frozen=True, slots=True)
class ScaledSum:
    """The inputs of a unit in the cycle in which `valid` is set. Constants are built into the unit."""

    valid: Value
    sum: Value
    multiplier: Value
    right: Value
    zero_point: Value
    low: Value
    high: Value

    def parts(self) -> dict[str, Value]:
        """The parts by name."""
        return {name: getattr(self, name) for name in self.__slots__}


def rounding_shift(value: Value, right: Value) -> Value:
    """value / 2**right, rounded half away from zero."""
    mask = (number(1) << right) - 1
    if mask.high == 0:
        return value
    half = (mask >> 1) + select(value.less(0), 1, 0)
    return (value >> right) + select(half.less(value & mask), 1, 0)


def requantizer(name: str, fraction: int, types: Mapping[str, Type]) -> Module:
    """A unit for sums of a type; types: of the parts of a ScaledSum. Outputs: `code_valid` and `code`."""
    unit = Module(name, f"codes of sums, by multipliers of {fraction} fraction bits; rounds twice")
    given = {part: _input(unit, part, type) for part, type in types.items()}
    product = unit.delayed("product", given["sum"] * given["multiplier"])
    high = unit.delayed("high_product", (product + (1 << (fraction - 1))) >> fraction)
    right = _later(unit, "right", given["right"], 2)
    scaled = unit.delayed("scaled", rounding_shift(high, right))
    # these three do not change while a layer is at work
    offset, low, most = scaled + given["zero_point"], given["low"], given["high"]
    if low.low == low.high and most.low == most.high:
        found = clamped(offset, low.low, most.high)
    else:
        above = select(offset.less(low), low, offset)
        found = select(most.less(above), most, above).within(-128, 127)
    valid = given["valid"]
    for k in range(REQUANTIZER_CYCLES):
        valid = unit.delayed(f"valid{k}", valid, reset=0)
    unit.output("code_valid", valid)
    unit.output("code", unit.delayed("found", found))
    return unit


def _input(unit: Module, part: str, type: Type) -> Value:
    """An input, or the constant that the type allows only."""
    if isinstance(type, Integer) and type.low == type.high:
        return number(type.low)
    return unit.input(part, type)


def _later(unit: Module, name: str, value: Value, cycles: int) -> Value:
    """A value some cycles later."""
    if isinstance(value.type, Integer) and value.low == value.high:
        return value
    for k in range(cycles):
        value = unit.delayed(f"{name}{k}", value)
    return value
