"""Small matrices of a large batch, factorised and solved side by side: the code of actions on lanes.

An element is a vector of 64 bytes in memory, a complex one two: real parts, imaginary parts. The matrix of a script
(see scripts.py) is a block of as many matrices as a vector has lanes; lanes without a matrix repeat the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from rlx.backends.cpu.emit.ir_text import Value
from rlx.backends.cpu.routines.action_code import VECTOR_BYTES, ActionCode, actions_text

__all__ = ["LANE_ACTIONS", "lanes_text"]

Parts = tuple[Value, ...]


class _Lanes(ActionCode):
    """Elements of matrices in lanes."""

    def element(self, first: str, number: Value) -> str:
        """The address of an element."""
        return self.at(first, number * (VECTOR_BYTES * (1 + self.is_complex)))

    def parts(self, element: str) -> Parts:
        """The real parts, and the imaginary ones."""
        return tuple(self.load(self.at(element, VECTOR_BYTES * n)) for n in range(1 + self.is_complex))

    def put(self, element: str, *parts: Value) -> None:
        """Write the parts of an element."""
        for n, part in enumerate(parts):
            self.store(self.at(element, VECTOR_BYTES * n), part)

    def filled(self, count: Value) -> Value:
        """The number of lanes of the current block that have a matrix."""
        return self.smaller(self.lanes, count - self.matrix * self.lanes)

    def rows(self, number: Value) -> Value:
        """A number in every lane."""
        return number.convert("sitofp", self.real).splat(self.lanes)

    def magnitude(self, parts: Parts) -> Value:
        """The absolute value, or the sum of both parts' for complex numbers."""
        first, *second = map(abs, parts)
        return first + second[0] if second else first

    def difference(self, parts: Parts, x: Parts, y: Parts, conjugate: bool = False) -> Parts:
        """An element less x * y, or x times the conjugate of y."""
        made = tuple(self.multiply_add(-part, y[0], t) for part, t in zip(x, parts, strict=True))
        if not self.is_complex:
            return made
        real, imaginary = (x[0], -x[1]) if conjugate else (-x[0], x[1])
        return self.multiply_add(imaginary, y[1], made[0]), self.multiply_add(real, y[1], made[1])

    def quotient(self, x: Parts, y: Parts) -> Parts:
        """x / y; complex y is scaled first so that its square neither overflows nor vanishes."""
        if not self.is_complex:
            return (x[0] / y[0],)
        sizes = [abs(part) for part in y]
        larger = (sizes[0] >= sizes[1]).where(*sizes)
        real, imaginary = (part / larger for part in y)
        square = self.multiply_add(imaginary, imaginary, real * real)
        first = self.multiply_add(x[1], imaginary, x[0] * real)
        second = self.multiply_add(-x[0], imaginary, x[1] * real)
        return first / square / larger, second / square / larger


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
    """[lanes, elements]."""
    lanes = t.place(0)
    with t.loop(0, t.field(5)) as number:
        element = t.element(lanes, number)
        real, *imaginary = t.parts(element)
        t.put(element, real, *(-part for part in imaginary))


# ------------------------------------------------------------- factorisations
def _cholesky(t: _Lanes) -> None:
    """[lanes, order]: the lower factor in place; NaN if a pivot is not positive."""
    first, order = t.place(0), t.field(5)
    zeros = (t.constant(0.0),) * (1 + t.is_complex)

    def at(row: Value, column: Value) -> str:
        return t.element(first, row * order + column)

    with t.loop(0, order) as pivot:
        x = t.load(at(pivot, pivot))
        root = (x > 0.0).where(x.call("sqrt"), math.nan)
        t.put(at(pivot, pivot), root, *zeros[1:])
        with t.loop(pivot + 1, order) as row:
            t.put(at(row, pivot), *(part / root for part in t.parts(at(row, pivot))))
        with t.loop(pivot + 1, order) as row:
            factor = t.parts(at(row, pivot))
            with t.loop(pivot + 1, row + 1) as column:
                target = at(row, column)
                t.put(target, *t.difference(t.parts(target), factor, t.parts(at(column, pivot)), conjugate=True))
    failed = t.load(at(order - 1, order - 1)).is_nan()
    with t.loop(0, order) as row:
        with t.loop(0, row + 1) as column:
            t.put(at(row, column), *(failed.where(math.nan, part) for part in t.parts(at(row, column))))
        with t.loop(row + 1, order) as column:
            t.put(at(row, column), *zeros)


