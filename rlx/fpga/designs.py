"""From an integer program to stages over an arena."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from rlx.errors import OptionError, UnsupportedError
from rlx.fpga.arena import ValueAddresses, addresses_of
from rlx.fpga.circuits import Circuit, Region, circuit_of
from rlx.fpga.keywords import KEYWORDS
from rlx.fpga.layers import stages_of
from rlx.fpga.programs import circuit_program
from rlx.fpga.spacing import spaced
from rlx.fpga.stages import Stage
from rlx.fpga.streams import stream_module
from rlx.fpga.tune import IoConfig, Tune
from rlx.quant.integer_program import IntegerProgram

__all__ = ["Design", "design_of"]


@dataclass(frozen=True, slots=True)
class Design:
    """Stages over an arena.

    Attributes: name: of the top module; program: computed bit for bit; tune; stages; addresses.
    """

    name: str
    program: IntegerProgram
    tune: Tune
    stages: tuple[Stage, ...]
    addresses: ValueAddresses

    @property
    def inputs(self) -> list[Region]:
        """The bytes of the inputs."""
        return [self._region(i) for i in self.program.inputs]

    @property
    def outputs(self) -> list[Region]:
        """The bytes of the outputs."""
        return [self._region(i) for i in self.program.outputs]

    def circuit(self, io: IoConfig = IoConfig.Memory) -> Circuit:
        """The modules."""
        streams = io is IoConfig.Stream
        name = f"{self.name}_core" if streams else self.name
        found = circuit_of(name, self.stages, self.addresses.size, self.inputs, self.outputs, self.tune)
        around = (stream_module(self.name, found.modules[-1]),) if streams else ()
        return replace(found, modules=found.modules + around)

    def _region(self, value: int) -> Region:
        return Region(self.addresses.at[value], math.prod(self.program.values[value].shape))


def design_of(program: IntegerProgram, tune: Tune, name: str) -> Design:
    """The design of a program. Raises OptionError for a name, UnsupportedError for operations without a circuit."""
    _check_name(name)
    found = circuit_program(program, tune)
    empty = [value.name for value in found.values if 0 in value.shape]
    if empty:
        raise UnsupportedError(f"{empty[0]} has no elements.", "Leave values without elements out of the program.")
    addresses = addresses_of(found, tune.arena_plan, tune.ic_parallelism)
    stages = [
        stage
        for k, operation in enumerate(found.operations)
        for stage in stages_of(_stage_name(name, found, k), operation, found.values, addresses.at, tune)
    ]
    if not stages:
        raise UnsupportedError(f"{name} computes nothing.", "Give a program with an operation other than a reshape.")
    return Design(name, found, tune, tuple(spaced(stages, tune)), addresses)


def _stage_name(name: str, program: IntegerProgram, k: int) -> str:
    """The name of a module: unique, and an identifier."""
    value = program.values[program.operations[k].output]
    return f"{name}_{k}_{re.sub(r'[^a-zA-Z0-9_]', '_', value.name)}"


def _check_name(name: str) -> None:
    if name in KEYWORDS:
        raise OptionError(f"{name} is a word of SystemVerilog.", "Give another name to the module: name=...")
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{0,59}", name):
        raise OptionError(
            f"{name!r} cannot be the name of a module.", "Write a letter, then letters, digits and underscores."
        )
