"""Small matrices of a large batch, factorised and solved side by side: the code of actions on lanes.

An element is a vector of 64 bytes in memory, a complex one two: real parts, imaginary parts. The matrix of a script
(see scripts.py) is a block of as many matrices as a vector has lanes; lanes without a matrix repeat the last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from rlx.backends.cpu.emit.ir_text import Value
from rlx.backends.cpu.emit.printing import LlvmPrinter, Location
from rlx.backends.cpu.routines.action_code import VECTOR_BYTES, ActionCode, actions_text
from rlx.code.factorisations import Size, SplitMatrix, Team, factor_cholesky, factor_lu, solve_triangle
from rlx.code.split_numbers import SplitArray, SplitNumber
from rlx.code.tree import Apply, Array, Element, Expression, Number, Register, Statement, Write, minimum

__all__ = ["LANE_ACTIONS", "lanes_text"]

_INT64 = np.dtype(np.int64)


class _Lanes(ActionCode):
    """Elements of matrices in lanes."""

    def filled(self, count: Value) -> Value:
        """The number of lanes of the current block that have a matrix."""
        return self.smaller(self.lanes, count - self.matrix * self.lanes)

    def rows(self, number: Value) -> Value:
        """A number in every lane."""
        return number.convert("sitofp", self.real).splat(self.lanes)


# ------------------------------------------------------------- moves
def _move(t: _Lanes, outwards: bool) -> None:
    """[lanes, matrix, real numbers of a matrix, bytes between matrices, matrices of the batch]."""
    lanes, memory = t.place(0), t.place(1)
    numbers, step, count = map(t.field, range(8, 11))
    filled, shift = t.filled(count), t.lanes.bit_length() - 1
    squares = filled.equal(t.lanes).where(numbers >> shift, 0)
    with t.loop(0, squares) as square:
        to, whence = t.at(lanes, square * (VECTOR_BYTES * t.lanes)), t.at(memory, square * VECTOR_BYTES)
        t.turn_square(to, whence, step, outwards)
    with t.loop(0, filled if outwards else t.lanes) as lane:
        there = t.at(memory, t.smaller(lane, filled - 1) * step)
        _move_numbers(t, t.at(lanes, lane * t.number), there, squares << shift, numbers, outwards)


def _move_ordered(t: _Lanes, outwards: bool) -> None:
    """[lanes, matrix, int32 order, real numbers of a row, bytes between matrices, matrices of the batch, rows].

    Row r of the lanes is row order[r] of the matrix.
    """
    lanes, memory, order = map(t.place, range(3))
    columns, step, count, rows = map(t.field, range(11, 15))
    filled = t.filled(count)
    with t.loop(0, filled if outwards else t.lanes) as lane, t.loop(0, rows) as row:
        given = t.smaller(lane, filled - 1)
        other = t.read("i32", order, given * rows + row).convert("sext", "i64")
        here = t.at(t.at(lanes, row * columns * VECTOR_BYTES), lane * t.number)
        _move_numbers(t, here, t.at(t.at(memory, given * step), other * columns * t.number), 0, columns, outwards)


def _move_numbers(t: _Lanes, lane: str, memory: str, first: Value | int, last: Value, outwards: bool) -> None:
    """Numbers of one matrix."""
    with t.loop(first, last) as number:
        here, there = t.at(lane, number * VECTOR_BYTES), t.at(memory, number * t.number)
        t.copy(*((there, here) if outwards else (here, there)), t.real)


def _conjugate(t: _Lanes) -> None:
    """[lanes, elements]: complex ones."""
    lanes = t.place(0)
    with t.loop(0, t.field(5)) as number:
        imaginary = t.at(lanes, number * (2 * VECTOR_BYTES) + VECTOR_BYTES)
        t.store(imaginary, -t.load(imaginary))


# ------------------------------------------------------------- factorisations
class _LaneTeam(Team):
    """A work-item whose registers of real numbers are vectors, with a matrix in each lane."""

    def __init__(self, t: _Lanes) -> None:
        super().__init__()
        self.t, self.real = t, np.dtype(f"f{t.number}")
        self.registers: dict[str, Value] = {}
        self.arrays: dict[str, Location] = {}

    def matrix(self, place: int, row_step: Register, column_step: Size = 1) -> SplitMatrix:
        """The matrix at a place of the action."""
        return SplitMatrix(SplitArray((self.array(place),), 1 + self.t.is_complex), row_step, column_step)

    def array(self, place: int) -> Array:
        """The vectors at a place of the action."""
        array = Array(f"place{place}", self.real)
        self.arrays[array.name] = Location(self.t.place(place), f", align {self.t.number}")
        return array

    def fields(self, first: int, count: int) -> list[Register]:
        """Words of the action."""
        made = [Register(_INT64, f"field{number}") for number in range(first, first + count)]
        self.registers |= {register.name: self.t.field(first + n) for n, register in enumerate(made)}
        return made

    def print(self) -> None:
        """Write the statements to the action."""
        _LanePrinter(self.t, self.registers, self.arrays).block(self.code.block)

    def row_number(self, row: Expression) -> Expression:
        """The number in every lane."""
        return Apply(self.real, "cast", (row,))

    def exchange(self, m: SplitMatrix, pivot: Register, chosen: Expression, rows: Size, columns: Size) -> None:
        """Lanes differ in their rows: each row is exchanged in those that chose it."""
        code, r, c = self.code, Register(_INT64, "r"), Register(_INT64, "c")
        with code.loop(r, pivot + 1, rows):
            picked = code.declare("picked", chosen.equals(self.row_number(r)))
            with code.when(picked), code.loop(c, 0, columns):
                above, below = (m[row, c].declared(code, name) for row, name in ((pivot, "above"), (r, "below")))
                m.write(code, pivot, c, below.where(picked, above))
                m.write(code, r, c, above.where(picked, below))


class _LanePrinter(LlvmPrinter):
    """Prints code whose real numbers are vectors; a condition on them holds if it does in any lane."""

    def __init__(self, t: _Lanes, registers: dict[str, Value], arrays: dict[str, Location]) -> None:
        super().__init__(t.code, registers, arrays)
        self.t = t

    def element_kind(self, array: Array) -> str:
        """A vector."""
        return self.t.vector

    def statement(self, statement: Statement) -> None:
        """One statement."""
        match statement:
            case Write(array, position, value):
                self.code.store(self.value(value), *self.place(array, position))
            case _:
                super().statement(statement)

    def condition(self, expression: Expression) -> Value:
        """Whether any lane's condition holds."""
        found = self.value(expression)
        return found if found.kind == "i1" else found.convert("bitcast", f"i{self.t.lanes}").not_equal(0)

    def value(self, expression: Expression) -> Value:
        """The value of an expression; products are added without being rounded, where that is faster."""
        match expression:
            case Number(dtype, number) if dtype.kind == "f":
                return self.t.constant(number)
            case Element(_, array, position):
                return self.code.load(self.t.vector, *self.place(array, position))
            case Apply(_, "cast", (row,)):
                return self.t.rows(self.value(row))
            case Apply(dtype, "add" | "sub" | "mul" as op, (left, right)) if dtype.kind == "f":
                return self.code.binary(op, self.value(left), self.value(right), "contract")
        return super().value(expression)


