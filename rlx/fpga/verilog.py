"""Modules as SystemVerilog, in the subset that yosys, Verilator and Icarus read.

Every integer is a signed wire of the width that its bounds need, and every operation has a wire, so that no expression
has a width or a sign that depends on its context.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlx.fpga.modules import Instance, Memory, Module, Register, Type
from rlx.fpga.signals import (
    Comparison,
    Constant,
    Field,
    Flag,
    FlagOperation,
    Integer,
    IntegerOperation,
    Joined,
    Selection,
    Signal,
    Value,
)

__all__ = ["printed"]


def printed(module: Module) -> str:
    """The text of a module."""
    return "\n".join(_Printer(module).lines()) + "\n"


class _Printer:
    """The text of one module; wires are declared in the order in which they are needed."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.body: list[str] = []
        self.names: dict[int, str] = {}
        self.inputs = {port.name for port in module.ports if port.direction == "input"}

    def lines(self) -> Iterator[str]:
        """The lines of the module."""
        module = self.module
        outputs = {port.name for port in module.ports if port.direction == "output"}
        for register in module.registers:
            self.body.append(f"{_declaration(register.signal.type, register.signal.name)};")
        for signal in self._driven():
            self.body.append(f"{_declaration(signal.type, signal.name)};")
        for wire in module.wires:
            if wire.name not in outputs:
                self.body.append(f"{_declaration(wire.type, wire.name)};")
        for wire in module.wires:
            self.body.append(f"assign {wire.name} = {self._expression(wire.value)};")
        for memory in module.memories:
            self._memory(memory)
        for instance in module.instances:
            self._instance(instance)
        self._clocked(module.registers)
        ports = [f"input {_declaration(Flag(), name)}" for name in ("clk", "rst")]
        ports += [f"{port.direction} {_declaration(port.type, port.name)}" for port in module.ports]
        yield f"// {module.comment}"
        yield f"module {module.name} ("
        yield ",\n".join(f"  {port}" for port in ports)
        yield ");"
        yield from (f"  {line}" for line in self.body)
        yield "endmodule"

    def _driven(self) -> list[Signal]:
        memories = [memory.data for memory in self.module.memories]
        return [*memories, *(signal for instance in self.module.instances for signal in instance.outputs.values())]

    # -------------------------------------------------------------- values
    def _atom(self, value: Value) -> str:
        """A value as a name or a number."""
        if isinstance(value, Signal):
            return value.name
        if isinstance(value, Constant):
            return _number(value.type, value.value)
        if id(value) not in self.names:
            text = self._expression(value)
            name = self.names[id(value)] = f"t{len(self.names)}"
            self.body.append(f"{_declaration(value.type, name)};")
            self.body.append(f"assign {name} = {text};")
        return self.names[id(value)]

    def _expression(self, value: Value) -> str:
        """A value as an expression of names that is assigned to a wire of its type."""
        match value:
            case IntegerOperation(operator="wrap", operands=(operand,)):
                wraps = operand.type.width > value.type.width
                return f"$signed({_lowest(self._atom(operand), value.type.width)})" if wraps else self._atom(operand)
            case IntegerOperation(operator=("<<<" | ">>>") as operator, operands=(left, right)):
                amount = str(right.value) if isinstance(right, Constant) else f"$unsigned({self._atom(right)})"
                return f"{self._atom(left)} {operator} {amount}"
            case IntegerOperation(operator=operator, operands=(left, right)):
                return f"{self._atom(left)} {operator} {self._atom(right)}"
            case Comparison(operator=operator, left=left, right=right):
                return f"{self._atom(left)} {operator} {self._atom(right)}"
            case FlagOperation(operator="~", operands=(operand,)):
                return f"~{self._atom(operand)}"
            case FlagOperation(operator=operator, operands=operands):
                return f" {operator} ".join(map(self._atom, operands))
            case Selection(condition=condition, yes=yes, no=no):
                return f"{self._atom(condition)} ? {self._atom(yes)} : {self._atom(no)}"
            case Field(of=of, low_bit=low):
                found = f"{self._atom(of)}[{low + value.type.width - 1}:{low}]"
                return f"$signed({found})" if isinstance(value.type, Integer) else found
            case Joined(parts=parts):
                return f"{{{', '.join(self._atom(part) for part in reversed(parts))}}}"
        return self._atom(value)

    # -------------------------------------------------------------- state
    def _clocked(self, registers: list[Register]) -> None:
        bodies: list[str] = []
        for register in registers:
            assert register.next is not None, register.signal.name
            name = register.signal.name
            update = f"{name} <= {self._atom(register.next)};"
            if register.enable is not None:
                update = f"if ({self._atom(register.enable)}) {update}"
            if register.reset is not None:
                update = f"if (rst) {name} <= {_number(register.signal.type, register.reset)}; else {update}"
            bodies.append(f"  {update}")
        if bodies:
            self.body += ["always_ff @(posedge clk) begin", *bodies, "end"]

    def _memory(self, memory: Memory) -> None:
        style = '(* ram_style = "block", syn_ramstyle = "block_ram" *) ' if memory.block else ""
        self.body.append(f"{style}logic [{memory.word.width - 1}:0] {memory.name} [0:{memory.depth - 1}];")
        if memory.file:
            self.body.append(f'initial $readmemh("{memory.file}", {memory.name});')
        read = f"{memory.data.name} <= {memory.name}[{self._address(memory.address, memory.depth)}];"
        if memory.read_enable is not None:
            read = f"if ({self._atom(memory.read_enable)}) {read}"
        if memory.write is not None:
            enable, address, data = memory.write
            target = f"{memory.name}[{self._address(address, memory.depth)}]"
            write = f"if ({self._atom(enable)}) {target} <= {self._atom(data)};"
            self.body.append(f"always_ff @(posedge clk) {write}")
        self.body.append(f"always_ff @(posedge clk) {read}")

    def _address(self, address: Value, depth: int) -> str:
        width = max(1, (depth - 1).bit_length())
        text = self._atom(address)
        name = f"index{len(self.body)}"
        self.body.append(f"logic [{width - 1}:0] {name};")
        self.body.append(f"assign {name} = {_lowest(text, width) if address.type.width > width else text};")
        return name

    def _instance(self, instance: Instance) -> None:
        pins = [f".{port}({self._atom(value)})" for port, value in instance.inputs.items()]
        pins += [f".{port}({signal.name})" for port, signal in instance.outputs.items()]
        self.body.append(f"{instance.module} {instance.name} (")
        self.body.append(",\n".join(f"    {pin}" for pin in (".clk(clk)", ".rst(rst)", *pins)))
        self.body.append(");")


def _lowest(name: str, width: int) -> str:
    """The lowest bits of a wire."""
    return f"{name}[{width - 1}:0]"


def _declaration(type: Type, name: str) -> str:
    if isinstance(type, Flag):
        return f"logic {name}"
    sign = "signed " if isinstance(type, Integer) else ""
    return f"logic {sign}[{type.width - 1}:0] {name}"


def _number(type: Type, value: int) -> str:
    """A literal of a type's width."""
    if isinstance(type, Flag):
        return f"1'b{value}"
    sign = "s" if isinstance(type, Integer) else ""
    return f"{type.width}'{sign}h{value & ((1 << type.width) - 1):x}"
