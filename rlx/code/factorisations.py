"""Factorisations of small matrices and triangular systems, written once: a `Team` says how its members share the work.

A team is a group, whose work-items share the elements of one matrix, or a work-item whose registers are vectors: each
of their lanes has a matrix of its own. Values are as in `rlx.routines`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np

from rlx.code.split_numbers import SplitArray, SplitNumber
from rlx.code.tree import Apply, Expression, Number, Product, Register, index
from rlx.code.writing import CodeWriter

__all__ = [
    "Factors", "Point", "Size", "Span", "SplitMatrix", "Team", "factor_cholesky", "factor_lu", "solve_triangle",
]  # fmt: skip

Size = int | Expression
Span = tuple[Expression | int, Size]
Point = tuple[Expression, Expression, SplitNumber]  # a row, a column, the row's factor


@dataclass(frozen=True)
class SplitMatrix:
    """A matrix in an array, with steps in elements from row to row and from column to column."""

    array: SplitArray
    row_step: Size
    column_step: Size = 1
    start: Expression | int = 0
    conjugated: bool = False

    def place(self, row: Expression, column: Expression) -> Expression:
        """The number of an element in the array."""
        return _times(row, self.row_step) + _times(column, self.column_step) + self.start

    def __getitem__(self, place: tuple[Expression, Expression]) -> SplitNumber:
        found = self.array[self.place(*place)]
        return found.conjugate() if self.conjugated else found

    def write(self, code: CodeWriter, row: Expression, column: Expression, value: SplitNumber) -> None:
        """A new value of an element."""
        self.array.write(code, self.place(row, column), value)


@dataclass(frozen=True)
class Factors:
    """The factors of rows: a column of a matrix. change: a function of a factor that gives the one to use instead."""

    m: SplitMatrix
    column: Expression
    change: Callable[[SplitNumber], SplitNumber] | None = None

    def of(self, code: CodeWriter, row: Expression, changes: bool) -> SplitNumber:
        """A row's factor in registers. changes: whether this is the place where it changes in the matrix."""
        found = self.m[row, self.column].declared(code, "factor")
        if self.change is None or not changes:
            return found
        made = self.change(found).declared(code, "changed")
        self.m.write(code, row, self.column, made)
        return made


def _times(number: Expression, factor: Size) -> Expression:
    return number * factor if isinstance(factor, int) else Product(number.dtype, number, factor)


class Team:
    """One member, which computes whole matrices. index: the dtype of rows and columns; `code` collects the statements.

    Subclasses may share the work among several members, which are then not `alone`.
    """

    index = np.dtype(np.int64)
    alone = True

    def __init__(self) -> None:
        self.code = CodeWriter()

    def rows(self, row: Register, start: Expression | int, stop: Expression | int) -> AbstractContextManager[None]:
        """A loop whose iterations the members share."""
        return self.code.loop(row, start, stop)

    @contextmanager
    def elements(self, rows: Span, columns: Span, factors: Factors, triangular: bool = False) -> Generator[Point]:
        """A loop over rows and columns, which the members share; triangular: without elements above the diagonal."""
        row, column = Register(self.index, "row"), Register(self.index, "column")
        with self.code.loop(row, *rows):
            factor = factors.of(self.code, row, changes=True)
            with self.code.loop(column, columns[0], row + 1 if triangular else columns[1]):
                yield row, column, factor

    def one(self) -> AbstractContextManager[None]:
        """Statements for one of the members that share a matrix."""
        return nullcontext()

    def meet(self) -> None:
        """A barrier."""

    def row_number(self, row: Expression) -> Expression:
        """A row's number as a value that a register with a row's number is compared with."""
        return row

    def exchange(self, m: SplitMatrix, pivot: Register, chosen: Expression, rows: Size, columns: Size) -> None:
        """Exchange the pivot's row and the chosen row."""
        raise NotImplementedError


def _select(condition: Expression | bool, yes: Expression, no: Expression) -> Expression:
    if isinstance(condition, bool):
        return yes if condition else no
    return Apply(yes.dtype, "select", (condition, yes, no))


def _subtract(code: CodeWriter, m: SplitMatrix, row: Expression, column: Expression, *factors: SplitNumber) -> None:
    m.write(code, row, column, m[row, column].less_product(*factors))


