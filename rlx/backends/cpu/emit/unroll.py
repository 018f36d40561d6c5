"""Kernels over tiny buffers as straight-line code: every element is an SSA value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from rlx.backends.cpu.emit.ir_text import Code, Value, literal
from rlx.backends.cpu.emit.printing import LlvmPrinter
from rlx.backends.cpu.emit.scalar_code import (
    load_scalar,
    register_kind,
    rounded,
    storage_kind,
    store_scalar,
    widened,
)
from rlx.backends.loops.walk import SequentialMapping, Walk
from rlx.code.tree import (
    Apply,
    Array,
    Assign,
    Declare,
    Element,
    Expression,
    ForLoop,
    If,
    Linear,
    Number,
    Register,
    Statement,
    Write,
)
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Buffer, Contract, Kernel, Loops, Operand, Plan
from rlx.ir.scalar import neutral
from rlx.ir.types import compute_dtype, element_dtype

__all__ = ["Cells", "BufferContents", "can_unroll", "unroll"]

# scalar operations in one step of the loop, and elements of a buffer kept in registers
_MOST_WORK = 512
_MOST_ELEMENTS = 64
INT64 = np.dtype(np.int64)

Cells = list[Value | None]


def can_unroll(
    plan: Plan,
    in_memory: Sequence[Buffer],
    mutable: Sequence[Buffer] = (),
    written_once: Sequence[Buffer] = (),
) -> bool:
    """Whether the plan is small enough.

    Buffers in memory may have any size, and be read at computed positions; the mutable ones may be
    written there as well. Those that are `written_once` have any size, but are never read.
    """
    addressed = {id(buffer) for buffer in (*in_memory, *mutable)}
    written = {id(buffer) for buffer in mutable}
    kept = addressed | {id(buffer) for buffer in written_once}
    small = all(
        b.real_size <= _MOST_ELEMENTS
        for b in (*plan.inputs, *plan.outputs, *plan.buffers)
        if id(b) not in kept and b.value is None
    )
    return small and sum(_work(k, addressed, written) for k in plan.kernels) <= _MOST_WORK


def _work(kernel: Kernel, addressed: set[int], written: set[int]) -> float:
    """Scalar operations of a kernel, infinitely many if it cannot be unrolled."""
    if isinstance(kernel, Contract):
        real = kernel.out.buffer.dtype.kind == "f"
        return math.prod(kernel.out.shape) * kernel.depth if real else math.inf
    if not isinstance(kernel, Loops) or kernel.chunks > 1:
        return math.inf
    dynamic = any(
        s.address is not None and id(kernel.operands[s.access.operand]) not in written
        for s in kernel.stores
    ) or any(
        i.op == "load" and i.args and id(kernel.operands[i.attribute.operand]) not in addressed
        for i in kernel.instructions
    )
    if dynamic:
        return math.inf
    return math.prod(kernel.sizes) * (len(kernel.instructions) + len(kernel.stores))


class BufferContents:
    """The contents of a plan's buffers: values, or addresses that are loaded from on demand."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.cells: dict[int, Cells] = {}
        self.pointers: dict[int, tuple[str, str]] = {}
        self.mutable: set[int] = set()

    def hold(self, buffer: Buffer, cells: Cells) -> None:
        """Bind a buffer to values."""
        self.cells[id(buffer)] = cells

    def point(self, buffer: Buffer, pointer: str, metadata: str = "") -> None:
        """Bind a buffer to an address."""
        self.pointers[id(buffer)] = (pointer, metadata)

    def point_mutable(self, buffer: Buffer, pointer: str) -> None:
        """Bind a buffer to an address that is loaded from and stored to each time."""
        self.point(buffer, pointer)
        self.mutable.add(id(buffer))

    def of(self, buffer: Buffer) -> Cells:
        """The values of a buffer so far."""
        cells = self.cells.get(id(buffer))
        if cells is None:
            cells = self.cells[id(buffer)] = [None] * buffer.real_size
        return cells

    def read(self, buffer: Buffer, index: int) -> Value:
        """An element; unwritten elements are zero."""
        if id(buffer) in self.mutable:
            return self.load(buffer, self.code.constant("i64", index))
        cells = self.of(buffer)
        held = cells[index]
        if held is None:
            if id(buffer) in self.pointers:
                held = self.load(buffer, self.code.constant("i64", index))
            else:
                held = self.code.constant(register_kind(compute_dtype(element_dtype(buffer.dtype))), 0)
            cells[index] = held
        return held

    def load(self, buffer: Buffer, index: Value) -> Value:
        """An element of a buffer in memory."""
        pointer, metadata = self.pointers[id(buffer)]
        dtype = element_dtype(buffer.dtype)
        place = self.code.element(storage_kind(dtype), pointer, index)
        return load_scalar(self.code, dtype, place, metadata)

    def store(self, buffer: Buffer, index: Value, value: Value) -> None:
        """Set an element of a buffer in memory."""
        pointer, _ = self.pointers[id(buffer)]
        dtype = element_dtype(buffer.dtype)
        place = self.code.element(storage_kind(dtype), pointer, index)
        store_scalar(self.code, dtype, value, place)

    def write(self, buffer: Buffer, index: int, value: Value) -> None:
        """Set an element, rounded to the buffer's dtype."""
        dtype = element_dtype(buffer.dtype)
        if id(buffer) in self.mutable:
            self.store(buffer, self.code.constant("i64", index), value)
            return
        self.of(buffer)[index] = rounded(dtype, value)


