"""IR of products with sparse matrices by rows, for a dtype of elements and one of indices.

Dense operands are matrices by rows. A block of columns is a vector in registers: every stored element is loaded once
for a block, and multiplied with a contiguous part of a row. A complex number is two lanes; its product is the sum of
the lanes times the real part, and of the exchanged lanes times the imaginary part, negative in real lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import numpy as np

from rlx.backends.cpu.emit.ir_text import Code, FunctionBody, Value, functions_text

__all__ = ["CARRY", "PUSH", "ROWS", "SAMPLE", "ElementLanes", "sparse_text"]

ROWS = "rlx_csr_rows"
PUSH = "rlx_csr_push"
SAMPLE = "rlx_csr_sample"
CARRY = "rlx_csr_carry"

_WIDTHS = (16, 8, 4, 1)  # columns of a block
_DOT_WIDTHS = (8, 1)
_TURNS = 2  # the logarithm of the number of sums that hide the latency of an addition, for one column
_LONG = 24  # elements of a row with several sums: the sums of shorter rows overlap


def sparse_text(dtype: np.dtype, index: np.dtype) -> str:
    """The functions; rows and elements are numbers from 0.

    ROWS(y, data, indices, indptr, x, carry, row, last_row, element, last, columns): rows of A @ x, from an element on,
    and in `carry` the sum of the elements of last_row before `last`.
    CARRY(y, carry, columns): adds a sum to a row of y.
    PUSH(y, data, indices, indptr, x, row, last_row, columns, column, last_column): adds rows' products to A.T @ x.
    SAMPLE(out, x, y, indices, indptr, row, last_row, element, last, columns): elements of x @ y.T.
    """
    return functions_text(_BODIES, lambda code: ElementLanes(code, dtype, index))


class ElementLanes:
    """Elements of a dtype as lanes of vectors, in a function under construction."""

    def __init__(self, code: Code, dtype: np.dtype, index: np.dtype) -> None:
        self.code = code
        self.parts = 2 if dtype.kind == "c" else 1
        self.nbytes = dtype.itemsize // self.parts
        self.real = "double" if self.nbytes == 8 else "float"
        self.index = f"i{8 * index.itemsize}"

    # ------------------------------------------------------------- types and places
    def vector(self, width: int) -> str:
        """The type of `width` elements."""
        return f"<{width * self.parts} x {self.real}>"

    def suffix(self, width: int) -> str:
        """The type in names of intrinsics."""
        return f"v{width * self.parts}f{8 * self.nbytes}"

    def word(self, number: int) -> Value:
        """A constant number."""
        return self.code.constant("i64", number)

    def place(self, pointer: str, number: Value | int, scale: Value | int = 1) -> str:
        """The address of element number * scale."""
        at = number if isinstance(number, Value) else self.word(number)
        at = at if isinstance(scale, int) and scale == 1 else at * scale
        return self.code.element(self.real, pointer, at if self.parts == 1 else at * self.parts)

    def number(self, pointer: str, at: Value) -> Value:
        """An index as i64."""
        return self.code.load(self.index, self.code.element(self.index, pointer, at)).convert("sext", "i64")

    def load(self, pointer: str, width: int) -> Value:
        """Elements from a place on."""
        return self.code.load(self.vector(width), pointer, f", align {self.nbytes}")

    def store(self, value: Value, pointer: str) -> None:
        """Write elements from a place on."""
        self.code.store(value, pointer, f", align {self.nbytes}")

    def blocks(self, first: Value, last: Value, widths: Sequence[int] = _WIDTHS) -> Generator[tuple[int, Value]]:
        """Loops over columns, the widest blocks that fit first: widths and the columns where blocks start."""
        for width in widths:
            count = (last - first) >> (width.bit_length() - 1)
            with self.code.loop(self.word(0), count) as block:
                yield width, first + block * width
            first = first + count * width

    # ------------------------------------------------------------- vectors
    def lanes(self, width: int, values: Sequence[float]) -> Value:
        """A constant vector of repeated values."""
        listed = [f"{self.real} {self.code.constant(self.real, v).name}" for v in (*values,) * width]
        return Value(self.code, f"<{', '.join(listed)}>", self.vector(width))

    def splat(self, scalar: Value, width: int) -> Value:
        """A scalar in every lane."""
        kind = self.vector(width)
        one = self.code.emit(kind, f"insertelement {kind} poison, {self.real} {scalar.name}, i64 0")
        return self.shuffled(one, width, [0] * (width * self.parts))

    def shuffled(self, vector: Value, width: int, order: Sequence[int]) -> Value:
        """A vector with its lanes in another order."""
        listed = ", ".join(f"i32 {n}" for n in order)
        kind = self.vector(width)
        mask = f"<{len(order)} x i32> <{listed}>"
        return self.code.emit(kind, f"shufflevector {kind} {vector.name}, {kind} poison, {mask}")

    def exchanged(self, vector: Value, width: int) -> Value:
        """Real and imaginary parts exchanged."""
        return self.shuffled(vector, width, [n ^ 1 for n in range(width * self.parts)])

    def fma(self, x: Value, y: Value, total: Value, width: int) -> Value:
        """x * y + total."""
        return self.code.call(f"llvm.fmuladd.{self.suffix(width)}", self.vector(width), x, y, total)

    def added(self, x: Value, y: Value) -> Value:
        """x + y."""
        return self.code.emit(x.kind, f"fadd {x.kind} {x.name}, {y.name}")

    def scalars(self, pointer: str, number: Value, width: int) -> list[Value]:
        """The real (and imaginary) part of an element, each in every lane."""
        place = self.place(pointer, number)
        parts = (self.code.load(self.real, self.code.element(self.real, place, part)) for part in range(self.parts))
        return [self.splat(part, width) for part in parts]


class _VectorSums:
    """Vectors on the stack, which LLVM keeps in registers: of real parts (and imaginary ones)."""

    def __init__(self, lanes: ElementLanes, width: int, count: int) -> None:
        self.lanes, self.width, self.kind = lanes, width, lanes.vector(width)
        self.slots = [lanes.code.stack_slot(self.kind) for _ in range(count)]
        for slot in self.slots:
            lanes.code.line(f"store {self.kind} zeroinitializer, ptr {slot}")

    def value(self, number: int) -> Value:
        """The current sum."""
        return self.lanes.code.load(self.kind, self.slots[number])

    def add_product(self, number: int, x: Value, y: Value) -> None:
        """Add x * y to a sum."""
        self.lanes.code.store(self.lanes.fma(x, y, self.value(number), self.width), self.slots[number])


# ------------------------------------------------------------- A @ x
def _rows(t: ElementLanes, pointers: list[str], numbers: list[Value]) -> None:
    y, data, indices, indptr, x, carry = pointers
    row, last_row, element, last, columns = numbers

    def each(one: bool) -> None:
        start = t.code.stack_slot("i64")
        t.code.store(element, start)
        width: Value | int = 1 if one else columns

        def total(first: Value, end: Value, out: str) -> None:
            if one:
                _sum_row(t, (data, indices, x, out), first, end)
            else:
                for block, column in t.blocks(t.word(0), columns):
                    _sum_block(t, (data, indices, t.place(x, column), t.place(out, column)), columns, first, end, block)

        with t.code.loop(row, last_row) as number:
            end = t.number(indptr, number + 1)
            total(t.code.load("i64", start), end, t.place(y, number, width))
            t.code.store(end, start)
        total(t.code.load("i64", start), last, carry)

    _by_columns(t, columns, each)


def _sum_row(t: ElementLanes, pointers: tuple[str, str, str, str], start: Value, end: Value) -> None:
    """One column of a row of A @ x."""
    long = t.word(_LONG) < end - start
    with t.code.when(long):
        _sum_block(t, pointers, 1, start, end, 1, _TURNS)
    with t.code.when(~long):
        _sum_block(t, pointers, 1, start, end, 1)


def _by_columns(t: ElementLanes, columns: Value, each: Callable[[bool], None]) -> None:
    """The code for one column, and the code for others."""
    single = columns.equal(1)
    with t.code.when(single):
        each(True)
    with t.code.when(~single):
        each(False)


def _sum_block(
    t: ElementLanes, pointers: tuple[str, str, str, str], columns: Value | int, start: Value, end: Value, width: int,
    turns: int = 0,
) -> None:  # fmt: skip
    """`width` columns of a row of A @ x, from 2^turns sums."""
    data, indices, x, out = pointers
    sums = _VectorSums(t, width, t.parts << turns)

    def add(turn: int, number: Value) -> None:
        scalars = t.scalars(data, number, width)
        dense = t.load(t.place(x, t.number(indices, number), columns), width)
        sums.add_product(t.parts * turn, scalars[0], dense)
        if t.parts == 2:
            sums.add_product(2 * turn + 1, scalars[1], t.exchanged(dense, width))

    if turns:
        groups = (end - start) >> turns
        with t.code.loop(t.word(0), groups) as group:
            for turn in range(1 << turns):
                add(turn, start + (group << turns) + turn)
        start = start + (groups << turns)
    with t.code.loop(start, end) as number:
        add(0, number)
    totals = [sums.value(part) for part in range(t.parts)]
    for turn in range(1, 1 << turns):
        totals = [t.added(total, sums.value(t.parts * turn + part)) for part, total in enumerate(totals)]
    if t.parts == 2:
        totals[0] = t.fma(totals[1], t.lanes(width, (-1.0, 1.0)), totals[0], width)
    t.store(totals[0], out)


def _carry(t: ElementLanes, pointers: list[str], numbers: list[Value]) -> None:
    for width, column in t.blocks(t.word(0), numbers[0]):
        target, source = (t.place(p, column) for p in pointers)
        t.store(t.added(t.load(target, width), t.load(source, width)), target)


# ------------------------------------------------------------- A.T @ x
def _push(t: ElementLanes, pointers: list[str], numbers: list[Value]) -> None:
    y, data, indices, indptr, x = pointers
    row, last_row, columns, column, last_column = numbers

    def each(one: bool) -> None:
        start = t.code.stack_slot("i64")
        t.code.store(t.number(indptr, row), start)
        width: Value | int = 1 if one else columns
        with t.code.loop(row, last_row) as number:
            first, end = t.code.load("i64", start), t.number(indptr, number + 1)
            source = t.place(x, number, width)
            if one:
                _push_block(t, (data, indices, source, y), 1, first, end, 1)
            else:
                for block, at in t.blocks(column, last_column):
                    _push_block(t, (data, indices, t.place(source, at), t.place(y, at)), columns, first, end, block)
            t.code.store(end, start)

    _by_columns(t, columns, each)


def _push_block(
    t: ElementLanes, pointers: tuple[str, str, str, str], columns: Value | int, start: Value, end: Value, width: int
) -> None:
    """Add a row's elements, times `width` columns of x, to rows of y."""
    data, indices, x, y = pointers
    dense = t.load(x, width)
    if t.parts == 2:
        signs = t.lanes(width, (-1.0, 1.0))
        turned = t.code.emit(dense.kind, f"fmul {dense.kind} {t.exchanged(dense, width).name}, {signs.name}")
    with t.code.loop(start, end) as number:
        scalars = t.scalars(data, number, width)
        target = t.place(y, t.number(indices, number), columns)
        total = t.fma(scalars[0], dense, t.load(target, width), width)
        if t.parts == 2:
            total = t.fma(scalars[1], turned, total, width)
        t.store(total, target)


