"""The whole circuit: one memory, the layers in order, and the unit that they may share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.fpga.layer_modules import CODE, LayerCircuit, layer_circuit, scaling_unit
from rlx.fpga.modules import Instance, Memory, Module
from rlx.fpga.requantizers import ScaledSum
from rlx.fpga.signals import Bits, Flag, Integer, Signal, Value, all_of, any_of, joined, negated, number, select
from rlx.fpga.stages import Stage
from rlx.fpga.tune import Tune

__all__ = ["Circuit", "Region", "circuit_of"]


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of the arena that a host writes or reads."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Circuit:
    """Modules, the top one last, and the contents of ROMs by file name."""

    modules: tuple[Module, ...]
    roms: dict[str, str]


@dataclass(slots=True)
class _Core:
    """The top module while it is built."""

    module: Module
    stages: Sequence[Stage]
    layers: Sequence[LayerCircuit]
    active: list[Signal]
    done: Value


def circuit_of(
    name: str, stages: Sequence[Stage], size: int, inputs: Sequence[Region], outputs: Sequence[Region], tune: Tune
) -> Circuit:
    """The circuit of stages over an arena of `size` bytes.

    Its inputs: start; in_valid, in_address, in_data; out_address. Outputs: busy, done, out_data. Addresses count the
    bytes of all inputs, and of all outputs, in order. out_data is the byte of the address in the cycle before.
    """
    layers = [layer_circuit(stage, tune.ic_parallelism, tune) for stage in stages]
    module = Module(name, f"{name}: {len(stages)} layers over {size} bytes")
    start = module.input("start", Flag())
    active, finished = _sequence(module, stages)
    done = module.delayed("done_pulse", finished[-1], reset=0)
    core = _Core(module, stages, layers, active, done)
    busy = module.wire("any_active", any_of(*active))
    starts = [all_of(start, negated(busy)), *finished[:-1]]
    words = Signal(Bits(8 * tune.ic_parallelism), "arena_words")
    ports = _instances(core, starts, words, finished, tune)
    module.output("busy", busy)
    module.output("done", done)
    _arena(core, ports, busy, size, inputs, outputs, tune)
    units = [unit for layer in layers for unit in layer.units]
    units += _shared_unit(core) if any(layer.request for layer in layers) else []
    roms = {file: text for layer in layers for file, text in layer.roms.items()}
    return Circuit((*units, *(layer.module for layer in layers), module), roms)


def _sequence(module: Module, stages: Sequence[Stage]) -> tuple[list[Signal], list[Signal]]:
    """Whether each layer is at work, and the pulse at its end."""
    active = [Signal(Flag(), f"{stage.name}_active") for stage in stages]
    finished = [module.net(f"{stage.name}_finished", Flag()) for stage in stages]
    return active, finished


def _instances(
    core: _Core, starts: list[Value], words: Signal, finished: list[Signal], tune: Tune
) -> list[dict[str, Signal]]:
    """The layers; for each one, the signals of its outputs."""
    module, found = core.module, []
    for k, (stage, layer) in enumerate(zip(core.stages, core.layers, strict=True)):
        start = module.wire(f"{stage.name}_start", starts[k])
        register = module.register(f"{stage.name}_active", Flag(), reset=0)
        register.next = any_of(start, all_of(register.signal, negated(finished[k])))
        outputs = {
            port.name: finished[k] if port.name == "finished" else module.net(f"{stage.name}_{port.name}", port.type)
            for port in layer.module.ports
            if port.direction == "output"
        }
        inputs: dict[str, Value] = {"start": start, "words": words}
        if layer.request is not None:
            valid = all_of(Signal(Flag(), "shared_code_valid"), core.active[k])
            inputs |= {"code": Signal(CODE, "shared_code"), "code_valid": valid}
        module.instances.append(Instance(stage.name, stage.name, inputs, outputs))
        found.append(outputs)
    return found


def _chosen(active: Sequence[Value], values: Sequence[Value], idle: Value) -> Value:
    """The value of the layer that is at work."""
    found = idle
    for flag, value in zip(active, values, strict=True):
        found = select(flag, value, found)
    return found


def _arena(
    core: _Core, ports: list[dict[str, Signal]], busy: Value, size: int,
    inputs: Sequence[Region], outputs: Sequence[Region], tune: Tune,
) -> None:  # fmt: skip
    """The memory: one bank for each code that is read at once."""
    module, banks = core.module, tune.ic_parallelism
    in_valid = module.input("in_valid", Flag())
    in_address = module.input("in_address", _address_type(inputs))
    in_data = module.input("in_data", CODE)
    out_address = module.input("out_address", _address_type(outputs))
    read = _chosen(core.active, [p["x_address"] for p in ports], _located(out_address, outputs))
    read = module.wire("read_address", read)
    write = _chosen(core.active, [p["y_address"] for p in ports], _located(in_address, inputs))
    write = module.wire("write_address", write.within(0, size - 1))
    data = module.wire("write_data", _chosen(core.active, [p["y_data"] for p in ports], in_data))
    valid = any_of(all_of(in_valid, negated(busy)), *(p["y_valid"] for p in ports))
    valid = module.wire("write_valid", valid)
    enable = any_of(negated(busy), *(p["reading"] for p in ports)) if tune.bram_clock_enable else None
    shift = banks.bit_length() - 1
    fields = []
    for bank in range(banks):
        word = module.net(f"bank{bank}_word", Bits(8))
        fields.append(word)
        mine = valid if banks == 1 else all_of(valid, (write & number(banks - 1)).equals(bank))
        writing = (mine, write >> shift, data)
        memory = Memory(f"bank{bank}", -(-size // banks), Bits(8), read >> shift, word, enable, "", writing, size > 64)
        module.memories.append(memory)
    module.wire("arena_words", joined(fields))
    out = fields[0]
    if banks > 1:
        which = module.delayed("out_bank", read & number(banks - 1))
        for bank, word in enumerate(fields[1:], 1):
            out = select(which.equals(bank), word, out)
    module.output("out_data", out)


def _address_type(regions: Sequence[Region]) -> Integer:
    return Integer(0, sum(region.size for region in regions) - 1)


def _located(address: Value, regions: Sequence[Region]) -> Value:
    """The arena's address of a byte of regions one after another."""
    found: Value = address + regions[0].address
    passed = regions[0].size
    for region in regions[1:]:
        found = select(address.less(passed), found, address + (region.address - passed))
        passed += region.size
    return found