def unroll(plan: Plan, memory: BufferContents) -> None:
    """Emit all kernels of a plan."""
    for kernel in plan.kernels:
        if isinstance(kernel, Contract):
            _unroll_contract(kernel, memory)
        else:
            assert isinstance(kernel, Loops)
            _UnrolledPrinter(kernel, memory)


def _unroll_contract(kernel: Contract, memory: BufferContents) -> None:
    kind = register_kind(kernel.out.buffer.dtype)
    for place in itertools.product(*map(range, kernel.out.shape)):
        *batch, m, n = place
        at = _element(kernel.out, place)
        total = (
            memory.read(kernel.out.buffer, at)
            if kernel.accumulate
            else memory.code.constant(kind, 0)
        )
        for k in range(kernel.depth):
            left = memory.read(kernel.lhs.buffer, _element(kernel.lhs, (*batch, m, k)))
            right = memory.read(kernel.rhs.buffer, _element(kernel.rhs, (*batch, k, n)))
            product = memory.code.binary("mul", left, right, "contract reassoc")
            total = memory.code.binary("add", total, product, "contract reassoc")
        memory.write(kernel.out.buffer, at, total)


def _element(operand: Operand, place: tuple[int, ...]) -> int:
    return operand.offset + sum(s * i for s, i in zip(operand.strides, place, strict=True))


class _UnrolledPrinter(LlvmPrinter):
    """Prints the code of one Loops kernel with every iteration apart; its arrays are values, or addresses."""

    def __init__(self, kernel: Loops, memory: BufferContents) -> None:
        super().__init__(memory.code, {}, {})
        self.memory = memory
        walk = Walk(kernel, CodeWriter(), SequentialMapping(threads=False))
        walk.kernel()
        self.buffers = {array.name: buffer for array, buffer in zip(walk.arrays, kernel.operands, strict=True)}
        self.indices: dict[str, int] = {}
        self.block(walk.code.block)

    def statement(self, statement: Statement) -> None:
        """One statement; a guarded store to values selects."""
        match statement:
            case Declare(register, value) | Assign(register, value):
                self.registers[register.name] = self.value(value)
            case ForLoop(index, start, stop, body):
                for number in range(self.known(start) or 0, self.known(stop) or 0):
                    self.indices[index.name] = number
                    self.block(body)
            case Write(array, (position,), value):
                self.write(self.buffers[array.name], position, self.value(value))
            case If(condition, (Write(array, (position,), value),)) if not self.is_mutable(array):
                buffer = self.buffers[array.name]
                kept, made = self.load(buffer, position), widened(element_dtype(buffer.dtype), self.value(value))
                self.write(buffer, position, self.value(condition).where(made, kept))
            case _:
                super().statement(statement)

    def is_mutable(self, array: Array) -> bool:
        """Whether an array is in memory, and written there."""
        return id(self.buffers[array.name]) in self.memory.mutable

    def value(self, expression: Expression) -> Value:
        """The value of an expression; the first element of a row is its own sum."""
        known = self.known(expression)
        if known is not None:
            return self.code.constant(register_kind(expression.dtype), known)
        match expression:
            case Apply(dtype, op, (Register(_, name), right), "reduction" | "ordered"):
                if self.registers[name].name == literal(register_kind(dtype), neutral(op, dtype)):
                    return self.value(right)
            case Element(_, array, (position,)):
                return self.load(self.buffers[array.name], position)
        return super().value(expression)

    def known(self, expression: Expression) -> int | None:
        """The number that an index is here; None if it is computed from data."""
        match expression:
            case Register(_, name):
                return self.indices.get(name)
            case Number(dtype, value) if dtype == INT64:
                return int(value)
            case Linear(_, terms, offset):
                found = [(factor, self.known(term)) for factor, term in terms]
                numbers = [factor * number for factor, number in found if number is not None]
                return offset + sum(numbers) if len(numbers) == len(found) else None
            case Apply(dtype, "cast", (inner,)) if dtype == inner.dtype == INT64:
                return self.known(inner)
        return None

    def load(self, buffer: Buffer, position: Expression) -> Value:
        """An element."""
        known = self.known(position)
        return self.memory.load(buffer, self.value(position)) if known is None else self.memory.read(buffer, known)

    def write(self, buffer: Buffer, position: Expression, value: Value) -> None:
        """Set an element."""
        known = self.known(position)
        if known is None:
            self.memory.store(buffer, self.value(position), value)
        else:
            self.memory.write(buffer, known, value)
