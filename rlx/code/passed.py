"""Numbers that a launch passes to a kernel: sizes, strides and offsets are arguments, so that others need no new text.

A strategy computes with integers. A `PassedInteger` knows how it follows from the numbers of a kernel: its arithmetic
gives passed integers, and comparisons give plain bools, which become part of the text. `with_arguments` then replaces
each passed number in the code by an argument. Text and arguments have the same values, so that every text is right;
numbers that are computed in the same way share an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlx.code.tree import (
    Argument,
    Block,
    Divisor,
    Expression,
    ForLoop,
    FreeLoop,
    If,
    Linear,
    Number,
    Product,
    Quotient,
    Remainder,
    Statement,
    children,
    mapped,
    rebuilt,
)

__all__ = ["PassedBytes", "PassedFloat", "PassedInteger", "with_arguments"]


class PassedInteger(int):
    """An integer that a launch passes. formula: how it is computed from the numbers of a kernel.

    >>> rows = PassedInteger(8, "rows")
    >>> groups = -(-rows * 65 // 64)
    >>> int(groups), groups.formula
    (9, '-(-(65*rows)//64)')
    """

    formula: str

    def __new__(cls, value: int, formula: str) -> PassedInteger:
        """The value with its formula."""
        made = super().__new__(cls, value)
        made.formula = formula
        return made

    def __add__(self, other: int) -> int:
        return _computed(int.__add__, "+", self, other, 0, 0)

    def __radd__(self, other: int) -> int:
        return _computed(int.__add__, "+", other, self, 0, 0)

    def __sub__(self, other: int) -> int:
        return _computed(int.__sub__, "-", self, other, None, 0)

    def __rsub__(self, other: int) -> int:
        return _computed(int.__sub__, "-", other, self, None, 0)

    def __mul__(self, other: int) -> int:
        return _computed(int.__mul__, "*", self, other, 1, 1)

    def __rmul__(self, other: int) -> int:
        return _computed(int.__mul__, "*", other, self, 1, 1)

    def __floordiv__(self, other: int) -> int:
        return _computed(int.__floordiv__, "//", self, other, None, 1)

    def __rfloordiv__(self, other: int) -> int:
        return _computed(int.__floordiv__, "//", other, self, None, 1)

    def __mod__(self, other: int) -> int:
        return _computed(int.__mod__, "%", self, other, None, None)

    def __rmod__(self, other: int) -> int:
        return _computed(int.__mod__, "%", other, self, None, None)

    def __neg__(self) -> int:
        formula = self.formula
        return PassedInteger(-int(self), formula[1:] if formula.startswith("-") else f"-{formula}")

    def __abs__(self) -> int:
        return -self if self < 0 else self


def _computed(
    function: Callable[[int, int], int], sign: str, left: int, right: int, no_left: int | None, no_right: int | None
) -> Any:
    """The result of an operation; no_left, no_right: plain operands that do not change the other one."""
    if not (isinstance(left, int) and isinstance(right, int)):
        return NotImplemented
    if type(left) is int and left == no_left:
        return right
    if type(right) is int and right == no_right:
        return left
    value = function(int(left), int(right))
    if sign == "*" and 0 in (left, right):
        return value
    names = [n.formula if isinstance(n, PassedInteger) else str(n) for n in (left, right)]
    formula = f"({sign.join(sorted(names) if sign in '+*' else names)})"
    return PassedInteger(value, formula)


class PassedFloat(float):
    """A constant of a program that a launch passes."""

    formula: str

    def __new__(cls, value: float, formula: str) -> PassedFloat:
        """The value with its formula."""
        made = super().__new__(cls, value)
        made.formula = formula
        return made


class PassedBytes(bytes):
    """The bytes of a constant that a launch passes."""

    formula: str

    def __new__(cls, value: bytes, formula: str) -> PassedBytes:
        """The bytes with the constant's formula."""
        made = super().__new__(cls, value)
        made.formula = formula
        return made

    def number(self, value: Any) -> PassedInteger | PassedFloat:
        """The number that the bytes stand for."""
        return (PassedFloat if isinstance(value, float) else PassedInteger)(value, self.formula)


def with_arguments(code: Block) -> tuple[Block, tuple[Argument, ...]]:
    """The code with an argument for each passed number, and the arguments in order.

    >>> import numpy as np
    >>> from rlx.code.tree import Array, Coordinate
    >>> from rlx.code.writing import CodeWriter
    >>> writer, x, item = CodeWriter(), Array("x", np.dtype(np.int32)), Coordinate(np.dtype(np.int32), "item")
    >>> writer.write(x[item * PassedInteger(7, "stride")], item)
    >>> with_arguments(writer.block)[1]
    (Argument(dtype=dtype('int32'), value=7, name='size0'),)
    """
    found = _ArgumentTable()
    return found.block(code), tuple(found.arguments.values())


@dataclass
class _ArgumentTable:
    """The arguments by formula, value, dtype and kind."""

    arguments: dict[tuple[str, float, np.dtype, type], Argument] = field(default_factory=dict)

    def of(self, value: Any, dtype: np.dtype, kind: type[Argument] = Argument) -> Argument:
        """The argument of a passed number."""
        plain = float(value) if isinstance(value, float) else int(value)
        key = (value.formula, plain, dtype, kind)
        return self.arguments.setdefault(key, kind(dtype, plain, f"size{len(self.arguments)}"))

    def block(self, block: Block) -> Block:
        """The statements of a block."""
        return tuple(map(self.statement, block))

    def statement(self, statement: Statement) -> Statement:
        """A statement, with the blocks inside it."""
        statement = mapped(statement, self.expression)
        match statement:
            case ForLoop(step=PassedInteger() as step):
                step = self.of(step, statement.index.dtype)
                return replace(statement, body=self.block(statement.body), step=step)
            case ForLoop() | FreeLoop():
                return replace(statement, body=self.block(statement.body))
            case If():
                return replace(
                    statement, body=self.block(statement.body), otherwise=self.block(statement.otherwise)
                )
        return statement

    def expression(self, expression: Expression) -> Expression:
        """An expression, with the expressions below it."""
        match expression:
            case Number(dtype, PassedInteger() | PassedFloat() as value):
                return self.of(value, dtype)
            case Linear():
                return self.linear(expression)
            case Quotient(dtype, dividend, divisor) | Remainder(dtype, dividend, divisor):
                return replace(expression, dividend=self.expression(dividend), divisor=self.divisor(divisor, dtype))
        below = children(expression)
        changed = [self.expression(child) for child in below]
        same = all(a is b for a, b in zip(below, changed, strict=True))
        return expression if same else rebuilt(expression, changed)

    def divisor(self, divisor: int | Expression, dtype: np.dtype) -> int | Expression:
        """A divisor: by 1, division is left to the compiler; positions of 64 bits are divided as they are."""
        if isinstance(divisor, Expression):
            return self.expression(divisor)
        if not isinstance(divisor, PassedInteger) or divisor == 1:
            return divisor
        return self.of(divisor, dtype, Divisor if dtype.itemsize == 4 else Argument)

    def linear(self, linear: Linear) -> Linear:
        """Passed factors become products, a passed offset becomes a term."""
        signed = np.dtype(linear.dtype.name.removeprefix("u"))
        terms: list[tuple[int, Expression]] = []
        for factor, term in linear.terms:
            inner = self.expression(term)
            if isinstance(factor, PassedInteger):
                inner = Product(linear.dtype, inner, self.of(abs(factor), signed))
                factor = -1 if factor < 0 else 1
            terms.append((factor, inner))
        if not isinstance(linear.offset, PassedInteger):
            return replace(linear, terms=tuple(terms))
        return Linear(linear.dtype, (*terms, (1, self.of(linear.offset, signed))))