def _cholesky(t: _Lanes) -> None:
    """[lanes, order]: the lower factor in place; NaN if a pivot is not positive."""
    team, r, c = _LaneTeam(t), Register(_INT64, "r"), Register(_INT64, "c")
    (order,), code = team.fields(5, 1), team.code
    m = team.matrix(0, order)
    positive = code.declare("positive", factor_cholesky(team, m, order))
    broken = SplitNumber((Number(team.real, float("nan")),) * m.array.parts)
    with code.loop(r, 0, order):
        with code.loop(c, 0, r + 1):
            m.write(code, r, c, m[r, c].where(positive, broken))
        with code.loop(c, r + 1, order):
            m.write(code, r, c, m.array.zero())
    team.print()


def _lu(t: _Lanes) -> None:
    """[lanes, pivots (a vector for each), rows, columns]: packed factors in place."""
    team = _LaneTeam(t)
    rows, columns = team.fields(8, 2)
    pivots = team.array(1)

    def choose(step: Register, pivot: Expression) -> Expression:
        team.code.write(pivots[step], pivot)
        return pivot

    factor_lu(team, team.matrix(0, columns), rows, columns, minimum(rows, columns), choose)
    team.print()


def _unpack_pivots(t: _Lanes) -> None:
    """[pivots (a vector for each), int32 pivots, int32 permutations, steps, rows, matrices of the batch]."""
    source, pivots, orders = map(t.place, range(3))
    steps, rows, count = map(t.field, range(11, 14))
    with t.loop(0, t.filled(count)) as lane:
        order, found = (t.at(p, lane * size * 4) for p, size in ((orders, rows), (pivots, steps)))
        with t.loop(0, rows) as row:
            t.code.store(row.convert("trunc", "i32"), t.code.element("i32", order, row))
        with t.loop(0, steps) as step:
            number = t.load(t.at(t.at(source, step * VECTOR_BYTES), lane * t.number), t.real)
            other = number.convert("fptosi", "i32")
            t.code.store(other, t.code.element("i32", found, step))
            places = [t.code.element("i32", order, n) for n in (other.convert("sext", "i64"), step)]
            left, right = (t.code.load("i32", place) for place in places)
            t.code.store(right, places[0])
            t.code.store(left, places[1])


def _substitute(t: _Lanes) -> None:
    """[triangles, right sides, order, right sides' number, lower, unit, four steps]: solutions in place.

    Steps are elements from row to row and from column to column, of a triangle, of right sides.
    """
    team = _LaneTeam(t)
    order, count, lower, unit, *steps = team.fields(8, 8)
    triangle, sides = team.matrix(0, *steps[:2]), team.matrix(1, *steps[2:])
    solve_triangle(team, sides, triangle, order, count, lower.differs(0), unit.equals(0))
    team.print()


LANE_ACTIONS: dict[str, Callable[[_Lanes], None]] = {
    "pack_lanes": partial(_move, outwards=False),
    "unpack_lanes": partial(_move, outwards=True),
    "pack_ordered": partial(_move_ordered, outwards=False),
    "unpack_ordered": partial(_move_ordered, outwards=True),
    "conjugate_lanes": _conjugate,
    "cholesky_lanes": _cholesky,
    "lu_lanes": _lu,
    "unpack_pivots": _unpack_pivots,
    "substitute_lanes": _substitute,
}


def lanes_text(dtype: np.dtype) -> str:
    """The actions for matrices of a dtype."""
    return actions_text(LANE_ACTIONS, _Lanes, dtype)
