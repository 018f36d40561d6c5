"""Estimates: multipliers, logic, memory and cycles of a circuit, before any tool runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rlx.fpga.circuits import Circuit
from rlx.fpga.layer_modules import stage_cycles
from rlx.fpga.modules import Module
from rlx.fpga.signals import (
    Comparison,
    Constant,
    Field,
    FlagOperation,
    IntegerOperation,
    Joined,
    Selection,
    Value,
)
from rlx.fpga.stages import Stage
from rlx.fpga.tune import HwTarget

__all__ = ["Estimate", "cost_of", "cycles_of"]

# the operands of a family's multiplier; none: multipliers are made of logic
_MULTIPLIERS = {
    HwTarget.Generic: (18, 18), HwTarget.Ecp5: (18, 18), HwTarget.Ice40: None, HwTarget.Xilinx7: (25, 18),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """The resources and cycles of a circuit.

    Attributes: dsp: multipliers of the family; lut: look-up tables of four inputs, about; bram_bytes: bytes of
    memory; cycles: from start to done, exactly; weight_reads: the words of weights that are read.

    >>> import rlx
    >>> rlx.fpga.Estimate(dsp=4, lut=900, bram_bytes=2048, cycles=1000, weight_reads=640).cycles
    1000
    """

    dsp: int
    lut: int
    bram_bytes: int
    cycles: int
    weight_reads: int


def cycles_of(stages: Iterable[Stage]) -> int:
    """The cycles from start to done."""
    return 1 + sum(map(stage_cycles, stages))


def cost_of(circuit: Circuit, stages: Iterable[Stage], target: HwTarget) -> Estimate:
    """The estimate of a circuit on a family of devices."""
    stages = list(stages)
    operations = [v for module in circuit.modules for v in _values(module)]
    products = [v for v in operations if isinstance(v, IntegerOperation) and v.operator == "*"]
    size = _MULTIPLIERS[target]
    logic = sum(_logic(v) for v in operations)
    if size is None:
        logic += sum(v.operands[0].type.width * v.operands[1].type.width for v in products)
    bits = sum(m.depth * m.word.width for module in circuit.modules for m in module.memories)
    dsp = 0 if size is None else sum(_pieces(v, size) for v in products)
    reads = [s.nest.iterations // (s.idle * max(1, s.positions)) for s in stages if s.weights is not None]
    return Estimate(dsp, logic, -(-bits // 8), cycles_of(stages), sum(reads))


def _pieces(product: IntegerOperation, size: tuple[int, int]) -> int:
    """The multipliers of a size that a product takes; a further operand's bits overlap by its sign."""
    long, short = sorted((operand.type.width for operand in product.operands), reverse=True)
    return math.ceil((long - 1) / (size[0] - 1)) * math.ceil((short - 1) / (size[1] - 1))


def _logic(value: Value) -> int:
    """The look-up tables of an operation, about."""
    match value:
        case IntegerOperation(operator="+" | "-" | "&"):
            return value.type.width
        case IntegerOperation(operator=">>>" | "<<<", operands=(moved, amount)) if not isinstance(amount, Constant):
            return moved.type.width * amount.type.width
        case Comparison(left=left, right=right):
            return max(left.type.width, right.type.width)
        case Selection():
            return value.type.width
        case FlagOperation():
            return 1
    return 0


def _values(module: Module) -> list[Value]:
    """All values of a module."""
    found: dict[int, Value] = {}
    waiting: list[Value] = [wire.value for wire in module.wires]
    waiting += [v for r in module.registers for v in (r.next, r.enable) if v is not None]
    waiting += [v for m in module.memories for v in (m.address, m.read_enable, *(m.write or ())) if v is not None]
    waiting += [v for instance in module.instances for v in instance.inputs.values()]
    while waiting:
        value = waiting.pop()
        if id(value) not in found:
            found[id(value)] = value
            waiting += operands_of(value)
    return list(found.values())


def operands_of(value: Value) -> tuple[Value, ...]:
    """The values that an operation takes."""
    match value:
        case IntegerOperation() | FlagOperation():
            return value.operands
        case Comparison():
            return value.left, value.right
        case Selection():
            return value.condition, value.yes, value.no
        case Joined():
            return value.parts
        case Field():
            return (value.of,)
    return ()
