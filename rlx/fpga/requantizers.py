"""Units that scale sums to codes: in a pipeline that takes a sum in each cycle, or bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx.fpga.modules import Module, Type
from rlx.fpga.signals import Flag, Integer, Value, all_of, any_of, clamped, negated, number, select

__all__ = ["ScaledSum", "requantizer", "requantizer_cycles", "rounding_shift", "serial_requantizer"]

_PIPELINE_CYCLES = 4


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


def requantizer_cycles(fraction: int, right: int, serial: bool) -> int:
    """The cycles from a sum to its code, with multipliers of `fraction` bits and at most `right` shifts.

    A unit that works bit by bit can take the next sum after as many cycles.
    """
    return fraction + right + 3 if serial else _PIPELINE_CYCLES


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
    found = _clipped(scaled + given["zero_point"], given["low"], given["high"])
    valid = given["valid"]
    for k in range(_PIPELINE_CYCLES):
        valid = unit.delayed(f"valid{k}", valid, reset=0)
    unit.output("code_valid", valid)
    unit.output("code", unit.delayed("found", found))
    return unit


def serial_requantizer(name: str, fraction: int, most_right: int, types: Mapping[str, Type]) -> Module:
    """A unit that adds and shifts once in a cycle, for sums that are `requantizer_cycles` apart.

    In step k < fraction it adds the sum if bit k of the multiplier is set, and halves the total; the bit that leaves it
    rounds the total in the next step. The last steps divide by two for each right shift; the bit that left it last,
    and whether any other was set, round the result.
    """
    unit = Module(name, f"codes of sums, by multipliers of {fraction} fraction bits; works bit by bit")
    given = {part: _input(unit, part, type) for part, type in types.items()}
    start, last = given["valid"], fraction + most_right
    held = unit.delayed("held", given["sum"], enable=start)
    bound = max(abs(held.low), abs(held.high)) + 1
    step = unit.register("step", Integer(0, last + 1), reset=last + 1)
    working = unit.wire("working", negated(step.signal.equals(last + 1)))
    step.next = select(start, 0, select(working, (step.signal + 1).within(0, last + 1), last + 1))
    multiplying = unit.wire("multiplying", step.signal.less(fraction))
    rounding = unit.wire("rounding", step.signal.equals(fraction))
    bits = unit.register("bits", Integer(0, given["multiplier"].high))
    bits.next = select(start, given["multiplier"], bits.signal >> 1)
    rights = unit.register("rights", Integer(0, most_right))
    shifting = unit.wire("shifting", all_of(negated(any_of(multiplying, rounding)), negated(rights.signal.equals(0))))
    fewer = select(shifting, (rights.signal - 1).within(0, most_right), rights.signal)
    rights.next = select(start, given["right"], fewer).within(0, most_right)
    total, half = unit.register("total", Integer(-bound, bound)), unit.register("half", Integer(0, 1))
    sticky = unit.register("sticky", Flag())
    one = number(1)
    added = unit.wire("added", total.signal + select((bits.signal & one).equals(1), held, 0))
    halved = select(multiplying, added, total.signal)
    halving = unit.wire("halving", any_of(multiplying, shifting))
    after = select(halving, halved >> 1, select(rounding, total.signal + half.signal, total.signal))
    total.next = select(start, 0, after).within(-bound, bound)
    half.next = select(start, 0, select(halving, halved & one, select(rounding, 0, half.signal)))
    left = any_of(sticky.signal, all_of(shifting, half.signal.equals(1)))
    sticky.next = all_of(negated(any_of(start, multiplying, rounding)), left)
    up = select(all_of(half.signal.equals(1), any_of(negated(total.signal.less(0)), sticky.signal)), 1, 0)
    found = _clipped(total.signal + up + given["zero_point"], given["low"], given["high"])
    complete = unit.delayed("complete", step.signal.equals(last), reset=0)
    unit.output("code_valid", unit.delayed("valid_code", complete, reset=0))
    unit.output("code", unit.delayed("found", found))
    return unit


def _clipped(value: Value, low: Value, high: Value) -> Value:
    """A code from low to high; a constant's bounds are equal."""
    if low.low == low.high and high.low == high.high:
        return clamped(value, low.low, high.high)
    above = select(value.less(low), low, value)
    return select(high.less(above), high, above).within(-128, 127)


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
