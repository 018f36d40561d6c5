"""Dialect: the syntax of a target language for kernels and plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rlx.backends.loops.words import LanguageWords
from rlx.code.functions import Function
from rlx.code.tree import Array, ForLoop
from rlx.ir.kernels import Contract, Instruction, Library, Loops, Sort
from rlx.ir.types import is_complex, is_narrow
from rlx.storage import aligned

__all__ = ["Dialect", "Parameter", "bare"]


class Parameter:
    """An array parameter of a function: its name, its element dtype, whether the function writes to it.

    apart: whether no other array parameter ever shares memory with it (restrict).
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
    """An expression without its outer parentheses."""
    if not (expression.startswith("(") and expression.endswith(")")):
        return expression
    depth = 0
    for place, letter in enumerate(expression):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return expression[1:-1] if place == len(expression) - 1 else expression
    return expression


class Dialect(ABC):
    """Writes single statements and expressions of a language; backends/loops/walk.py and program.py order them.

    An expression is source code that is valid as an operand (in parentheses if necessary). A register holds a value of
    an instruction's dtype; for a narrow float (ir.formats) it holds the code, as memory does, unless the value was
    loaded, which gives float32. Arrays are dense sequences of elements; complex arrays are sequences of their real
    parts. Positions count elements from the array's start and are 64-bit integers.

    `helpers` collects the names of the helper functions in use, in order of first use.
    """

    language: ClassVar[str]  # its name in messages
    extent: ClassVar[str] = "    "  # one level of indentation
    words: LanguageWords = LanguageWords()
    reserved: frozenset[str]  # words and names of the language that arrays and functions cannot have
    varies = False  # whether sizes differ from call to call
    stops = False  # whether loops over steps of plans check a flag that ends them

    def __init__(self) -> None:
        self.helpers: dict[str, None] = {}
        self.threads = False  # whether the current kernel has a parallel loop

    def helper(self, name: str) -> str:
        """The name of a helper function, which is marked as used."""
        self.helpers[name] = None
        return name

    def rounded(self, nbytes: int) -> int:
        """The bytes that an array takes in the arena."""
        return aligned(nbytes)

    def comment(self, text: str) -> str:
        """A comment on a separate line."""
        return f"{self.words.comment} {text}"

    def statement(self, form: str, **parts: object) -> str:
        """A statement, or the head of a block, in the language's words."""
        return form.format(**parts)

    # ------------------------------------------------------------------ heads of blocks
    @abstractmethod
    def function(self, name: str, parameters: Sequence[Parameter], parallel: bool) -> tuple[str, ...]:
        """The head of a function of arrays that returns nothing; `parallel`: one of its loops runs on threads."""

    @abstractmethod
    def scalar_function(self, function: Function, name: str) -> tuple[str, ...]:
        """The head of a function of numbers that returns a number."""

    def ignore(self, names: Sequence[str]) -> tuple[str, ...]:
        """Statements for unused array parameters."""
        return tuple(self.words.ignore.format(name=name) for name in names) if self.words.ignore else ()

    @abstractmethod
    def for_loop(self, loop: ForLoop, start: str, stop: str, step: str) -> tuple[str, ...]:
        """The head of a loop of the tree, and the lines before it."""

    # ------------------------------------------------------------------ registers
    def type(self, dtype: np.dtype) -> str:
        """The type of a register, if the language has declarations."""
        return ""

    def declare(self, name: str, dtype: np.dtype, expression: str, changes: bool) -> str:
        """A register, which `assign` can change if it `changes`."""
        form = self.words.variable if changes else self.words.constant
        return self.statement(form, type=self.type(dtype), name=name, value=bare(expression))

    def assign(self, name: str, expression: str) -> str:
        """Assign to a variable."""
        return self.statement(self.words.assign, name=name, value=bare(expression))

    # ------------------------------------------------------------------ memory
    @abstractmethod
    def load(self, dtype: np.dtype, array: str, position: str) -> str:
        """Load an element of an array of `dtype` into a register of its compute dtype."""

    @abstractmethod
    def store(self, dtype: np.dtype, value_dtype: np.dtype, array: str, position: str, value: str) -> str:
        """Write a register of `value_dtype` to an array of `dtype`, rounded if the array is narrower."""

    def read(self, array: Array, name: str, position: str, dtype: np.dtype) -> str:
        """An element of an array, in its compute dtype; if `dtype` is narrow, its code."""
        if dtype == array.dtype and is_narrow(dtype):
            return f"{name}[{position}]"
        return self.load(array.dtype, name, position)

    def write(self, array: Array, name: str, position: str, dtype: np.dtype, value: str) -> str:
        """Write a register of `dtype` to an element of an array; if `dtype` is narrow, its code."""
        if dtype == array.dtype and is_narrow(dtype):
            return self.assign(f"{name}[{position}]", value)
        return self.store(array.dtype, dtype, name, position, value)

    # ------------------------------------------------------------------ values
    def fitted(self, value: str, source: np.dtype, target: np.dtype) -> str:
        """A register of one dtype as an operand of another; most languages convert numbers implicitly."""
        del source, target
        return value

    def operands(self, instruction: Instruction, dtypes: Sequence[np.dtype]) -> Sequence[np.dtype]:
        """The dtypes that an instruction's arguments have in the language, given their own."""
        del instruction
        return dtypes

    @abstractmethod
    def constant(self, dtype: np.dtype, number: bool | int | float) -> str:
        """A number as a register of dtype, including infinities and NaN; narrow floats as float32."""

    def position(self, terms: Sequence[tuple[int, str]], offset: int) -> str:
        """offset + the sum of factor * index, as a position."""
        parts = [name if factor == 1 else f"{factor} * {name}" for factor, name in terms]
        if offset or not parts:
            parts.append(str(offset))
        return " + ".join(parts).replace("+ -", "- ")

    def divided_by(self, dividend: str, dtype: np.dtype, divisor: str) -> str:
        """The quotient of a non-negative index by a number of this name that the launch passes (`Divisor`)."""
        raise NotImplementedError(f"{self.language} has no launches")

    def remainder_by(self, dividend: str, dtype: np.dtype, divisor: str) -> str:
        """The remainder of a non-negative index by a number of this name that the launch passes."""
        raise NotImplementedError(f"{self.language} has no launches")

    def divisor(self, dtype: np.dtype, divisor: int) -> str:
        """A number by which an index is divided."""
        return str(divisor)

    @abstractmethod
    def widened(self, dtype: np.dtype, value: str) -> str:
        """Convert a register with the code of a narrow float to float32."""

    @abstractmethod
    def operation(self, instruction: Instruction, arguments: Sequence[str], dtypes: Sequence[np.dtype]) -> str:
        """An instruction of the scalar alphabet, of registers of the given dtypes: see ir/scalar.py."""

    # ------------------------------------------------------------------ work-items
    def coordinate(self, of: Literal["item", "group", "groups"], dtype: np.dtype) -> str:
        """A work-item's place in the launch."""
        raise NotImplementedError(f"{self.language} has no work-items")

    def array(self, array: Array) -> str:
        """The declaration of an array of a group or of a work-item."""
        raise NotImplementedError(f"{self.language} has no arrays of work-items")

    def viewed(self, array: Array, name: str) -> str:
        """An array that is declared in words, as an array of its own dtype."""
        raise NotImplementedError(f"{self.language} has no arrays of words")

    def fragment_product(self, fragments: Any) -> str:
        """The function in which a warp multiplies fragments: of a work-item's sums and its words of both matrices."""
        raise NotImplementedError(f"{self.language} has no matrix units")

    def packed(self, dtype: np.dtype, low: str, high: str) -> str:
        """A word of two float32 registers that are rounded to a 16-bit dtype."""
        raise NotImplementedError(f"{self.language} has no matrix units")

    def load_matrix(self, target: Array, row: str, turned: bool) -> str:
        """The statement that loads words of matrices of 8 x 8 numbers from a group's memory."""
        raise NotImplementedError(f"{self.language} has no loads of matrices")

    def async_copy(self, array: Array, place: str, source: str, size: int, condition: str | None) -> str:
        """The statement that begins a copy of elements of an array, or of zeros, to a group's memory."""
        raise NotImplementedError(f"{self.language} has no copies that overlap with other statements")

    def close_copies(self) -> tuple[str, ...]:
        """The end of a batch of copies."""
        raise NotImplementedError(f"{self.language} has no copies that overlap with other statements")

    def await_copies(self, newer: int) -> tuple[str, ...]:
        """A wait for copies, except for those of the last batches."""
        raise NotImplementedError(f"{self.language} has no copies that overlap with other statements")

    def launch_barrier(self, arrivals: str, awaited: str) -> tuple[str, ...]:
        """A barrier of all groups: each one counts its arrival in memory, and continues at the count `awaited`."""
        raise NotImplementedError

    @abstractmethod
    def view(self, array: Array, source: Array, offset: str) -> str:
        """The declaration of an array that begins at a byte of another one."""

    def shuffle(self, dtype: np.dtype, value: str, distance: str, warp: int) -> str:
        """The register of the work-item whose index in the warp is this work-item's index XOR a constant."""
        raise NotImplementedError(f"{self.language} has no shuffles")

    def atomic(self, reducer: str, array: Array, position: str, value: str) -> str:
        """The statement that atomically combines an element with a register of the computation dtype."""
        raise NotImplementedError(f"{self.language} has no atomics")

    def aligned(self, arrays: Sequence[str], nbytes: int) -> str:
        """Whether the addresses of arrays are multiples of a number of bytes."""
        raise NotImplementedError(f"{self.language} has no addresses")

    def vector_read(self, target: Array, array: Array, position: str) -> str:
        """The statement that loads neighbouring elements at once."""
        raise NotImplementedError(f"{self.language} has no vectors")

    def vector_write(self, array: Array, position: str, source: Array) -> str:
        """The statement that stores neighbouring elements at once."""
        raise NotImplementedError(f"{self.language} has no vectors")

    # ------------------------------------------------------------------ plans
    def call(self, function: str, arguments: Sequence[str]) -> str:
        """The statement that calls a function of arrays."""
        return self.statement(self.words.call, function=function, arguments=", ".join(map(bare, arguments)))

    def pointer(self, dtype: np.dtype) -> str:
        """The type of an array's name, if the language has such types."""
        return ""

    @abstractmethod
    def part(self, array: Array, position: str, size: int) -> str:
        """The elements [position, position + size) of an array, as an array."""

    def has_function(self, name: str) -> bool:
        """Whether a special function, or a user's function, is available."""
        return True

    def spells(self, kernel: Loops) -> bool:
        """Whether every instruction of a kernel can be written; otherwise the host runs it."""
        return True

    def multiplies(self, kernel: Contract) -> bool:
        """Whether the language has a function for a matrix product; otherwise it is written as loops."""
        return False

    def library_call(self, kernel: Contract | Library, *operands: str) -> str:
        """The statement that runs a kernel for which the language has a function: a product of two matrices, which
        begin at the first element of arrays (left, right, result), or a routine."""
        raise NotImplementedError

    def sorts(self, kernel: Sort) -> bool:
        """Whether rows can be sorted; otherwise the host sorts them."""
        return not any(is_complex(key.dtype) for key in kernel.inputs[: kernel.keys])

    def has_routine(self, kernel: Library) -> bool:
        """Whether kernels compute a library routine; otherwise it runs on the host."""
        return False
