"""Dialect: how a language spells what kernels and plans are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from rlx.ir.kernels import Contract, Instruction, Library, Loops, Sort

__all__ = ["Dialect", "Parameter", "Reduction", "bare"]


class Reduction(NamedTuple):
    """A variable that a loop combines elements into."""

    name: str
    reducer: str
    dtype: np.dtype


class Parameter:
    """An array that a function takes: its name, the dtype of its elements, whether the function writes to it.

    apart: whether no other array that the function takes shares memory with it, at any call.
    """

    __slots__ = ("apart", "dtype", "name", "written")

    def __init__(self, name: str, dtype: np.dtype, written: bool, apart: bool = False) -> None:
        self.name = name
        self.dtype = dtype
        self.written = written
        self.apart = apart

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[]{' written' if self.written else ''}"


def bare(expression: str) -> str:
    """An expression without the parentheses around the whole of it."""
    if not (expression.startswith("(") and expression.endswith(")")):
        return expression
    depth = 0
    for place, letter in enumerate(expression):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return expression[1:-1] if place == len(expression) - 1 else expression
    return expression


class Dialect(ABC):
    """Spells single statements and expressions of a language; backends/loops/walk.py and program.py put them in order.

    An expression is text that stands by itself as an operand (in parentheses where it needs them). A register holds
    a value of an instruction's dtype; of a narrow float (ir.formats) it holds the code, as memory does, unless the
    value was loaded, which gives float32. Arrays are dense runs of elements; those of complex dtype are runs of their
    real parts. Positions count elements from the array's beginning and are 64-bit integers.

    `helpers` collects the names of the helper functions that were spelled, in order of their first use.
    """

    language: ClassVar[str]  # its name, for people
    extent: ClassVar[str] = "    "  # one level of indentation
    comment_mark: ClassVar[str]
    reserved: frozenset[str]  # words and names of the language that arrays and functions cannot have
    sort_scratch: ClassVar[bool] = False  # whether `sort` needs an array for two positions of each element of a row

    def __init__(self) -> None:
        self.helpers: dict[str, None] = {}
        self.threads = False  # whether what is spelled is part of a kernel with a parallel loop

    def helper(self, name: str) -> str:
        """The name of a helper function, which the text will need."""
        self.helpers[name] = None
        return name

    def comment(self, text: str) -> str:
        """A comment on a line of its own."""
        return f"{self.comment_mark} {text}"

    # ------------------------------------------------------------------ blocks: a head, an indented body, an end
    block_end: ClassVar[str] = ""  # the line after a body, if the language has one

    @abstractmethod
    def function(self, name: str, parameters: Sequence[Parameter], parallel: bool) -> tuple[str, ...]:
        """The head of a function of arrays that returns nothing; `parallel`: one of its loops runs on threads."""

    def ignore(self, names: Sequence[str]) -> tuple[str, ...]:
        """Statements for arrays that a function takes and does not use."""
        return ()

    @abstractmethod
    def loop(self, index: str, start: str, stop: str, parallel: bool = False) -> str:
        """The head of a loop over [start, stop)."""

    def row_loop(self, index: str, start: str, stop: str, reductions: Sequence[Reduction]) -> tuple[str, ...]:
        """The head of a loop over a row that does nothing but combine its elements, in any order."""
        return (self.loop(index, start, stop),)

    @abstractmethod
    def backward_loop(self, index: str, size: str) -> str:
        """The head of a loop from size - 1 down to 0."""

    @abstractmethod
    def endless_loop(self) -> str:
        """The head of a loop that `leave` ends."""

    @abstractmethod
    def leave(self) -> str:
        """The statement that ends the innermost loop."""

    @abstractmethod
    def condition(self, expression: str) -> str:
        """The head of a block that runs where a bool register holds."""

    @abstractmethod
    def otherwise(self) -> str:
        """The head of a block that runs where the condition of the block before it does not hold."""

    # ------------------------------------------------------------------ registers
    @abstractmethod
    def declare(self, name: str, dtype: np.dtype, expression: str) -> str:
        """A register that keeps its value."""

    @abstractmethod
    def variable(self, name: str, dtype: np.dtype, expression: str) -> str:
        """A register that `assign` changes."""

    @abstractmethod
    def assign(self, name: str, expression: str) -> str:
        """A new value for a variable."""

    # ------------------------------------------------------------------ memory
    @abstractmethod
    def load(self, dtype: np.dtype, array: str, position: str) -> str:
        """An element of an array of `dtype`: a register of its compute dtype."""

    @abstractmethod
    def store(self, dtype: np.dtype, value_dtype: np.dtype, array: str, position: str, value: str) -> str:
        """Write a register of `value_dtype` to an array of `dtype`, rounded if the array is narrower."""

    # ------------------------------------------------------------------ values
    @abstractmethod
    def constant(self, dtype: np.dtype, number: bool | int | float) -> str:
        """A number as a register of dtype; for narrow floats as float32, for infinities and NaN, too."""

    @abstractmethod
    def position(self, terms: Sequence[tuple[int, str]], offset: int) -> str:
        """offset + the sum of factor * index, as a position."""

    def index(self, name: str) -> str:
        """A loop's index as a value: a register of int64."""
        return name

    @abstractmethod
    def quotient(self, dividend: str, divisor: int) -> str:
        """The quotient of a position by a positive number, rounded down; neither has a sign."""

    @abstractmethod
    def widened(self, dtype: np.dtype, value: str) -> str:
        """A register that holds the code of a narrow float, as float32."""

    @abstractmethod
    def operation(self, instruction: Instruction, arguments: Sequence[str], dtypes: Sequence[np.dtype]) -> str:
        """An instruction of the scalar alphabet, of registers of the given dtypes: see ir/scalar.py."""

    @abstractmethod
    def combine(self, reducer: str, dtype: np.dtype, left: str, right: str) -> str:
        """left (reducer) right, both registers of dtype."""

    def reduce(self, reducer: str, dtype: np.dtype, left: str, right: str) -> str:
        """A step of a reduction over a row, whose order is left open."""
        return self.combine(reducer, dtype, left, right)

    # ------------------------------------------------------------------ plans
    @abstractmethod
    def call(self, function: str, arguments: Sequence[str]) -> str:
        """The statement that calls a function of arrays."""

    @abstractmethod
    def temporary(self, name: str, dtype: np.dtype, size: int, offset: int) -> str:
        """An array in the arena, `offset` bytes from its beginning."""

    @abstractmethod
    def part(self, array: str, position: str, size: int) -> str:
        """The elements [position, position + size) of an array, as an array."""

    @abstractmethod
    def alias(self, name: str, dtype: np.dtype, array: str) -> str:
        """A second name of an array, for `exchange`."""

    @abstractmethod
    def copy(self, dtype: np.dtype, target: str, source: str, size: int) -> str:
        """Copy the elements of an array to another one, which may be the same."""

    @abstractmethod
    def exchange(self, left: str, right: str, dtype: np.dtype) -> tuple[str, ...]:
        """Statements that make two names of arrays change places."""

    def has_function(self, name: str) -> bool:
        """Whether there is a text for a special function, or for one of a user's."""
        return True

    def spells(self, kernel: Loops) -> bool:
        """Whether every instruction of a kernel can be spelled; else the host runs it."""
        return True

    def contract(self, kernel: Contract, lhs: str, rhs: str, out: str) -> tuple[str, ...] | None:
        """Statements for a matrix product; None where it is written as loops."""
        return None

    def sort(self, kernel: Sort, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...] | None:
        """Statements that sort rows; None where the host sorts. With `sort_scratch` the last output is that array."""
        return None

    def routine(self, kernel: Library, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...] | None:
        """Statements for a library routine; None where it runs on the host."""
        return None
