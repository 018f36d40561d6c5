"""Modules: ports, wires, registers, memories and instances, as data. `verilog.py` prints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlx.fpga.keywords import KEYWORDS
from rlx.fpga.signals import Bits, Flag, Integer, Signal, Value

__all__ = ["Instance", "Memory", "Module", "Port", "Register", "Type", "Wire"]

Type = Flag | Integer | Bits


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a module."""

    direction: Literal["input", "output"]
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Wire:
    """A named value."""

    name: str
    type: Type
    value: Value


@dataclass(slots=True)
class Register:
    """A value that changes at the clock's rising edge: to `reset` if there is one and `rst` is set, else to `next`."""

    signal: Signal
    reset: int | None
    next: Value | None = None
    enable: Value | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Words with one synchronous read port and, unless it is a ROM, one write port.

    file: the `.mem` file with the words of a ROM; style: the attribute that asks a tool for block RAM.
    """

    name: str
    depth: int
    word: Bits
    address: Value
    data: Signal
    read_enable: Value | None = None
    file: str = ""
    write: tuple[Value, Value, Value] | None = None
    block: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    """A module inside another. inputs: port -> value; outputs: port -> signal."""

    name: str
    module: str
    inputs: dict[str, Value]
    outputs: dict[str, Signal]


@dataclass(slots=True)
class Module:
    """A synchronous circuit with a clock `clk` and a reset `rst`. Its methods add parts and return their signals."""

    name: str
    comment: str
    ports: list[Port] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    taken: set[str] = field(default_factory=lambda: {"clk", "rst"})

    def input(self, name: str, type: Type) -> Signal:
        """A new input."""
        self.ports.append(Port("input", self._new(name), type))
        return Signal(type, name)

    def output(self, name: str, value: Value) -> None:
        """A new output that carries a value."""
        self.ports.append(Port("output", self._new(name), value.type))
        self.wires.append(Wire(name, value.type, value))

    def wire(self, name: str, value: Value) -> Signal:
        """A name for a value."""
        self.wires.append(Wire(self._new(name), value.type, value))
        return Signal(value.type, name)

    def net(self, name: str, type: Type) -> Signal:
        """A signal that an instance or a memory drives."""
        return Signal(type, self._new(name))

    def register(self, name: str, type: Type, reset: int | None = None) -> Register:
        """A new register, for which `next` is to be set."""
        found = Register(Signal(type, self._new(name)), reset)
        self.registers.append(found)
        return found

    def delayed(self, name: str, value: Value, reset: int | None = None, enable: Value | None = None) -> Signal:
        """A value one cycle later, or as it was when `enable` was last set."""
        found = self.register(name, value.type, reset)
        found.next, found.enable = value, enable
        return found.signal

    def rom(
        self, name: str, file: str, depth: int, width: int, address: Value, read_enable: Value | None, block: bool
    ) -> Signal:
        """The word of a ROM, one cycle after its address."""
        word = Bits(width)
        data = self.net(f"{name}_word", word)
        memory = self._new(f"{name}_rom")
        self.memories.append(Memory(memory, depth, word, address, data, read_enable, file, None, block))
        return data

    def _new(self, name: str) -> str:
        assert name not in self.taken and name not in KEYWORDS, name
        self.taken.add(name)
        return name
