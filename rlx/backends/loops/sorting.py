"""Sorts of rows as code for one thread: a stable merge sort of positions, or of the numbers of a single array."""

from __future__ import annotations

import numpy as np

from rlx.backends.loops.dialect import Parameter
from rlx.code.tree import Apply, Array, Block, Both, Either, Element, Expression, Register, index, minimum
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Buffer, Sort
from rlx.ir.types import dtype_kind, element_dtype, is_complex, is_narrow

__all__ = ["precedes", "sort_code", "sort_parameters", "sorted_elements"]

_RUN = 16  # elements that are sorted by insertion
_BOOL, _INT64 = np.dtype(bool), np.dtype(np.int64)
_ROW, _BEGIN, _WIDTH, _I = (Register(_INT64, name) for name in ("row", "begin", "width", "i"))


def precedes(x: Expression, y: Expression) -> Expression:
    """Whether one key is less than another; NaN follows all numbers."""
    less = x < y
    if dtype_kind(x.dtype) != "f":
        return less
    return Either(_BOOL, less, Both(_BOOL, y.differs(y), x.equals(x)))


def _moves_numbers(kernel: Sort) -> bool:
    """Whether numbers are sorted, because there is nothing else to move, instead of positions."""
    return len(kernel.inputs) == 1 and not kernel.index and not is_narrow(kernel.inputs[0].dtype)


def sorted_elements(kernel: Sort) -> Buffer:
    """Memory for the numbers or positions of a row, twice."""
    return Buffer(kernel.inputs[0].dtype if _moves_numbers(kernel) else _INT64, 2 * kernel.length, name="order")


def sort_parameters(kernel: Sort) -> tuple[Parameter, ...]:
    """The arrays of the code: the inputs, the outputs, and the memory for elements."""
    given = (Parameter(f"x{n}", b.dtype, False) for n, b in enumerate(kernel.inputs))
    made = (Parameter(f"out{n}", b.dtype, True) for n, b in enumerate(kernel.outputs))
    return (*given, *made, Parameter("order", sorted_elements(kernel).dtype, True))


def sort_code(kernel: Sort) -> Block:
    """The code that sorts all rows."""
    return _SortWriter(kernel).block()


class _SortWriter:
    """Sorts short runs by insertion, then merges pairs of runs from one half of the memory to the other."""

    def __init__(self, kernel: Sort) -> None:
        self.kernel, self.code = kernel, CodeWriter()
        *arrays, self.order = (Array(p.name, element_dtype(p.dtype)) for p in sort_parameters(kernel))
        self.inputs, self.outputs = arrays[: len(kernel.inputs)], arrays[len(kernel.inputs) :]
        self.alone = _moves_numbers(kernel)

    def block(self) -> Block:
        """The loop over rows."""
        code, n = self.code, self.kernel.length
        with code.loop(_ROW, 0, self.kernel.rows * n, max(n, 1)):
            with code.loop(_BEGIN, 0, n, _RUN):
                self.insertions()
            source = code.declare("source", index(0, _INT64), changes=True)
            width = code.declare("width", index(_RUN, _INT64), changes=True)
            with code.free_loop(width < n):
                target = code.declare("target", n - source)
                with code.loop(_BEGIN, 0, n, 2 * width):
                    self.merge(source, target)
                code.assign(source, target)
                code.assign(width, 2 * width)
            with code.loop(_I, 0, n):
                self.move(self.order[source + _I])
        return code.block

    def insertions(self) -> None:
        """Sort a run."""
        code = self.code
        with code.loop(_I, _BEGIN, minimum(_BEGIN + _RUN, self.kernel.length)):
            element = code.declare("element", self.inputs[0][_ROW + _I] if self.alone else _I)
            place = code.declare("j", _I, changes=True)
            with code.free_loop(Both(_BOOL, place > _BEGIN, self.comes_before(element, self.order[place - 1]))):
                code.write(self.order[place], self.order[place - 1])
                code.assign(place, place - 1)
            code.write(self.order[place], element)

    def merge(self, source: Register, target: Register) -> None:
        """Merge two neighbouring runs; of equal elements, the first run's come first."""
        code, n, order = self.code, self.kernel.length, self.order
        middle = code.declare("middle", minimum(_BEGIN + _WIDTH, n))
        end = code.declare("end", minimum(middle + _WIDTH, n))
        left, right = code.declare("left", _BEGIN, changes=True), code.declare("right", middle, changes=True)
        with code.loop(_I, _BEGIN, end):
            less = self.comes_before(order[source + right], order[source + left])
            with code.when(Both(_BOOL, right < end, Either(_BOOL, left.equals(middle), less))):
                code.write(order[target + _I], order[source + right])
                code.assign(right, right + 1)
            with code.otherwise():
                code.write(order[target + _I], order[source + left])
                code.assign(left, left + 1)

    def comes_before(self, left: Expression, right: Expression) -> Expression:
        """Whether one element is less than another, by the first key that differs."""
        if self.alone:
            return precedes(left, right)
        found: Expression | None = None
        for key in reversed(self.inputs[: self.kernel.keys]):
            x, y = key[_ROW + left], key[_ROW + right]
            less = precedes(x, y)
            tied = Apply(_BOOL, "not", (precedes(y, x),))
            found = less if found is None else Either(_BOOL, less, Both(_BOOL, tied, found))
        assert found is not None
        return found

    def move(self, chosen: Element) -> None:
        """Write the elements of a place in order."""
        code = self.code
        if self.alone:
            code.write(self.outputs[0][_ROW + _I], chosen)
            return
        position = code.declare("position", chosen)
        for buffer, source, target in zip(self.kernel.inputs, self.inputs, self.outputs, strict=False):
            parts = 2 if is_complex(buffer.dtype) else 1
            for part in range(parts):
                code.write(target[parts * (_ROW + _I) + part], source.code(parts * (_ROW + position) + part))
        if self.kernel.index:
            code.write(self.outputs[-1][_ROW + _I], Apply(self.outputs[-1].dtype, "cast", (position,)))
