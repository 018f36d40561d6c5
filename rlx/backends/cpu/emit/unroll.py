"""Kernels over tiny buffers as straight-line code: every element is an SSA value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from rlx.backends.cpu.emit.ir_text import Code, Value
from rlx.backends.cpu.emit.scalar_code import (
    combine,
    constant,
    identity,
    load_scalar,
    register_kind,
    rounded,
    spell,
    storage_kind,
    store_scalar,
    widened,
)
from rlx.backends.loops.row_schedule import row_schedule
from rlx.ir.kernels import (
    Access,
    Buffer,
    Contract,
    Instruction,
    Kernel,
    Loops,
    Operand,
    Plan,
    Store,
)
from rlx.ir.types import compute_dtype

__all__ = ["Cells", "BufferContents", "can_unroll", "cell_count", "cell_dtype", "unroll"]

# scalar operations in one step of the loop, and elements of a buffer kept in registers
_MOST_WORK = 512
_MOST_ELEMENTS = 64

Cells = list[Value | None]


def cell_dtype(buffer: Buffer) -> np.dtype:
    """The dtype of a buffer's elements, complex ones being two real ones."""
    if buffer.dtype.kind == "c":
        return np.dtype(f"f{buffer.dtype.itemsize // 2}")
    return buffer.dtype


def cell_count(buffer: Buffer) -> int:
    """Real elements of a buffer."""
    return buffer.size * (2 if buffer.dtype.kind == "c" else 1)


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
        cell_count(b) <= _MOST_ELEMENTS
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
            cells = self.cells[id(buffer)] = [None] * cell_count(buffer)
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
                held = self.code.constant(register_kind(compute_dtype(cell_dtype(buffer))), 0)
            cells[index] = held
        return held

    def load(self, buffer: Buffer, index: Value) -> Value:
        """An element of a buffer in memory."""
        pointer, metadata = self.pointers[id(buffer)]
        dtype = cell_dtype(buffer)
        place = self.code.element(storage_kind(dtype), pointer, index)
        return load_scalar(self.code, dtype, place, metadata)

    def store(self, buffer: Buffer, index: Value, value: Value) -> None:
        """Set an element of a buffer in memory."""
        pointer, _ = self.pointers[id(buffer)]
        dtype = cell_dtype(buffer)
        place = self.code.element(storage_kind(dtype), pointer, index)
        store_scalar(self.code, dtype, value, place)

    def write(self, buffer: Buffer, index: int, value: Value) -> None:
        """Set an element, rounded to the buffer's dtype."""
        dtype = cell_dtype(buffer)
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
            _UnrolledNest(kernel, memory).emit()


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


Row = list[Value]


