"""Kernel code as LLVM IR: one walk over the tree. Registers that change are stack slots, which LLVM promotes."""

from __future__ import annotations

from typing import NamedTuple

from rlx.backends.cpu.emit.ir_text import Code, Value
from rlx.backends.cpu.emit.scalar_code import (
    combine,
    load_scalar,
    register_kind,
    spell,
    storage_kind,
    store_scalar,
)
from rlx.code.tree import (
    Allocate,
    Apply,
    Array,
    Assign,
    Block,
    Declare,
    Element,
    Expression,
    ForLoop,
    FreeLoop,
    If,
    Linear,
    Number,
    Product,
    Quotient,
    Register,
    Remainder,
    Statement,
    Write,
    index,
)

__all__ = ["LlvmPrinter", "Location"]


class Location(NamedTuple):
    """The address of an array, and the annotation of its accesses."""

    pointer: str
    metadata: str = ""


class LlvmPrinter:
    """Prints the code of one function.

    registers: values by name. slots: the type and the stack slot of each register that changes. arrays: by name.
    """

    def __init__(self, code: Code, registers: dict[str, Value], arrays: dict[str, Location]) -> None:
        self.code = code
        self.registers = registers
        self.slots: dict[str, tuple[str, str]] = {}
        self.arrays = arrays

    def block(self, block: Block) -> None:
        """Statements in order."""
        for statement in block:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        """One statement."""
        code = self.code
        match statement:
            case Declare(register, value, changes):
                self.declare(register.name, self.value(value), changes)
            case Assign(register, value):
                code.store(self.value(value), self.slots[register.name][1])
            case Write(array, position, value):
                made = self.value(value)
                pointer, metadata = self.place(array, position)
                store_scalar(code, array.dtype, made, pointer, metadata)
            case ForLoop(index, start, stop, body):
                with code.loop(self.value(start), self.value(stop)) as number:
                    self.registers[index.name] = number
                    self.block(body)
            case FreeLoop(body, Expression() as condition):
                with code.loop_while(lambda: self.value(condition)):
                    self.block(body)
            case If(condition, body, ()):
                with code.when(self.condition(condition)):
                    self.block(body)
            case Allocate(array):
                slot = code.stack_slot(f"[{array.shape[0]} x {storage_kind(array.dtype)}]")
                self.arrays[array.name] = Location(slot)
            case _:
                raise AssertionError(f"{type(statement).__name__} has no LLVM IR")

    def declare(self, name: str, value: Value, changes: bool) -> None:
        """A register."""
        if not changes:
            self.registers[name] = value
            return
        slot = self.code.stack_slot(value.kind)
        self.code.store(value, slot)
        self.slots[name] = value.kind, slot

    def value(self, expression: Expression) -> Value:
        """The value of an expression."""
        code = self.code
        match expression:
            case Register(_, name):
                return code.load(*self.slots[name]) if name in self.slots else self.registers[name]
            case Linear(_, terms, offset):
                total = self.total(terms)
                return total if not offset else code.binary("add", total, total.lift(offset), "nsw")
            case Apply(dtype, op, arguments, attribute):
                values = [(self.value(argument), argument.dtype) for argument in arguments]
                if attribute in ("reduction", "ordered"):
                    return combine(op, dtype, values[0][0], values[1][0], attribute == "ordered")
                return spell(code, op, dtype, attribute, values)
            case Element(_, array, position):
                pointer, metadata = self.place(array, position)
                return load_scalar(code, array.dtype, pointer, metadata)
            case Product(_, left, right):
                return code.binary("mul", self.value(left), self.value(right), "nsw")
            case Quotient(_, dividend, divisor):
                return code.binary("udiv", self.value(dividend), self.value(index(divisor)))
            case Remainder(_, dividend, divisor):
                return code.binary("urem", self.value(dividend), self.value(index(divisor)))
            case Number(dtype, number):
                return code.constant(register_kind(dtype), number)
        raise AssertionError(f"{type(expression).__name__} has no LLVM IR")

    def condition(self, expression: Expression) -> Value:
        """Whether a condition holds, as i1."""
        return self.value(expression)

    def total(self, terms: tuple[tuple[int, Expression], ...]) -> Value:
        """The sum of the terms of an index."""
        found: Value | None = None
        for factor, term in terms:
            value = self.value(term)
            if factor != 1:
                value = self.code.binary("mul", value, value.lift(factor), "nsw")
            found = value if found is None else self.code.binary("add", found, value, "nsw")
        return found or self.code.constant("i64", 0)

    def element_kind(self, array: Array) -> str:
        """The type of an array's elements."""
        return storage_kind(array.dtype)

    def place(self, array: Array, position: tuple[Expression, ...]) -> Location:
        """The address of an element."""
        pointer, metadata = self.arrays[array.name]
        kind, (at,) = self.element_kind(array), position
        if isinstance(at, Linear):
            pointer = self.code.element(kind, pointer, self.total(at.terms))
            return Location(self.code.element(kind, pointer, at.offset), metadata)
        return Location(self.code.element(kind, pointer, self.value(at)), metadata)