def _shared_unit(core: _Core) -> list[Module]:
    """One unit for the sums of all layers, and its inputs."""
    asking = [(a, layer.request) for a, layer in zip(core.active, core.layers, strict=True) if layer.request]
    flags, requests = [flag for flag, _ in asking], [request for _, request in asking]
    module = core.module
    chosen = {
        part: _chosen(flags, [getattr(r, part) for r in requests], getattr(requests[0], part))
        for part in ScaledSum.__slots__
        if part != "valid"
    }
    valid = any_of(*(r.valid for r in requests))
    request = ScaledSum(valid=valid, **chosen)
    fraction, rights = next((s.scaling.fraction, s.rights) for s in core.stages if s.scaling and s.scaling.fraction)
    kinds = {part: value.type for part, value in request.parts().items()}
    unit = scaling_unit("requant", fraction, rights, kinds)
    kind = next(port.type for port in unit.ports if port.name == "code")
    code, code_valid = module.net("unit_code", kind), module.net("shared_code_valid", Flag())
    module.wire("shared_code", code.within(CODE.low, CODE.high))
    taken = {port.name for port in unit.ports}
    inputs = {part: value for part, value in request.parts().items() if part in taken}
    module.instances.append(Instance("shared_requant", unit.name, inputs, {"code": code, "code_valid": code_valid}))
    return [unit]