class _UnrolledNest:
    """Emits one Loops kernel: row by row, each instruction over the whole row."""

    def __init__(self, kernel: Loops, memory: BufferContents) -> None:
        self.kernel, self.memory, self.code = kernel, memory, memory.code
        plan = row_schedule(kernel)
        self.element_level, self.summed = plan.element_level, plan.summed
        self.once = {number for phase in plan.row_stores for number in phase}
        self.elements = list(itertools.product(*map(range, kernel.sizes[kernel.outer :])))
        self.origin = (0,) * (len(kernel.sizes) - kernel.outer)

    def emit(self) -> None:
        """The whole nest."""
        kernel = self.kernel
        for store in kernel.stores:
            if store.accumulate is not None and store.initialize:
                self.initialize(store)
        for outer in itertools.product(*map(range, kernel.sizes[: kernel.outer])):
            self.row(outer)

    def address(self, access: Access, place: Sequence[int]) -> int:
        return access.offset + sum(s * i for s, i in zip(access.strides, place, strict=True))

    def initialize(self, store: Store) -> None:
        assert store.accumulate is not None
        strides = store.access.strides
        reached = [range(n if s else 1) for n, s in zip(self.kernel.sizes, strides, strict=True)]
        dtype = self.kernel.instructions[store.value].dtype
        for place in itertools.product(*reached):
            start = identity(self.code, store.accumulate, dtype)
            self.write(store, self.address(store.access, place), start)

    def write(self, store: Store, index: int, value: Value) -> None:
        self.memory.write(self.kernel.operands[store.access.operand], index, value)

    def row(self, outer: tuple[int, ...]) -> None:
        values: list[Row] = []
        for number, instruction in enumerate(self.kernel.instructions):
            if instruction.op in ("reduce", "cumulate"):
                values.append(self.running(number, instruction, values))
                continue
            where = self.elements if self.element_level[number] else [self.origin]
            values.append(
                [
                    self.scalar(number, (*outer, *place), self.arguments(instruction, values, n))
                    for n, place in enumerate(where)
                ]
            )
        for number, store in enumerate(self.kernel.stores):
            self.store(store, [self.origin] if number in self.once else self.elements, outer, values)

    def at(self, number: int, values: list[Row], element: int) -> Value:
        return values[number][element if self.element_level[number] else 0]

    def arguments(self, instruction: Instruction, values: list[Row], element: int) -> list[Value]:
        return [self.at(a, values, element) for a in instruction.args]

    def running(self, number: int, instruction: Instruction, values: list[Row]) -> Row:
        reducer, dtype = instruction.attribute, instruction.dtype
        ordered = instruction.op == "cumulate"
        total = identity(self.code, reducer, dtype)
        totals = [total]
        for element in range(len(self.elements)):
            value = self.at(instruction.args[0], values, element)
            total = value if element == 0 else combine(reducer, dtype, total, value, ordered)
            totals.append(total)
        return totals[1:] if self.element_level[number] else totals[-1:]

    def scalar(self, number: int, place: tuple[int, ...], arguments: list[Value]) -> Value:
        instruction = self.kernel.instructions[number]
        op, attribute = instruction.op, instruction.attribute
        if op == "constant":
            return constant(self.code, instruction.dtype, attribute)
        if op == "index":
            return self.code.constant("i64", place[attribute])
        if op == "load":
            buffer, index = self.kernel.operands[attribute.operand], self.address(attribute, place)
            if arguments:
                return self.memory.load(buffer, arguments[0] + index)
            return self.memory.read(buffer, index)
        dtypes = [self.kernel.instructions[a].dtype for a in instruction.args]
        return spell(self.code, instruction, list(zip(arguments, dtypes, strict=True)), number in self.summed)

    def store(
        self, store: Store, where: Sequence[tuple[int, ...]], outer: tuple[int, ...], values: list[Row]
    ) -> None:
        buffer = self.kernel.operands[store.access.operand]
        for element, place in enumerate(where):
            index = self.address(store.access, (*outer, *place))
            value = self.at(store.value, values, element)
            if id(buffer) in self.memory.mutable:
                self.store_in_memory(store, index, value, values, element)
                continue
            value = widened(cell_dtype(buffer), value)
            if store.accumulate is not None:
                held = self.memory.read(buffer, index)
                dtype = self.kernel.instructions[store.value].dtype
                value = combine(store.accumulate, dtype, held, value, ordered=False)
            if store.guard is not None:
                guard = self.at(store.guard, values, element)
                value = guard.where(value, self.memory.read(buffer, index))
            self.write(store, index, value)

    def store_in_memory(
        self, store: Store, index: int, value: Value, values: list[Row], element: int
    ) -> None:
        """Write to a buffer in memory, whose address may be a computed one."""
        place = self.code.constant("i64", index)
        if store.address is not None:
            place = self.at(store.address, values, element) + place
        if store.guard is None:
            self.combine_in_memory(store, place, value)
            return
        with self.code.when(self.at(store.guard, values, element)):
            self.combine_in_memory(store, place, value)

    def combine_in_memory(self, store: Store, place: Value, value: Value) -> None:
        buffer = self.kernel.operands[store.access.operand]
        if store.accumulate is not None:
            held = self.memory.load(buffer, place)
            dtype = self.kernel.instructions[store.value].dtype
            value = combine(store.accumulate, dtype, held, value, ordered=False)
        self.memory.store(buffer, place, value)
