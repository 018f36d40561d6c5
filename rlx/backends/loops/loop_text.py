"""A kernel printed as the nest of Python-like loops that its native code runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from rlx.backends.loops.staging import Staging, staging
from rlx.ir.kernels import Access, Buffer, Instruction, Loops, Scan, Store, While
from rlx.ir.scalar import neutral
from rlx.ir.types import compute_dtype

__all__ = ["loop_text"]

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "eq": "==",
    "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "shift_left": "<<", "div": "/",
}  # fmt: skip
_INDICES = "ijklmn"


def loop_text(kernel: Loops | Scan | While) -> str:
    """The kernel as readable loops, its buffers by their names or numbers."""
    if isinstance(kernel, Loops):
        return "\n".join(_Writer(kernel, _names(kernel.operands)).lines())
    return "\n".join(_carried_lines(kernel))


def _carried_lines(kernel: Scan | While) -> list[str]:
    """A loop whose carries are in registers: its steps in terms of the body's buffers."""
    plans = (kernel.body,) if isinstance(kernel, Scan) else (kernel.condition, kernel.body)
    lines = [f"def {kernel.label or 'loop'}():"]
    if isinstance(kernel, Scan):
        steps = f"reversed(range({kernel.length}))" if kernel.reverse else f"range({kernel.length})"
        lines.append(f"    for t in {steps}:")
    else:
        lines.append("    while True:")
    for plan in plans:
        names = _names((*plan.inputs, *plan.outputs, *plan.buffers))
        called = ", ".join(names[id(b)] for b in plan.inputs)
        results = ", ".join(names[id(b)] for b in plan.outputs)
        lines.append(f"        # {plan.name}: ({called}) -> ({results})")
        for inner in plan.kernels:
            if isinstance(inner, Loops):
                body = _Writer(inner, names).lines()[1:]
                lines += [f"    {line}" for line in body]
            else:
                lines.append(f"        # {type(inner).__name__.lower()}")
        if isinstance(kernel, While) and plan is kernel.condition:
            lines += [f"        if not {results}[0]:", "            break"]
    return lines


def _names(buffers: Iterable[Buffer]) -> dict[int, str]:
    """A different name for each buffer."""
    names: dict[int, str] = {}
    for buffer in buffers:
        if id(buffer) not in names:
            name = buffer.name.replace(" ", "_") or f"buffer{len(names)}"
            while name in names.values():
                name += "_"
            names[id(buffer)] = name
    return names


def _constant(instruction: Instruction) -> str:
    value = np.frombuffer(instruction.attribute, instruction.dtype.newbyteorder("<"))[0]
    return repr(value.astype(compute_dtype(instruction.dtype)).item())


