"""Vector operations on elements of many matrices side by side, one matrix in each lane.

An element is a vector of 64 bytes in memory, a complex one two: real parts, imaginary parts. The
operations take addresses of elements, and read and write them in place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.backends.cpu.emit.ir_text import literal
from rlx.backends.cpu.runtime.native import Operation

__all__ = ["VECTOR_BYTES", "VectorText", "lane_count", "lane_operations", "turn_square"]

VECTOR_BYTES = 64


def lane_count(dtype: np.dtype) -> int:
    """The number of matrices of a dtype in one vector."""
    return VECTOR_BYTES // (dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize)


Parts = tuple[str, ...]


class VectorText:
    """IR of one operation; its names start with the operation's own fresh name."""

    def __init__(self, dtype: np.dtype) -> None:
        self.is_complex = dtype.kind == "c"
        self.lanes = lane_count(dtype)
        self.scalar = {16: "float", 8: "double"}[self.lanes]
        self.integer = {16: "i32", 8: "i64"}[self.lanes]
        self.vector = f"<{self.lanes} x {self.scalar}>"
        self.align = VECTOR_BYTES // self.lanes
        self.lines: list[str] = []
        self.declarations: list[str] = []
        self._count = 0

    def name(self, text: str) -> str:
        """A fresh name for a value."""
        self._count += 1
        name = f"{{a}}.{self._count}"
        self.lines.append(f"{name} = {text}")
        return name

    def address(self, argument: int, plane: int = 0) -> str:
        pointer = self.name(f"inttoptr i64 {{{argument}}} to ptr")
        return self.name(f"getelementptr i8, ptr {pointer}, i64 {plane * VECTOR_BYTES}") if plane else pointer

    def load(self, argument: int, plane: int = 0) -> str:
        return self.name(f"load {self.vector}, ptr {self.address(argument, plane)}, align {self.align}")

    def store(self, argument: int, value: str, plane: int = 0) -> None:
        pointer = self.address(argument, plane)
        self.lines.append(f"store {self.vector} {value}, ptr {pointer}, align {self.align}")

    def element(self, argument: int) -> Parts:
        return tuple(self.load(argument, plane) for plane in range(1 + self.is_complex))

    def put(self, argument: int, parts: Parts) -> None:
        for plane, value in enumerate(parts):
            self.store(argument, value, plane)

    def binary(self, operation: str, x: str, y: str) -> str:
        return self.name(f"{operation} {self.vector} {x}, {y}")

    def negative(self, x: str) -> str:
        return self.name(f"fneg {self.vector} {x}")

    def multiply_add(self, x: str, y: str, z: str) -> str:
        return self._call("fmuladd", x, y, z)

    def _call(self, function: str, *values: str) -> str:
        symbol = f"@llvm.{function}.v{self.lanes}f{8 * self.align}"
        self.declarations.append(f"declare {self.vector} {symbol}({', '.join([self.vector] * len(values))})")
        return self.name(f"call {self.vector} {symbol}({', '.join(f'{self.vector} {v}' for v in values)})")

    def absolute(self, x: str) -> str:
        return self._call("fabs", x)

    def root(self, x: str) -> str:
        return self._call("sqrt", x)

    def compare(self, predicate: str, x: str, y: str) -> str:
        return self.name(f"fcmp {predicate} {self.vector} {x}, {y}")

    def select(self, mask: str, x: str, y: str) -> str:
        return self.name(f"select <{self.lanes} x i1> {mask}, {self.vector} {x}, {self.vector} {y}")

    def splat(self, number: str) -> str:
        """A vector with the scalar `number` in all lanes."""
        one = self.name(f"insertelement {self.vector} poison, {self.scalar} {number}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.name(f"shufflevector {self.vector} {one}, {self.vector} poison, {mask}")

    def number(self, argument: int) -> str:
        """All lanes the integer that is an argument."""
        return self.splat(self.name(f"sitofp i64 {{{argument}}} to {self.scalar}"))

    def literal(self, number: float) -> str:
        """A constant of the scalar type as IR."""
        return literal(self.scalar, number)

    def operation(self, result: str = "add i64 0, 0") -> Operation:
        self.lines.append(f"{{result}} = {result}")
        lines = dict.fromkeys(self.declarations)
        return Operation("\n".join(self.lines), "\n".join(lines))


NAN = "0x7FF8000000000000"


def _subtract_product(t: VectorText, conjugate: bool) -> Operation:
    target, x, y = t.element(0), t.element(1), t.element(2)
    if not t.is_complex:
        t.put(0, (t.multiply_add(t.negative(x[0]), y[0], target[0]),))
        return t.operation()
    real, imaginary = x
    minus_real, minus_imaginary = t.negative(real), t.negative(imaginary)
    first = t.multiply_add(minus_real, y[0], target[0])
    second = t.multiply_add(minus_imaginary, y[0], target[1])
    if conjugate:
        first = t.multiply_add(minus_imaginary, y[1], first)
        second = t.multiply_add(real, y[1], second)
    else:
        first = t.multiply_add(imaginary, y[1], first)
        second = t.multiply_add(minus_real, y[1], second)
    t.put(0, (first, second))
    return t.operation()


def _quotient(t: VectorText, x: Parts, y: Parts) -> Parts:
    """x / y; complex y is scaled first so that its square neither overflows nor vanishes."""
    if not t.is_complex:
        return (t.binary("fdiv", x[0], y[0]),)
    larger = t.select(t.compare("oge", t.absolute(y[0]), t.absolute(y[1])), t.absolute(y[0]), t.absolute(y[1]))
    real, imaginary = t.binary("fdiv", y[0], larger), t.binary("fdiv", y[1], larger)
    square = t.multiply_add(imaginary, imaginary, t.binary("fmul", real, real))
    first = t.multiply_add(x[1], imaginary, t.binary("fmul", x[0], real))
    second = t.multiply_add(t.negative(x[0]), imaginary, t.binary("fmul", x[1], real))
    divided = (t.binary("fdiv", t.binary("fdiv", v, square), larger) for v in (first, second))
    return tuple(divided)


def _divide(t: VectorText, unless_zero: bool) -> Operation:
    """With unless_zero, elements divided by zero stay unchanged."""
    x, y = t.element(0), t.element(1)
    result = _quotient(t, x, y)
    if unless_zero:
        magnitude = t.absolute(y[0])
        if t.is_complex:
            magnitude = t.binary("fadd", magnitude, t.absolute(y[1]))
        zero = t.compare("oeq", magnitude, "zeroinitializer")
        result = tuple(t.select(zero, old, new) for old, new in zip(x, result, strict=True))
    t.put(0, result)
    return t.operation()


def _divide_by_real(t: VectorText) -> Operation:
    x, y = t.element(0), t.load(1)
    t.put(0, tuple(t.binary("fdiv", part, y) for part in x))
    return t.operation()


def _square_root(t: VectorText) -> Operation:
    """Of a pivot of Cholesky's: NaN unless positive; its imaginary part is not read."""
    x = t.load(0)
    root = t.select(t.compare("ogt", x, "zeroinitializer"), t.root(x), t.splat(NAN))
    t.put(0, (root, *("zeroinitializer",) * t.is_complex))
    return t.operation()


def _spoil(t: VectorText) -> Operation:
    """NaN in lanes whose other element is NaN."""
    x, other = t.element(0), t.load(1)
    failed = t.compare("uno", other, other)
    t.put(0, tuple(t.select(failed, t.splat(NAN), part) for part in x))
    return t.operation()


def _clear(t: VectorText) -> Operation:
    t.put(0, ("zeroinitializer",) * (1 + t.is_complex))
    return t.operation()


def _start_search(t: VectorText) -> Operation:
    """(best, index, number): nothing found yet; NaN never is."""
    t.store(0, t.splat("-1.0"))
    t.store(1, t.number(2))
    return t.operation()


def _look_at(t: VectorText) -> Operation:
    """(best, index, element, number): the larger magnitude, and its index."""
    best, index, element = t.load(0), t.load(1), t.element(2)
    magnitude = t.absolute(element[0])
    if t.is_complex:
        magnitude = t.binary("fadd", magnitude, t.absolute(element[1]))
    larger = t.compare("ogt", magnitude, best)
    t.store(0, t.select(larger, magnitude, best))
    t.store(1, t.select(larger, t.number(3), index))
    return t.operation()


def _is_picked(t: VectorText) -> Operation:
    """(index, number): whether a lane has that index."""
    mask = t.compare("oeq", t.load(0), t.number(1))
    bits = t.name(f"bitcast <{t.lanes} x i1> {mask} to i{t.lanes}")
    return t.operation(f"zext i{t.lanes} {bits} to i64")


def _swap_picked(t: VectorText) -> Operation:
    """(x, y, index, number): exchange two elements in the lanes that have that index."""
    x, y = t.element(0), t.element(1)
    mask = t.compare("oeq", t.load(2), t.number(3))
    t.put(0, tuple(t.select(mask, b, a) for a, b in zip(x, y, strict=True)))
    t.put(1, tuple(t.select(mask, a, b) for a, b in zip(x, y, strict=True)))
    return t.operation()


def _lane_number(t: VectorText) -> Operation:
    """The integer of one lane."""
    scalar = t.name(f"load {t.scalar}, ptr {t.address(0)}, align {t.align}")
    return t.operation(f"fptosi {t.scalar} {scalar} to i64")


def _move_number(t: VectorText) -> Operation:
    """Copy a real number from the second address to the first."""
    value = t.name(f"load {t.integer}, ptr {t.address(1)}, align {t.align}")
    t.lines.append(f"store {t.integer} {value}, ptr {t.address(0)}, align {t.align}")
    return t.operation()


def _conjugate(t: VectorText) -> Operation:
    x = t.element(0)
    t.put(0, (x[0], *(t.negative(part) for part in x[1:])))
    return t.operation()


def turn_square(t: VectorText, to_lanes: bool, size: int) -> Operation:
    """(lanes, matrices, bytes from matrix to matrix): move one number per lane from each matrix.

    The numbers form a square of `size` times `size` (in two parts, if there are half as many), which is transposed by
    interleaving its halves as often as the size can be halved.
    """
    pointers = [t.address(0)] * size, [t.address(1)] * size
    for number in range(1, size):
        pointers[0][number] = t.name(f"getelementptr i8, ptr {pointers[0][0]}, i64 {number * VECTOR_BYTES}")
        pointers[1][number] = t.name(f"getelementptr i8, ptr {pointers[1][number - 1]}, i64 {{2}}")
    targets, sources = pointers if to_lanes else pointers[::-1]
    vectors = [t.name(f"load {t.vector}, ptr {source}, align {t.align}") for source in sources]
    half, parts = size // 2, range(t.lanes // size)
    masks = [
        ", ".join(
            f"i32 {number * len(parts) + part + other}"
            for number in range(start, start + half)
            for other in (0, t.lanes)
            for part in parts
        )
        for start in (0, half)
    ]
    for _ in range(size.bit_length() - 1):
        vectors = [
            t.name(
                f"shufflevector {t.vector} {vectors[number]}, {t.vector} {vectors[number + half]},"
                f" <{t.lanes} x i32> <{mask}>"
            )
            for number in range(half)
            for mask in masks
        ]
    for target, vector in zip(targets, vectors, strict=True):
        t.lines.append(f"store {t.vector} {vector}, ptr {target}, align {t.align}")
    return t.operation()


_SPELLINGS: dict[str, Callable[[VectorText], Operation]] = {
    "subtract_product": lambda t: _subtract_product(t, False),
    "subtract_conjugate_product": lambda t: _subtract_product(t, True),
    "divide": lambda t: _divide(t, False),
    "divide_unless_zero": lambda t: _divide(t, True),
    "divide_by_real": _divide_by_real,
    "square_root": _square_root,
    "spoil": _spoil,
    "clear": _clear,
    "start_search": _start_search,
    "look_at": _look_at,
    "is_picked": _is_picked,
    "swap_picked": _swap_picked,
    "lane_number": _lane_number,
    "move_number": _move_number,
    "conjugate": _conjugate,
    "turn_to_lanes": lambda t: turn_square(t, True, t.lanes),
    "turn_from_lanes": lambda t: turn_square(t, False, t.lanes),
}


def lane_operations(dtype: np.dtype) -> dict[str, Operation]:
    """The operations by name, for elements of a dtype."""
    return {name: spell(VectorText(dtype)) for name, spell in _SPELLINGS.items()}
