"""Scripts of native library routines under construction: places, matrices, and their actions as words."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from rlx.backends.cpu.routines import scripts
from rlx.ir.kernels import Buffer, Library, Operand
from rlx.storage import aligned

__all__ = ["INFORMATION", "WORK", "WORK_SIZE", "Argument", "MatrixView", "MissingRoutine", "MatrixAddress", "Script"]

PARTS: dict[str, int] = {"whole": scripts.WHOLE, "lower": scripts.LOWER, "upper": scripts.UPPER}
# the bits of the largest finite number, and of infinity
_LARGEST = {4: 0x7F7FFFFF, 8: 0x7FEFFFFFFFFFFFFF}
_INFINITY = {4: 0x7F800000, 8: 0x7FF0000000000000}


class MissingRoutine(Exception):
    """The library on this machine lacks a routine, or a script does not suit the operands."""


@dataclass(frozen=True)
class MatrixAddress:
    """An address that depends on the current matrix: see scripts.py."""

    slot: int
    offset: int = 0
    step: int = 0

    @property
    def words(self) -> list[int]:
        """The words of the place in an action."""
        return [self.slot, self.offset, self.step]

    def behind(self, nbytes: int) -> MatrixAddress:
        """The place `nbytes` bytes further on."""
        return replace(self, offset=self.offset + nbytes)


@dataclass(frozen=True)
class MatrixView:
    """A matrix in memory; steps are bytes from row to row and from column to column."""

    place: MatrixAddress
    rows: int
    columns: int
    row_step: int
    column_step: int

    @property
    def turned(self) -> MatrixView:
        """The transposed matrix in the same memory."""
        return MatrixView(self.place, self.columns, self.rows, self.column_step, self.row_step)

    def part(self, rows: int, columns: int) -> MatrixView:
        """The first rows and columns."""
        return replace(self, rows=rows, columns=columns)


@dataclass(frozen=True)
class _Placeholder:
    name: str


WORK = _Placeholder("work")  # LAPACK's work array, of the size that it asks for
WORK_SIZE = _Placeholder("lwork")
INFORMATION = _Placeholder("info")
Argument = MatrixAddress | int | str | _Placeholder


class Script:
    """The actions of one Library kernel. Routines in lapack.py fill it in.

    core: the number of axes of the first operand that form a matrix (or vector); the axes before them are the batch.
    turns: how often the actions run: once per matrix, or once per block of matrices in lanes. nanoseconds:
    rough cost of one run.
    """

    def __init__(
        self,
        kernel: Library,
        slot_of: Callable[[Buffer], int],
        actions: Mapping[str, int],
        fortran: Callable[[str], int],
        core: int = 2,
    ) -> None:
        self.kernel = kernel
        self.attributes = kernel.attributes
        first = kernel.inputs[0]
        self.dtype = first.buffer.dtype
        self.item = self.dtype.itemsize
        self.is_complex = self.dtype.kind == "c"
        self.real_item = self.item // 2 if self.is_complex else self.item
        self.batch_shape = first.shape[: len(first.shape) - core]
        self.batch = prod(self.batch_shape)
        self.turns = self.batch
        self.nanoseconds = 0.0
        self.scratch_bytes = 0
        self.constants: list[int] = []
        self.words: list[int] = []
        self.failure: list[int] = []
        self._slot_of = slot_of
        self._actions = dict(actions)
        self._fortran = fortran
        self.inputs = [self._operand(o) for o in kernel.inputs]
        self.outputs = [self._operand(o) for o in kernel.outputs]
        self.information = self.scratch(8)

    def use(self, actions: Mapping[str, int]) -> None:
        """Have more actions."""
        self._actions |= actions

    # --------------------------------------------------------- places
    def _operand(self, operand: Operand) -> MatrixAddress:
        item = operand.buffer.dtype.itemsize
        core = prod(operand.shape[len(self.batch_shape) :])
        return MatrixAddress(self._slot_of(operand.buffer), operand.offset * item, core * item)

    def sizes(self, number: int = 0) -> tuple[int, int]:
        """Rows and columns of an input."""
        rows, columns = self.kernel.inputs[number].shape[-2:]
        return rows, columns

    def scratch(self, nbytes: int) -> MatrixAddress:
        """Memory of the task's own."""
        start = self.scratch_bytes
        self.scratch_bytes += aligned(nbytes)
        return MatrixAddress(scripts.SCRATCH, start)

    def constant(self, *words: int) -> MatrixAddress:
        """Words in the row."""
        self.constants += words
        return MatrixAddress(scripts.CONSTANT, 8 * (len(self.constants) - len(words)))

    def number(self, value: float) -> MatrixAddress:
        """A number of the routine's dtype."""
        data = np.array(value, self.dtype).tobytes().ljust(16, b"\0")
        return self.constant(*struct.unpack("<qq", data))

    def row_major(self, place: MatrixAddress, rows: int, columns: int, item: int | None = None) -> MatrixView:
        """A matrix as rlx stores it."""
        item = item or self.item
        return MatrixView(place, rows, columns, columns * item, item)

    def column_major(self, rows: int, columns: int) -> MatrixView:
        """A new matrix in scratch memory, as LAPACK stores it."""
        return MatrixView(self.scratch(rows * columns * self.item), rows, columns, self.item, rows * self.item)

    # --------------------------------------------------------- actions
    def act(self, name: str, *fields: int | MatrixAddress, failure: bool = False) -> None:
        """Append the action `name`, with `failure` to the actions that follow a failure."""
        words: list[int] = []
        for field in fields:
            words += field.words if isinstance(field, MatrixAddress) else [field]
        target = self.failure if failure else self.words
        target += [self._actions[name], scripts.ACTION_HEAD + len(words), *words]

    def copy(
        self,
        target: MatrixView,
        source: MatrixView,
        part: str = "whole",
        conjugate: bool = False,
        item: int | None = None,
        failure: bool = False,
    ) -> None:
        """Copy the rows and columns of `target`, of a triangle perhaps; the rest becomes zero."""
        if conjugate and not self.is_complex:
            conjugate = False
        steps = (target.row_step, target.column_step, source.row_step, source.column_step)
        sizes, kind = (target.rows, target.columns), PARTS[part]
        # contiguous rows are copied whole: prefer that order
        if part == "whole" and target.row_step < target.column_step:
            sizes, steps = sizes[::-1], (steps[1], steps[0], steps[3], steps[2])
        self.act(
            "copy_matrix", target.place, source.place, *sizes, *steps, item or self.item, kind, int(conjugate),
            failure=failure,
        )  # fmt: skip

    def call(self, name: str, *arguments: Argument) -> None:
        """Call a LAPACK or BLAS routine, named without the letter of its dtype."""
        function = self.address(name)
        given = list(arguments)
        if WORK in given:
            size = self._work_size(function, given)
            work = self.scratch(size * self.item)
            given = [work if a is WORK else size if a is WORK_SIZE else a for a in given]
        self.act("call_routine", function, *[self._place(a) for a in given])

    def address(self, name: str) -> int:
        """The address of a routine."""
        letter = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}[self.dtype.str[1:]]
        function = self._fortran(letter + name)
        if not function:
            raise MissingRoutine(f"LAPACK's {letter}{name}")
        return function

    def _place(self, argument: Argument) -> MatrixAddress:
        if isinstance(argument, MatrixAddress):
            return argument
        if isinstance(argument, str):
            return self.constant(ord(argument))
        if isinstance(argument, int):
            return self.constant(argument)
        return self.information

    def _work_size(self, function: int, arguments: Sequence[Argument]) -> int:
        """Ask a routine for the number of elements of work memory that it needs."""
        memory = (ctypes.c_int64 * (2 * scripts.FORTRAN_ARGUMENTS))()
        start = ctypes.addressof(memory)
        given = [1] * scripts.FORTRAN_ARGUMENTS
        work = 0
        for number, argument in enumerate(arguments):
            given[number] = start + 16 * number
            if isinstance(argument, int):
                memory[2 * number] = argument
            elif isinstance(argument, str):
                memory[2 * number] = ord(argument)
            elif argument is WORK_SIZE:
                memory[2 * number] = -1
            elif argument is WORK:
                work = number
        query = ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * scripts.FORTRAN_ARGUMENTS)(function)
        query(*given)
        real = np.dtype(f"f{self.real_item}")
        size = np.frombuffer(bytes(memory)[16 * work :], real, 1)[0]
        # a size over 2^24 may have been rounded down to a float32
        return max(1, int(np.nextafter(size, np.inf, dtype=real)) + 1)

    def fail_if_informed(self) -> None:
        """The matrix has failed unless the last call left info at 0."""
        self.act("check_information", self.information)

    def fail_unless_finite(self, place: MatrixAddress, elements: int) -> None:
        """The matrix has failed if an element is infinite or NaN."""
        numbers = elements * (self.item // self.real_item)
        self.act("check_numbers", place, numbers, self.real_item, _LARGEST[self.real_item])

    def fail_if_nan(self, place: MatrixAddress) -> None:
        """The matrix has failed if the (real part of the) element is NaN."""
        self.act("check_numbers", place, 1, self.real_item, _INFINITY[self.real_item])

    def nan_after_failure(self, number: int, part: str = "whole") -> None:
        """Fill an output with NaN for a failed matrix."""
        operand = self.kernel.outputs[number]
        shape = operand.shape[len(self.batch_shape) :]
        dtype = operand.buffer.dtype
        rows, columns = (1, *shape)[-2:]
        target = self.row_major(self.outputs[number], rows, columns, dtype.itemsize)
        nan = np.array(np.nan, dtype).tobytes().ljust(16, b"\0")
        source = MatrixView(self.constant(*struct.unpack("<qq", nan)), rows, columns, 0, 0)
        self.copy(target, source, part, item=dtype.itemsize, failure=True)

    def row(self, step: int, head: Sequence[int]) -> list[int]:
        """The finished row; `head` are its fields up to the constants' place."""
        failure = scripts.FIRST_ACTION + len(self.words)
        constants = failure + len(self.failure)
        launch = head[-1]
        fields = [*head[:-1], constants, failure, launch, *self.words, *self.failure, *self.constants]
        return [step, scripts.ACTION_HEAD + len(fields), *fields]