@dataclass
class _Writer:
    kernel: Loops
    buffer_names: dict[int, str]
    text: list[str] = field(default_factory=list)
    depth: int = 0

    def lines(self) -> list[str]:
        """The whole text."""
        kernel, plan = self.kernel, staging(self.kernel)
        self.names = [self.buffer_names[id(buffer)] for buffer in kernel.operands]
        operands = ", ".join(
            f"{name}: {b.dtype.name}[{b.size}]"
            for name, b in zip(self.names, kernel.operands, strict=True)
        )
        self.line(f"def {kernel.label or 'kernel'}({operands}):")
        self.depth += 1
        self._initialize()
        for dimension in range(kernel.outer):
            self.open_loop(dimension)
        for stage in range(len(plan.passes)):
            self._stage(plan, stage)
        if not kernel.stores:
            self.line("pass")
        return self.text

    def line(self, text: str) -> None:
        self.text.append("    " * self.depth + text)

    def index(self, dimension: int) -> str:
        return _INDICES[dimension] if dimension < len(_INDICES) else f"i{dimension}"

    def open_loop(self, dimension: int) -> None:
        kernel, size = self.kernel, self.kernel.sizes[dimension]
        bounds, note = str(size), ""
        if dimension == 0 and kernel.chunks > 1:
            bounds, note = f"begin, end of chunk, of {size}", f"  # {kernel.chunks} chunks"
        elif dimension < kernel.parallel:
            note = "  # parallel"
        self.line(f"for {self.index(dimension)} in range({bounds}):{note}")
        self.depth += 1

    def place(self, access: Access, extra: int | None = None) -> str:
        parts = []
        for dimension, stride in enumerate(access.strides):
            if stride:
                name = self.index(dimension)
                parts.append(name if stride == 1 else f"{stride}*{name}")
        if access.chunk_stride and self.kernel.chunks > 1:
            parts.append(f"{access.chunk_stride}*chunk")
        if extra is not None:
            parts.append(f"v{extra}")
        if access.offset or not parts:
            parts.append(str(access.offset))
        subscript = " + ".join(parts).replace("+ -", "- ")
        return f"{self.names[access.operand]}[{subscript}]"

    def _initialize(self) -> None:
        for store in self.kernel.stores:
            if store.accumulate is None or not store.initialize:
                continue
            start = neutral(store.accumulate, self.kernel.instructions[store.value].dtype)
            self.line(f"{self.place(store.access)} = {start}  # everywhere")

    def _stage(self, plan: Staging, stage: int) -> None:
        for number in plan.row_values[stage]:
            self.value(number)
        sweep = plan.passes[stage]
        if not sweep.empty:
            depth = self.depth
            instructions = self.kernel.instructions
            kept, recalled = dict(sweep.keeps), dict(sweep.recalls)
            running = [
                n for n in sweep.values if instructions[n].op == "cumulate" and n not in recalled
            ]
            for number in (*sweep.reduces, *running):
                self.line(f"v{number} = {neutral(instructions[number].attribute, instructions[number].dtype)}")
            for dimension in range(self.kernel.outer, len(self.kernel.sizes)):
                self.open_loop(dimension)
            for number in (*sweep.values, *sweep.reduces):
                if number in recalled:
                    self.line(f"v{number} = {self.kept_place(recalled[number])}")
                else:
                    self.value(number)
                if number in kept:
                    self.line(f"{self.kept_place(kept[number])} = v{number}  # kept for later")
            for number in sweep.stores:
                self.store(self.kernel.stores[number])
            self.depth = depth
        for number in plan.row_stores[stage]:
            self.store(self.kernel.stores[number])

    def kept_place(self, store: int) -> str:
        return self.place(self.kernel.stores[store].access)

    def value(self, number: int) -> None:
        instruction = self.kernel.instructions[number]
        self.line(f"v{number} = {self.expression(number, instruction)}")

    def expression(self, number: int, instruction: Instruction) -> str:
        op, attribute = instruction.op, instruction.attribute
        arguments = [f"v{a}" for a in instruction.args]
        if op == "constant":
            return _constant(instruction)
        if op == "index":
            return self.index(attribute)
        if op == "load":
            return self.place(attribute, instruction.args[0] if instruction.args else None)
        if op in ("reduce", "cumulate"):
            if self.kernel.outer == len(self.kernel.sizes):
                return arguments[0]
            return _combination(attribute, f"v{number}", arguments[0])
        if op in _SYMBOLS:
            return f" {_SYMBOLS[op]} ".join(arguments)
        if op == "select":
            return f"{arguments[1]} if {arguments[0]} else {arguments[2]}"
        if op in ("cast", "bitcast"):
            return (
                f"{instruction.dtype.name}({arguments[0]})"
                if op == "cast"
                else (f"bitcast({arguments[0]}, {instruction.dtype.name})")
            )
        return f"{attribute if op == 'special' else op}({', '.join(arguments)})"

    def store(self, store: Store) -> None:
        target, value = self.place(store.access, store.address), f"v{store.value}"
        if store.accumulate is not None:
            value = _combination(store.accumulate, target, value)
        guard = f"if v{store.guard}: " if store.guard is not None else ""
        self.line(f"{guard}{target} = {value}")


def _combination(reducer: str, left: str, right: str) -> str:
    symbol = _SYMBOLS.get(reducer)
    return f"{left} {symbol} {right}" if symbol else f"{reducer}({left}, {right})"
