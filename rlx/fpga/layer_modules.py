"""The circuit of a stage: a pipeline that starts one iteration in each cycle.

The words of memory arrive 1 cycle after the iteration started, the products after 2. The sum is complete 3 cycles after
the last iteration of a reduction, its bias and multiplier arrive after 4, the biased sum after 5. The code is written
after 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rlx.fpga.counters import Counters
from rlx.fpga.modules import Instance, Memory, Module, Type
from rlx.fpga.nests import LoopNest, nest_of
from rlx.fpga.requantizers import ScaledSum, requantizer, requantizer_cycles, rounding_shift, serial_requantizer
from rlx.fpga.signals import (
    Bits,
    Flag,
    Integer,
    Signal,
    Truth,
    Value,
    all_of,
    any_of,
    bits_for,
    clamped,
    joined,
    largest,
    negated,
    number,
    select,
)
from rlx.fpga.stages import Scaling, Stage
from rlx.fpga.tune import Tune

__all__ = ["LayerCircuit", "layer_circuit", "stage_cycles"]

CODE = Integer(-128, 127)
_SUM_CYCLES, _BIAS_CYCLES = 3, 2
_SMALL_ROM = 64  # words: smaller ones are made of logic


def stage_cycles(stage: Stage) -> int:
    """The cycles from the start of a stage to the start of the next one."""
    scaled = 1 + (stage.table is not None)
    if stage.scaling is not None:
        serial = stage.rights is not None
        unit = requantizer_cycles(stage.scaling.fraction, stage.rights or 0, serial)
        scaled = _BIAS_CYCLES - serial + (1 if stage.scaling.multiplier is None else unit)
    return stage.nest.iterations - (stage.idle - 1) + stage.lanes - 1 + _SUM_CYCLES + scaled + 1


@dataclass(slots=True)
class LayerCircuit:
    """The module of a stage, the units inside it, and the contents of its ROMs.

    request: the sum that a unit outside scales, as signals of the module around; only if units are shared.
    """

    module: Module
    units: list[Module] = field(default_factory=list)
    roms: dict[str, str] = field(default_factory=dict)
    request: ScaledSum | None = None


@dataclass(slots=True)
class _Layer:
    """A stage's module while it is built."""

    stage: Stage
    banks: int
    tune: Tune
    circuit: LayerCircuit

    @property
    def module(self) -> Module:
        return self.circuit.module

    def rom(self, name: str, words: np.ndarray, width: int, address: Value, enable: Value | None) -> Signal:
        """The word of a ROM with these contents."""
        file = f"{self.stage.name}_{name}.mem"
        digits = -(-width // 4)
        self.circuit.roms[file] = "".join(f"{word:0{digits}x}\n" for word in words.tolist())
        gate = enable if self.tune.bram_clock_enable else None
        return self.module.rom(name, file, len(words), width, address, gate, len(words) > _SMALL_ROM)


def layer_circuit(stage: Stage, banks: int, tune: Tune) -> LayerCircuit:
    """The circuit of a stage that reads `banks` codes at once.

    Inputs: start, words. Outputs: reading, x_address; y_valid, y_address, y_data; finished. A layer whose sums are
    scaled outside has the outputs of a ScaledSum and the inputs code_valid, code.
    """
    layer = _Layer(stage, banks, tune, LayerCircuit(Module(stage.name, f"{stage.operation}: {_described(stage)}")))
    module = layer.module
    start = module.input("start", Flag())
    running = module.register("running", Flag(), reset=0)
    counters = Counters(module, stage.nest, "read", running.signal)
    running.next = any_of(start, all_of(running.signal, negated(counters.finished)))
    terms = _terms(layer, counters, running.signal)
    result, valid = _combined(layer, counters, running.signal, terms)
    code, code_valid = _coded(layer, result, valid)
    _written(layer, code, code_valid)
    return layer.circuit


def _described(stage: Stage) -> str:
    loops = " x ".join(f"{loop.extent}{'+' * loop.reduced}" for loop in stage.nest.loops) or "1"
    return f"iterations {loops}, {stage.lanes} lanes of {stage.depth}"


# ------------------------------------------------------------------ reading
def _terms(layer: _Layer, counters: Counters, running: Signal) -> list[Value]:
    """The term that each lane adds up, in registers."""
    stage, module = layer.stage, layer.module
    address: Value = counters.walk("x")
    operand: Value = counters.walk("operand") if len(stage.operand.bases) > 1 else number(0)
    base: Value = number(stage.operand.bases[0])
    for k, other in enumerate(stage.operand.bases[1:], 1):
        base = select(operand.equals(k), other, base)
    address = module.wire("address", address + base)
    module.output("reading", running)
    module.output("x_address", address)
    inside = all_of(*(_inside(counters.walk(limit.walk), limit.extent) for limit in stage.limits))
    inside1 = module.delayed("inside1", inside) if stage.limits else Truth[1]
    codes = _codes(layer, address)
    codes = [_centred(layer, code, operand) for code in codes]
    codes = [select(inside1, code, stage.operand.outside) for code in codes]
    if stage.combine != "sum" or stage.weights is None:
        return [module.delayed("term", codes[0])]
    words = stage.weights.words
    width, lanes = stage.weights.bits, range(stage.lanes)
    bits = width * stage.lanes * stage.depth
    word = layer.rom("weights", _packed(words, width), bits, counters.walk("weight"), running)
    bound = int(np.abs(words).max(initial=1))
    limits = Integer(max(-bound, -(1 << (width - 1))), min(bound, (1 << (width - 1)) - 1))
    ternary = width == 2 and layer.tune.ternary_fast_path
    found = []
    for lane in lanes:
        products = []
        for k, code in enumerate(codes):
            field_type = Integer(-(1 << (width - 1)), (1 << (width - 1)) - 1)
            weight = word.field((lane * stage.depth + k) * width, field_type).within(limits.low, limits.high)
            named = module.wire(f"weight{lane}_{k}", weight)
            products.append(_ternary(named, code) if ternary else code * named)
        total = products[0]
        for product in products[1:]:
            total = total + product
        found.append(module.delayed(f"term{lane}", total))
    return found


def _inside(coordinate: Value, extent: int) -> Value:
    below = coordinate.less(extent) if coordinate.high >= extent else Truth[1]
    return all_of(below, negated(coordinate.less(0))) if coordinate.low < 0 else below


def _codes(layer: _Layer, address: Value) -> list[Value]:
    """The codes of the words that memory returns: all of them, or the one that was asked for."""
    module, stage, banks = layer.module, layer.stage, layer.banks
    words = module.input("words", Bits(8 * banks))
    fields = [words.field(8 * k, CODE) for k in range(banks)]
    if stage.depth == 1 and banks > 1:
        bank = module.delayed("bank", address & number(banks - 1))
        found = fields[0]
        for k, other in enumerate(fields[1:], 1):
            found = select(bank.equals(k), other, found)
        fields = [found]
    operand = stage.operand
    return [module.wire(f"code{k}", code.within(operand.low, operand.high)) for k, code in enumerate(fields)]


def _centred(layer: _Layer, code: Value, operand: Value) -> Value:
    zeros = layer.stage.operand.zeros
    if not any(zeros):
        return code
    zero: Value = number(zeros[0])
    if len(set(zeros)) > 1:
        which = layer.module.delayed("operand1", operand)
        for k, other in enumerate(zeros[1:], 1):
            zero = select(which.equals(k), other, zero)
    return code - zero


def _ternary(weight: Value, code: Value) -> Value:
    """code * weight for a weight -1, 0 or 1."""
    return select(weight.equals(0), 0, select(weight.less(0), number(0) - code, code))


def _packed(words: np.ndarray, width: int) -> np.ndarray:
    """Weights [depth, lanes, codes] as unsigned words."""
    flat = words.reshape(len(words), -1).astype(object) & ((1 << width) - 1)
    return sum(flat[:, k] << (width * k) for k in range(flat.shape[1]))


# ------------------------------------------------------------------ sums
def _combined(layer: _Layer, counters: Counters, running: Signal, terms: list[Value]) -> tuple[Value, Value]:
    """One result in a cycle, and whether there is one."""
    module, stage = layer.module, layer.stage
    works = all_of(running, counters.walk("idle").equals(0)) if stage.idle > 1 else running
    valid2 = _later(module, "valid", works, 2, reset=0)
    reduces = stage.nest.reduction > 1
    first2, last2 = (
        (_later(module, name, value, 2) for name, value in (("first", counters.first()), ("last", counters.last())))
        if reduces
        else (Truth[1], Truth[1])
    )
    done = module.wire("done", all_of(valid2, last2))
    if stage.positions:
        return _stationary(layer, counters, terms[0], first2, valid2, done)
    if stage.combine == "position":
        return _position(module, stage, terms[0], first2, valid2, done)
    low, high = stage.sums
    sums = []
    for lane, term in enumerate(terms):
        total = module.register(f"total{lane}", Integer(low, high))
        total.next = _COMBINED[stage.combine](first2, total.signal, term).within(low, high)
        total.enable = valid2
        sums.append((total.signal, total.next))
    if stage.lanes == 1:
        return sums[0][0], module.delayed("result_valid", done, reset=0)
    return _serial(module, [total for _, total in sums], done)


def _add_up(first: Value, total: Value, term: Value) -> Value:
    return select(first, 0, total) + term


def _keep_largest(first: Value, total: Value, term: Value) -> Value:
    return select(first, term, largest(total, term))


def _multiply(first: Value, total: Value, term: Value) -> Value:
    return select(first, term, total * term)


_COMBINED: dict[str, Callable[[Value, Value, Value], Value]] = {
    "sum": _add_up, "largest": _keep_largest, "product": _multiply,
}  # fmt: skip


def _position(
    module: Module, stage: Stage, term: Value, first: Value, valid: Value, done: Value
) -> tuple[Value, Value]:
    best = module.register("best", term.type)
    at, found = (module.register(name, Integer(*stage.sums)) for name in ("at", "found_at"))
    here = select(first, 0, (at.signal + 1).within(*stage.sums))
    better = module.wire("better", any_of(first, best.signal.less(term)))
    best.next, best.enable = term, all_of(valid, better)
    at.next, at.enable = here, valid
    found.next, found.enable = here, all_of(valid, better)
    return found.signal, module.delayed("result_valid", done, reset=0)


def _stationary(
    layer: _Layer, counters: Counters, term: Value, first: Value, valid: Value, done: Value
) -> tuple[Value, Value]:
    """Partial sums of all positions in memory: read in the cycle before the term is there, written with it."""
    module, stage = layer.module, layer.stage
    position1 = module.delayed("position1", counters.walk("position"))
    type = Integer(*stage.sums)
    word = module.net("partial_word", Bits(type.width))
    total = module.wire("total", _add_up(first, word.field(0, type), term).within(*stage.sums))
    write = (valid, module.delayed("position2", position1), joined([total]))
    block = stage.positions > _SMALL_ROM
    module.memories.append(
        Memory("partial", stage.positions, Bits(type.width), position1, word, None, "", write, block)
    )
    return module.delayed("result", total), module.delayed("result_valid", done, reset=0)


def _serial(module: Module, totals: list[Value], done: Value) -> tuple[Value, Value]:
    """The totals of all lanes, one in a cycle."""
    waiting = [module.register(f"waiting{k}", total.type) for k, total in enumerate(totals)]
    for k, (register, total) in enumerate(zip(waiting, totals, strict=True)):
        after = waiting[k + 1].signal if k + 1 < len(waiting) else total
        register.next = select(done, total, after)
    left = module.register("left", Integer(0, len(totals)), reset=0)
    some = negated(left.signal.equals(0))
    left.next = select(done, len(totals), select(some, (left.signal - 1).within(0, len(totals)), 0))
    return waiting[0].signal, module.wire("result_valid", some)


# ------------------------------------------------------------------ codes
def _coded(layer: _Layer, result: Value, valid: Value) -> tuple[Value, Value]:
    """The codes of results, and whether there is one."""
    module, stage = layer.module, layer.stage
    if stage.scaling is not None:
        return _scaled(layer, stage.scaling, result, valid)
    value = result if stage.clamp is None else clamped(result, *stage.clamp)
    if stage.table is None:
        return module.delayed("code", value), module.delayed("code_valid", valid, reset=0)
    words = stage.table.astype(np.int64) & 255
    address = module.delayed("table_address", value + 128)
    looked_up = layer.rom("table", words, 8, address, None).field(0, CODE)
    return looked_up, _later(module, "code_valid", valid, 2, reset=0)


def _scaled(layer: _Layer, scaling: Scaling, result: Value, valid: Value) -> tuple[Value, Value]:
    module, stage = layer.module, layer.stage
    multipliers = np.ones(1, np.int64) if scaling.multiplier is None else scaling.multiplier
    fields = _parameters(layer, valid, [scaling.bias, scaling.left, scaling.right, multipliers])
    bias, left, right, multiplier = fields
    biased = (module.delayed("sum1", result) + bias) << left
    # a unit that works bit by bit keeps the sum, and the word of parameters stays until the next sum
    cycles = 0 if stage.rights is not None else 1
    total = _later(module, "biased", biased, cycles)
    right2, multiplier2 = (_later(module, n, v, cycles) for n, v in (("right", right), ("multiplier", multiplier)))
    valid2 = _later(module, "sum_valid", valid, 1 + cycles, reset=0)
    if scaling.multiplier is None:
        code = clamped(rounding_shift(total, right2) + scaling.zero_point, scaling.low, scaling.high)
        return module.delayed("code", code), module.delayed("code_valid", valid2, reset=0)
    constants = [number(n) for n in (scaling.zero_point, scaling.low, scaling.high)]
    request = ScaledSum(valid2, total, multiplier2, right2, *constants)
    if layer.tune.shared_requant:
        return _outside(layer, request)
    types = {part: value.type for part, value in request.parts().items()}
    unit = scaling_unit(f"{stage.name}_requant", scaling.fraction, stage.rights, types)
    layer.circuit.units.append(unit)
    return requantized(module, unit, request)


def scaling_unit(name: str, fraction: int, rights: int | None, types: Mapping[str, Type]) -> Module:
    """A unit that works bit by bit if there is a number of right shifts, or a pipeline."""
    if rights is None:
        return requantizer(name, fraction, types)
    return serial_requantizer(name, fraction, rights, types)


def requantized(module: Module, unit: Module, request: ScaledSum) -> tuple[Signal, Signal]:
    """A unit in a module: its codes, and whether there is one."""
    kind = next(port.type for port in unit.ports if port.name == "code")
    code, valid = module.net("code", kind), module.net("code_valid", Flag())
    taken = {port.name for port in unit.ports}
    inputs = {part: value for part, value in request.parts().items() if part in taken}
    module.instances.append(Instance("requant", unit.name, inputs, {"code": code, "code_valid": valid}))
    return code, valid


def _outside(layer: _Layer, request: ScaledSum) -> tuple[Value, Value]:
    """Ask the unit of the whole circuit; constants do not pass through ports."""
    module = layer.module
    passed = {}
    for part, value in request.parts().items():
        constant = isinstance(value.type, Integer) and value.low == value.high
        if not constant:
            module.output(f"scaled_{part}", value)
        passed[part] = value if constant else Signal(value.type, f"{layer.stage.name}_scaled_{part}")
    layer.circuit.request = replace(request, **passed)
    code = module.input("code", Integer(-128, 127))
    return code, module.input("code_valid", Flag())


def _parameters(layer: _Layer, valid: Value, columns: list[np.ndarray]) -> list[Value]:
    """The parameters of each result's channel in the cycle after it; those that are equal for all are constants."""
    varying = [np.unique(column).size > 1 for column in columns]
    types = [Integer(int(column.min()), int(column.max())) for column in columns]
    if not any(varying):
        return [number(type.low) for type in types]
    loops = [(loop.extent, False, dict(loop.steps)) for loop in layer.stage.writes.loops]
    while not loops[0][2]["channel"]:  # an outer loop that repeats all channels
        loops.pop(0)
    counters = Counters(layer.module, nest_of(loops, {"channel": 0}), "channel", valid)
    packed, offset, fields = 0, 0, []
    for column, type, varies in zip(columns, types, varying, strict=True):
        fields.append(offset if varies else None)
        if varies:
            packed = packed + ((column.astype(object) & ((1 << type.width) - 1)) << offset)
            offset += type.width
    word = layer.rom("scaling", np.asarray(packed), offset, counters.walk("channel"), valid)
    return [
        number(type.low) if at is None else word.field(at, type) for at, type in zip(fields, types, strict=True)
    ]


# ------------------------------------------------------------------ writing
def _written(layer: _Layer, code: Value, valid: Value) -> None:
    module, stage = layer.module, layer.stage
    counters = Counters(module, _without_channel(stage.writes), "write", valid)
    inside = Truth[1]
    if stage.write_limit is not None:
        inside = counters.walk("lane").less(stage.write_limit.extent)
    module.output("y_valid", all_of(valid, inside))
    module.output("y_address", counters.walk("y"))
    module.output("y_data", code if code.type.width == 8 else _byte(code))
    module.output("finished", module.delayed("finished_write", all_of(valid, counters.finished), reset=0))


def _byte(code: Value) -> Value:
    """The lowest eight bits of an integer."""
    return code.wrapped(8) if bits_for(code.low, code.high) > 8 else code.within(-128, 127)


def _without_channel(nest: LoopNest) -> LoopNest:
    loops = [(loop.extent, False, dict(loop.steps)) for loop in nest.loops]
    return nest_of(loops, {walk: start for walk, start in nest.starts.items() if walk != "channel"})


def _later(module: Module, name: str, value: Value, cycles: int, reset: int | None = None) -> Value:
    """A value some cycles later; constants stay."""
    if isinstance(value.type, Integer) and value.low == value.high:
        return value
    for k in range(1, cycles + 1):
        value = module.delayed(f"{name}{k}", value, reset)
    return value