def factor_cholesky(team: Team, m: SplitMatrix, order: Size) -> Expression:
    """Replace a matrix by its lower factor, above which the old elements remain; whether all pivots were positive.

    The first pivot that is not positive makes NaN of its column, and so of all later pivots.
    """
    code, j = team.code, Register(team.index, "j")
    with code.loop(j, 0, order):
        pivot = code.declare("pivot", m[j, j].parts[0])
        zero, broken = Number(pivot.dtype, 0), Number(pivot.dtype, float("nan"))
        root = code.declare("root", _select(pivot > zero, Apply(pivot.dtype, "sqrt", (pivot,)), broken))
        team.meet()
        with team.one():
            m.write(code, j, j, SplitNumber((root, *m.array.zero().parts[1:])))
        rows = j + 1, order
        with team.elements(rows, rows, Factors(m, j, lambda factor: factor.over(root)), True) as (row, column, factor):
            _subtract(code, m, row, column, factor, m[column, j].conjugate())
        team.meet()
    last = index(order, team.index) - 1
    return m[last, last].parts[0] > zero


def factor_lu(
    team: Team, m: SplitMatrix, rows: Size, columns: Size, steps: Size,
    choose: Callable[[Register, Expression], Expression],
) -> None:  # fmt: skip
    """Replace a matrix by its packed factors, with partial pivoting.

    choose: called where one member knows a step and the number of its pivot's row; it stores this number, and returns
    an expression with which all members find it.
    """
    code, j, r = team.code, Register(team.index, "j"), Register(team.index, "r")
    with code.loop(j, 0, steps):
        with team.one():
            best = code.declare("best", Number(m.array.arrays[0].dtype, -1), changes=True)
            pivot = code.declare("pivot", team.row_number(j), changes=True)
            with code.loop(r, j, rows):
                size = code.declare("size", m[r, j].magnitude())
                larger = code.declare("larger", size > best)
                code.assign(best, _select(larger, size, best))
                code.assign(pivot, _select(larger, team.row_number(r), pivot))
            chosen = choose(j, pivot)
        team.meet()
        team.exchange(m, j, chosen, rows, columns)
        team.meet()
        divisor = m[j, j].declared(code, "divisor")
        zero = code.declare("zero", divisor.magnitude().equals(Number(best.dtype, 0)))

        def divided(given: SplitNumber) -> SplitNumber:
            return given.where(zero, given.divided(divisor, code))

        with team.elements((j + 1, rows), (j + 1, columns), Factors(m, j, divided)) as (row, column, factor):
            _subtract(code, m, row, column, factor, m[j, column])
        team.meet()


def solve_triangle(
    team: Team, x: SplitMatrix, triangle: SplitMatrix, order: Size, sides: Size,
    forward: Expression | bool, divides: Expression | bool,
) -> None:  # fmt: skip
    """Replace right-hand sides by solutions.

    Members that share the work subtract a solved row from the rows that remain; one alone subtracts the solved rows
    from the next one, in registers.

    forward: whether the first row is solved first. divides: whether by the diagonal, or it is ones.
    """
    code, zero = team.code, Number(team.index, 0)
    turn, side, other = (Register(team.index, name) for name in ("turn", "side", "other"))

    def over(value: SplitNumber, divisor: SplitNumber) -> SplitNumber:
        found = value if divides is False else value.divided(divisor, code)
        return found.where(divides, value) if isinstance(divides, Expression) else found

    with code.loop(turn, 0, order):
        solved = code.declare("solved", _select(forward, turn, order - 1 - turn))
        divisor = triangle[solved, solved].declared(code, "divisor")
        if team.alone:
            first = code.declare("first_solved", _select(forward, zero, solved + 1))
            with team.rows(side, 0, sides):
                total = x[solved, side].declared(code, "total", changes=True)
                with code.loop(other, first, first + turn):
                    total.assign(code, total.less_product(triangle[solved, other], x[other, side]))
                x.write(code, solved, side, over(total, divisor))
        else:
            if divides is not False:
                with team.rows(side, 0, sides):
                    x.write(code, solved, side, over(x[solved, side], divisor))
                team.meet()
            first = code.declare("first_left", _select(forward, turn + 1, zero))
            rows = first, first + (order - 1 - turn)
            with team.elements(rows, (0, sides), Factors(triangle, solved)) as (row, column, factor):
                _subtract(code, x, row, column, factor, x[solved, column])
            team.meet()
