"""IR of triangular solves with sparse matrices by rows, and of incomplete factorisations, element by element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.cpu.emit.ir_text import FunctionBody, Value, functions_text
from rlx.backends.cpu.routines.sparse_text import ElementLanes

__all__ = ["INCOMPLETE", "PULL", "SPREAD", "triangle_text"]

PULL = "rlx_csr_triangle_pull"
SPREAD = "rlx_csr_triangle_spread"
INCOMPLETE = "rlx_csr_incomplete"

Element = tuple[Value, ...]  # the real part (and the imaginary part)


def triangle_text(dtype: np.dtype, index: np.dtype) -> str:
    """The functions. sign: 1 for the lower triangle, -1 for the upper one. unit: the diagonal counts as ones.

    PULL(x, data, indices, indptr, b, rows, columns, sign, unit): x with T x = b.
    SPREAD(x, data, indices, indptr, b, rows, columns, sign, unit): x with T.T x = b.
    INCOMPLETE(factors, data, indices, indptr, work, rows): the LU factors at the places of a matrix with sorted
    columns and a diagonal; work has room for two numbers for each row.
    """
    return functions_text(_BODIES, lambda code: _ElementParts(code, dtype, index))


class _ElementParts(ElementLanes):
    """Single elements, as their parts."""

    def element(self, pointer: str, number: Value) -> Element:
        """An element of an array."""
        place = self.place(pointer, number)
        return tuple(self.code.load(self.real, self.code.element(self.real, place, p)) for p in range(self.parts))

    def put(self, values: Element, pointer: str, number: Value) -> None:
        """Write an element of an array."""
        place = self.place(pointer, number)
        for part, value in enumerate(values):
            self.code.store(value, self.code.element(self.real, place, part))

    def constants(self, real: float) -> Element:
        """A real number."""
        return tuple(self.code.constant(self.real, v) for v in (real, 0.0)[: self.parts])

    def product(self, x: Element, y: Element) -> Element:
        """x * y."""
        if self.parts == 1:
            return (x[0] * y[0],)
        return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]

    def less_product(self, total: Element, x: Element, y: Element) -> Element:
        """total - x * y."""
        return tuple(t - p for t, p in zip(total, self.product(x, y), strict=True))

    def quotient(self, x: Element, y: Element) -> Element:
        """x / y; a complex divisor is divided by its larger part first, so that its square is a normal number."""
        if self.parts == 1:
            return (x[0] / y[0],)
        sizes = [abs(part) for part in y]
        size = (sizes[0] < sizes[1]).where(sizes[1], sizes[0])
        real, imaginary = (part / size for part in y)
        square = (real * real + imaginary * imaginary) * size
        return (x[0] * real + x[1] * imaginary) / square, (x[1] * real - x[0] * imaginary) / square


class _Total:
    """An element on the stack, which LLVM keeps in registers."""

    def __init__(self, t: _ElementParts, start: Element) -> None:
        self.t, self.slots = t, [t.code.stack_slot(t.real) for _ in start]
        self.set(start)

    def get(self) -> Element:
        """The current value."""
        return tuple(self.t.code.load(self.t.real, slot) for slot in self.slots)

    def set(self, values: Element) -> None:
        """Another value."""
        for value, slot in zip(values, self.slots, strict=True):
            self.t.code.store(value, slot)


def _span(t: _ElementParts, indptr: str, row: Value) -> tuple[Value, Value]:
    """The first stored element of a row, and the one after its last."""
    return t.number(indptr, row), t.number(indptr, row + 1)


# ------------------------------------------------------------- triangular solves
def _rows_in_order(rows: Value, number: Value, sign: Value) -> Value:
    """The row with a number: from the first one down, or from the last one up."""
    return (sign < 0).where(rows - 1 - number, number)


def _pivot(t: _ElementParts, pointers: Sequence[str], row: Value, span: tuple[Value, Value], unit: Value) -> Element:
    """The sum of the elements on the diagonal, or one."""
    data, indices = pointers
    total = _Total(t, t.constants(0.0))
    with t.code.loop(*span) as k, t.code.when(t.number(indices, k).equal(row)):
        total.set(tuple(a + b for a, b in zip(total.get(), t.element(data, k), strict=True)))
    stored = unit.equal(0)
    return tuple(stored.where(a, b) for a, b in zip(total.get(), t.constants(1.0), strict=True))


def _pull(t: _ElementParts, pointers: list[str], numbers: list[Value]) -> None:
    x, data, indices, indptr, b = pointers
    rows, columns, sign, unit = numbers
    with t.code.loop(t.word(0), rows) as number:
        row = _rows_in_order(rows, number, sign)
        span = _span(t, indptr, row)
        pivot = _pivot(t, (data, indices), row, span, unit)
        with t.code.loop(t.word(0), columns) as column:
            place = row * columns + column
            total = _Total(t, t.element(b, place))
            with t.code.loop(*span) as k:
                other = t.number(indices, k)
                with t.code.when((other - row) * sign < 0):
                    known = t.element(x, other * columns + column)
                    total.set(t.less_product(total.get(), t.element(data, k), known))
            t.put(t.quotient(total.get(), pivot), x, place)


def _spread(t: _ElementParts, pointers: list[str], numbers: list[Value]) -> None:
    x, data, indices, indptr, b = pointers
    rows, columns, sign, unit = numbers
    with t.code.loop(t.word(0), rows * columns) as place:
        t.put(t.element(b, place), x, place)
    with t.code.loop(t.word(0), rows) as number:
        row = _rows_in_order(rows, number, -sign)
        span = _span(t, indptr, row)
        pivot = _pivot(t, (data, indices), row, span, unit)
        with t.code.loop(t.word(0), columns) as column:
            place = row * columns + column
            found = t.quotient(t.element(x, place), pivot)
            t.put(found, x, place)
            with t.code.loop(*span) as k:
                other = t.number(indices, k)
                with t.code.when((other - row) * sign < 0):
                    target = other * columns + column
                    t.put(t.less_product(t.element(x, target), t.element(data, k), found), x, target)


# ------------------------------------------------------------- incomplete factors
def _incomplete(t: _ElementParts, pointers: list[str], numbers: list[Value]) -> None:
    """Row by row; work has the stored element in each column of the current row, and on each row's diagonal."""
    out, data, indices, indptr, work = pointers
    (rows,) = numbers
    nothing = t.word(-1)

    def words(number: Value) -> str:
        return t.code.element("i64", work, number)

    with t.code.loop(t.word(0), rows) as column:
        t.code.store(nothing, words(column))
    with t.code.loop(t.word(0), rows) as row:
        start, end = _span(t, indptr, row)
        with t.code.loop(start, end) as k:
            t.put(t.element(data, k), out, k)
            t.code.store(k, words(t.number(indices, k)))
        t.code.store(t.code.load("i64", words(row)), words(rows + row))
        with t.code.loop(start, end) as k:
            pivot_row = t.number(indices, k)
            with t.code.when(pivot_row < row):
                pivot = t.code.load("i64", words(rows + pivot_row))
                factor = t.quotient(t.element(out, k), t.element(out, pivot))
                t.put(factor, out, k)
                with t.code.loop(pivot + 1, t.number(indptr, pivot_row + 1)) as other:
                    target = t.code.load("i64", words(t.number(indices, other)))
                    with t.code.when(nothing < target):
                        t.put(t.less_product(t.element(out, target), factor, t.element(out, other)), out, target)
        with t.code.loop(start, end) as k:
            t.code.store(nothing, words(t.number(indices, k)))


_BODIES: dict[str, FunctionBody[_ElementParts]] = {
    PULL: (_pull, 5, 4),
    SPREAD: (_spread, 5, 4),
    INCOMPLETE: (_incomplete, 5, 1),
}