# ------------------------------------------------------------- x @ y.T at places
def _sample(t: ElementLanes, pointers: list[str], numbers: list[Value]) -> None:
    """Elements from one to another, which belong to the rows from one to another."""
    out, x, y, indices, indptr = pointers
    row, last_row, element, last, columns = numbers
    start = t.code.stack_slot("i64")
    t.code.store(element, start)
    with t.code.loop(row, last_row) as number:
        bound = t.number(indptr, number + 1)
        end = (bound < last).where(bound, last)
        source = t.place(x, number, columns)
        with t.code.loop(t.code.load("i64", start), end) as stored:
            _inner_product(t, source, t.place(y, t.number(indices, stored), columns), columns, t.place(out, stored))
        t.code.store(end, start)


def _inner_product(t: ElementLanes, x: str, y: str, columns: Value, out: str) -> None:
    """The inner product of two rows, without conjugation."""
    totals: list[Value] = [t.code.constant(t.real, 0.0)] * t.parts
    first = t.word(0)
    for width in _DOT_WIDTHS:
        sums = _VectorSums(t, width, t.parts)
        for block, column in t.blocks(first, columns, (width,)):
            left, right = t.load(t.place(x, column), block), t.load(t.place(y, column), block)
            sums.add_product(0, left, right)
            if t.parts == 2:
                sums.add_product(1, left, t.exchanged(right, block))
        first = first + (((columns - first) >> (width.bit_length() - 1)) * width)
        vectors = [sums.value(part) for part in range(t.parts)]
        if t.parts == 2:
            signs = t.lanes(width, (1.0, -1.0))
            vectors[0] = t.code.emit(signs.kind, f"fmul {signs.kind} {vectors[0].name}, {signs.name}")
        totals = [
            t.code.call(f"llvm.vector.reduce.fadd.{t.suffix(width)}", t.real, total, vector, flags="reassoc")
            for total, vector in zip(totals, vectors, strict=True)
        ]
    for part, total in enumerate(totals):
        t.code.store(total, t.code.element(t.real, out, part))


_BODIES: dict[str, FunctionBody[ElementLanes]] = {
    ROWS: (_rows, 6, 5),
    CARRY: (_carry, 2, 1),
    PUSH: (_push, 5, 5),
    SAMPLE: (_sample, 5, 5),
}