def _lu(t: _Lanes) -> None:
    """[lanes, pivots (a vector for each), rows, columns]: packed factors in place."""
    first, pivots, rows, columns = t.place(0), t.place(1), t.field(8), t.field(9)
    best, chosen = (t.code.stack_slot(t.vector) for _ in range(2))

    def at(row: Value, column: Value) -> str:
        return t.element(first, row * columns + column)

    with t.loop(0, t.smaller(rows, columns)) as pivot:
        t.code.store(t.constant(-1.0), best)
        t.code.store(t.rows(pivot), chosen)
        with t.loop(pivot, rows) as row:
            size, most = t.magnitude(t.parts(at(row, pivot))), t.code.load(t.vector, best)
            larger = size > most
            t.code.store(larger.where(size, most), best)
            t.code.store(larger.where(t.rows(row), t.code.load(t.vector, chosen)), chosen)
        found = t.code.load(t.vector, chosen)
        t.store(t.at(pivots, pivot * VECTOR_BYTES), found)
        with t.loop(pivot + 1, rows) as row:
            picked = found.equal(t.rows(row))
            with t.code.when(picked.convert("bitcast", f"i{t.lanes}").not_equal(0)), t.loop(0, columns) as column:
                above, below = (t.parts(at(number, column)) for number in (pivot, row))
                t.put(at(pivot, column), *map(picked.where, below, above))
                t.put(at(row, column), *map(picked.where, above, below))
        divisor = t.parts(at(pivot, pivot))
        zero = t.magnitude(divisor).equal(0.0)
        with t.loop(pivot + 1, rows) as row:
            given = t.parts(at(row, pivot))
            factor = tuple(map(zero.where, given, t.quotient(given, divisor)))
            t.put(at(row, pivot), *factor)
            with t.loop(pivot + 1, columns) as column:
                target = at(row, column)
                t.put(target, *t.difference(t.parts(target), factor, t.parts(at(pivot, column))))


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
    matrix, first = t.place(0), t.place(1)
    order, count, is_lower, is_unit, matrix_row, matrix_column, side_row, side_column = map(t.field, range(8, 16))
    lower, unit = is_lower.not_equal(0), is_unit.not_equal(0)
    slots = [t.code.stack_slot(t.vector) for _ in range(1 + t.is_complex)]
    with t.loop(0, order) as turn:
        row = lower.where(turn, order - 1 - turn)
        begin = lower.where(0, row + 1)
        diagonal = t.element(matrix, row * (matrix_row + matrix_column))
        with t.loop(0, count) as column:
            target = t.element(first, column * side_column + row * side_row)
            for slot, part in zip(slots, t.parts(target), strict=True):
                t.code.store(part, slot)
            with t.loop(begin, begin + turn) as other:
                factor = t.parts(t.element(matrix, row * matrix_row + other * matrix_column))
                known = t.parts(t.element(first, column * side_column + other * side_row))
                found = tuple(t.code.load(t.vector, slot) for slot in slots)
                for slot, part in zip(slots, t.difference(found, factor, known), strict=True):
                    t.code.store(part, slot)
            found = tuple(t.code.load(t.vector, slot) for slot in slots)
            divided = t.quotient(found, t.parts(diagonal))
            t.put(target, *map(unit.where, found, divided))


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
