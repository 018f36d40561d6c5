"""The code of actions (see scripts.py) that process several matrices at once, one in each lane of vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np

from rlx.backends.cpu.emit.ir_text import Code, Module, Value, vector
from rlx.backends.cpu.routines.scripts import (
    ACTION_HEAD,
    CONSTANT,
    CONSTANTS,
    MATRIX,
    MEMORY,
    PLACE_WORDS,
    ROW,
    SCRATCH,
    SLOTS,
)

__all__ = ["VECTOR_BYTES", "ActionCode", "actions_text", "lane_count"]

VECTOR_BYTES = 64


def lane_count(dtype: np.dtype) -> int:
    """The number of matrices of a dtype in one vector."""
    return VECTOR_BYTES // (dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize)


class ActionCode:
    """An action under construction. Pointers are IR; fields and addresses of the action are numbered as its words.

    number: bytes of a real number. lanes: real numbers of a vector. vector: its type.
    """

    def __init__(self, code: Code, dtype: np.dtype) -> None:
        self.code, self.lanes, self.is_complex = code, lane_count(dtype), dtype.kind == "c"
        self.number = VECTOR_BYTES // self.lanes
        self.real = "float" if self.number == 4 else "double"
        self.vector = vector(self.lanes, self.real)

    # ------------------------------------------------------------- the action
    def field(self, number: int) -> Value:
        """A word of the action."""
        return self.read("i64", "%action", number)

    def place(self, number: int) -> str:
        """The address, for the current matrix, that is place `number` of the action: see scripts.place."""
        start = ACTION_HEAD + PLACE_WORDS * number
        slot, offset, step = (self.field(start + n) for n in range(PLACE_WORDS))
        slots, row, memory, matrix = (self.read("i64", "%state", n) for n in (SLOTS, ROW, MEMORY, MATRIX))
        buffer = self.read("i64", self.pointer(slots), slot) + matrix * step
        constants = row + self.read("i64", self.pointer(row), CONSTANTS) * 8
        base = slot.equal(SCRATCH).where(memory, slot.equal(CONSTANT).where(constants, buffer))
        return self.pointer(base + offset)

    @property
    def matrix(self) -> Value:
        """The number of the matrix, or of the block of matrices."""
        return self.read("i64", "%state", MATRIX)

    # ------------------------------------------------------------- words
    def word(self, number: Value | int) -> Value:
        """A number as i64."""
        return number if isinstance(number, Value) else self.code.constant("i64", number)

    def pointer(self, address: Value) -> str:
        """An address as a pointer."""
        return address.convert("inttoptr", "ptr").name

    def smaller(self, left: Value | int, right: Value) -> Value:
        """The smaller one of two words."""
        return right.call("smin", self.word(left))

    def loop(self, first: Value | int, last: Value | int) -> AbstractContextManager[Value]:
        """A loop over numbers."""
        return self.code.loop(self.word(first), self.word(last))

    # ------------------------------------------------------------- memory
    def at(self, pointer: str, nbytes: Value | int) -> str:
        """The address of a byte."""
        return self.code.element("i8", pointer, nbytes)

    def read(self, kind: str, pointer: str, number: Value | int = 0) -> Value:
        """An element of an array."""
        return self.code.load(kind, self.code.element(kind, pointer, number))

    def load(self, pointer: str, kind: str = "") -> Value:
        """A vector, or a value of another type, that is aligned as real numbers are."""
        return self.code.load(kind or self.vector, pointer, f", align {self.number}")

    def store(self, pointer: str, value: Value) -> None:
        """Write a vector, or a value of another type."""
        self.code.store(value, pointer, f", align {self.number}")

    def copy(self, target: str, source: str, kind: str = "") -> None:
        """Copy a value."""
        self.store(target, self.load(source, kind))

    # ------------------------------------------------------------- vectors
    def constant(self, number: float) -> Value:
        """A number in every lane."""
        return self.code.constant(self.vector, number)

    def multiply_add(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z, rounded once or twice."""
        return x.call("fmuladd", y, z)

    def turn_square(self, lanes: str, memory: str, step: Value, outwards: bool, parts: int = 1) -> None:
        """Move as many numbers of each matrix as a vector has to the lanes, or from them.

        The numbers, of `parts` real ones each, form a square, which is transposed by interleaving its halves as often
        as its size can be halved. step: bytes from matrix to matrix.
        """
        size = self.lanes // parts
        pointers = [
            [self.at(lanes, VECTOR_BYTES * n) for n in range(size)], [self.at(memory, step * n) for n in range(size)]
        ]  # fmt: skip
        targets, sources = pointers[::-1] if outwards else pointers
        vectors, half = [self.load(source) for source in sources], size // 2
        both = [(n, other) for n in range(size) for other in (0, self.lanes)]
        merged = [n * parts + part + other for n, other in both for part in range(parts)]
        orders = merged[: self.lanes], merged[self.lanes :]
        for _ in range(size.bit_length() - 1):
            vectors = [vectors[n].shuffled(order, vectors[n + half]) for n in range(half) for order in orders]
        for target, value in zip(targets, vectors, strict=True):
            self.store(target, value)


_Kind = TypeVar("_Kind", bound=ActionCode)


def actions_text(actions: Mapping[str, Callable[[_Kind], None]], kind: type[_Kind], dtype: np.dtype) -> str:
    """The IR of actions for matrices of a dtype."""
    module = Module()
    for name, body in actions.items():
        code = Code(module)
        body(kind(code, dtype))
        module.define(name, code, "ptr %state, ptr %action", code.constant("i64", 0))
    return module.text() + "\n"
