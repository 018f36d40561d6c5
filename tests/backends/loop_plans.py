"""Small hand-built plans, shared by the tests of backends and of the verifier."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.code.scalars import apply, identity, reducer_function
from rlx.ir.kernels import Access, Buffer, Instruction, Kernel, Loops, Plan, Store
from rlx.ir.types import is_float
from rlx.ir.verify_loops import element_levels, store_is_of_the_row, store_runs_once

FLOAT = np.dtype(np.float32)
INT = np.dtype(np.int64)
BOOL = np.dtype(bool)


def constant(value: Any, dtype: np.dtype = FLOAT) -> Instruction:
    """A constant instruction."""
    return Instruction("constant", (), dtype, np.array(value, dtype).tobytes())


def load(operand: int, *strides: int, offset: int = 0, dtype: np.dtype = FLOAT) -> Instruction:
    """A load through a static access."""
    return Instruction("load", (), dtype, Access(operand, strides, offset))


def unary(op: str, argument: int, dtype: np.dtype = FLOAT, attribute: Any = None) -> Instruction:
    """An instruction of one argument."""
    return Instruction(op, (argument,), dtype, attribute)


def plan_of(
    kernels: Sequence[Kernel],
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    others: Sequence[Buffer] = (),
    arena: int = 0,
    offsets: Mapping[Buffer, int] | None = None,
) -> Plan:
    """A plan over the given buffers; temporaries lie at the beginning of the arena if nothing else is said."""
    buffers = (*inputs, *outputs, *others)
    places = {b: 0 for b in others if b.role == "temporary"} if offsets is None else offsets
    return Plan(tuple(inputs), tuple(outputs), buffers, tuple(kernels), arena, places)


def elementwise(op: str, source: Buffer, target: Buffer) -> Loops:
    """target = op(source), one dimension."""
    return Loops(
        (source.size,), 1, (source, target), (load(0, 1), unary(op, 0)),
        (Store(1, Access(1, (1,))),),
    )  # fmt: skip


# ------------------------------------------------------------------ the slow meaning of Loops
def run_slowly(kernel: Loops, operands: Sequence[np.ndarray]) -> None:
    """Loops as its docstring says it: nested Python loops, row by row, pass by pass."""
    for chunk in range(kernel.chunks):
        _SlowChunk(kernel, operands, chunk).run()


class _SlowChunk:
    def __init__(self, kernel: Loops, operands: Sequence[np.ndarray], chunk: int) -> None:
        self.kernel, self.operands, self.chunk = kernel, operands, chunk
        self.levels = element_levels(kernel)
        self.ranges = [range(n) for n in kernel.sizes]
        if kernel.sizes:
            size, chunks = kernel.sizes[0], kernel.chunks
            self.ranges[0] = range(size * chunk // chunks, size * (chunk + 1) // chunks)

    def run(self) -> None:
        for store in self.kernel.stores:
            if store.initialize:
                self.initialize(store)
        outer = self.kernel.outer
        for place in itertools.product(*self.ranges[:outer]):
            self.row(place, list(itertools.product(*self.ranges[outer:])))

    def address(self, access: Access, place: Sequence[int]) -> int:
        moved = sum(s * i for s, i in zip(access.strides, place, strict=True) if s)
        return access.offset + moved + access.chunk_stride * self.chunk

    def initialize(self, store: Store) -> None:
        access, memory = store.access, self.operands[store.access.operand]
        reached = [r if s else range(1) for r, s in zip(self.ranges, access.strides, strict=True)]
        for place in itertools.product(*reached):
            memory[self.address(access, place)] = identity(store.accumulate or "", memory.dtype)

    def row(self, place: tuple[int, ...], elements: list[tuple[int, ...]]) -> None:
        """Every instruction over the row, in order: a value, or one for each element."""
        values: list[list[np.ndarray]] = []
        width = len(self.kernel.sizes) - self.kernel.outer
        for number, instruction in enumerate(self.kernel.instructions):
            of_elements = self.levels[number]
            where = elements if of_elements else [(0,) * width]
            if instruction.op in ("reduce", "cumulate"):
                source = instruction.args[0]
                row = [
                    values[source][n if self.levels[source] else 0] for n in range(len(elements))
                ]
                running = self.running(instruction, row)
                values.append(running[1:] if of_elements else running[-1:])
            else:
                arguments = [
                    [values[a][n if self.levels[a] else 0] for a in instruction.args]
                    for n in range(len(where))
                ]
                values.append([
                    self.scalar(instruction, (*place, *where[n]), arguments[n])
                    for n in range(len(where))
                ])  # fmt: skip
        self.stores(place, elements, values)

    def running(self, instruction: Instruction, row: list[np.ndarray]) -> list[np.ndarray]:
        total = np.array(identity(instruction.attribute, instruction.dtype))
        totals = [total]
        for value in row:
            total = np.asarray(reducer_function(instruction.attribute)(total, value))
            totals.append(total)
        return totals

    def scalar(
        self, instruction: Instruction, place: Sequence[int], arguments: list[np.ndarray]
    ) -> np.ndarray:
        if instruction.op == "constant":
            return np.frombuffer(instruction.attribute, instruction.dtype)[0]
        if instruction.op == "index":
            return np.int64(place[instruction.attribute])
        if instruction.op == "load":
            memory = self.operands[instruction.attribute.operand]
            address = self.address(instruction.attribute, place) + sum(map(int, arguments))
            assert 0 <= address < len(memory)
            return memory[address].astype(instruction.dtype)
        return apply(instruction, [np.asarray(a) for a in arguments])

    def stores(
        self,
        place: tuple[int, ...],
        elements: list[tuple[int, ...]],
        values: list[list[np.ndarray]],
    ) -> None:
        width = len(self.kernel.sizes) - self.kernel.outer
        for store in self.kernel.stores:
            once = store_runs_once(self.kernel, store, self.levels)
            for n, element in enumerate([(0,) * width] if once else elements):

                def at(number: int, n: int = n) -> np.ndarray:
                    return values[number][n if self.levels[number] else 0]

                if store.guard is not None and not at(store.guard):
                    continue
                address = self.address(store.access, (*place, *element))
                if store.address is not None:
                    address += int(at(store.address))
                self.put(store, address, at(store.value))

    def put(self, store: Store, address: int, value: np.ndarray) -> None:
        memory = self.operands[store.access.operand]
        assert 0 <= address < len(memory)
        if store.accumulate is not None:
            old = memory[address]
            wide = old.astype(np.float32) if is_float(memory.dtype) and old.itemsize < 4 else old
            value = np.asarray(reducer_function(store.accumulate)(wide, value))
        memory[address] = np.asarray(value).astype(memory.dtype)


def once_where(kernel: Loops, chosen: Callable[[], bool]) -> Loops:
    """The kernel with some of its accumulations that may run once per row running so."""
    levels = element_levels(kernel)

    def changed(store: Store) -> Store:
        may = store.accumulate is not None and store_is_of_the_row(kernel, store, levels)
        return replace(store, once=chosen()) if may else store

    return replace(kernel, stores=tuple(map(changed, kernel.stores)))
