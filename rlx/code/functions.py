"""Functions of scalars as code: written once with Python's operators, printed or run for every device."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np

from rlx.code.tree import (
    Apply,
    Block,
    Both,
    Declare,
    Either,
    Expression,
    If,
    Leave,
    Number,
    Register,
    Return,
)
from rlx.code.writing import CodeWriter
from rlx.forks import cached_property

__all__ = ["Function", "FunctionWriter", "CodeValue", "Variable", "operation", "where"]

_BOOL, _FLOAT64 = np.dtype(bool), np.dtype(np.float64)


class CodeValue:
    """An expression in a function that is being written; Python numbers become constants of its dtype.

    `&` and `|` of conditions compute the second one only if the first one does not decide.
    """

    __slots__ = ("tree",)

    def __init__(self, tree: Expression) -> None:
        self.tree = tree

    def declared(self, code: CodeWriter, name: str, changes: bool = False) -> CodeValue:
        """The value in a new register."""
        return CodeValue(code.declare(name, self.tree, changes=changes))

    def assign(self, code: CodeWriter, value: CodeValue) -> None:
        """A new value of a register that changes."""
        assert isinstance(self.tree, Register)
        code.assign(self.tree, value.tree)

    def apply(self, op: str, *others: CodeValue | float, dtype: np.dtype | None = None) -> CodeValue:
        """An operation of the scalar alphabet, with this value as its first argument."""
        own = self.tree.dtype
        return CodeValue(Apply(dtype or own, op, (self.tree, *(_tree(other, own) for other in others))))

    def _reflected(self, op: str, other: float) -> CodeValue:
        return CodeValue(Apply(self.tree.dtype, op, (_tree(other, self.tree.dtype), self.tree)))

    def __add__(self, other: CodeValue | float) -> CodeValue:
        return self.apply("add", other)

    def __radd__(self, other: float) -> CodeValue:
        return self._reflected("add", other)

    def __sub__(self, other: CodeValue | float) -> CodeValue:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> CodeValue:
        return self._reflected("sub", other)

    def __mul__(self, other: CodeValue | float) -> CodeValue:
        return self.apply("mul", other)

    def __rmul__(self, other: float) -> CodeValue:
        return self._reflected("mul", other)

    def __truediv__(self, other: CodeValue | float) -> CodeValue:
        return self.apply("div", other)

    def __rtruediv__(self, other: float) -> CodeValue:
        return self._reflected("div", other)

    def __neg__(self) -> CodeValue:
        return self.apply("neg")

    def __lt__(self, other: CodeValue | float) -> CodeValue:
        return self.apply("lt", other, dtype=_BOOL)

    def __le__(self, other: CodeValue | float) -> CodeValue:
        return self.apply("le", other, dtype=_BOOL)

    def __gt__(self, other: CodeValue | float) -> CodeValue:
        return self.apply("gt", other, dtype=_BOOL)

    def __ge__(self, other: CodeValue | float) -> CodeValue:
        return self.apply("ge", other, dtype=_BOOL)

    def equals(self, other: CodeValue | float) -> CodeValue:
        """Whether two numbers are equal."""
        return self.apply("eq", other, dtype=_BOOL)

    def differs(self, other: CodeValue | float) -> CodeValue:
        """Whether two numbers are not equal."""
        return self.apply("ne", other, dtype=_BOOL)

    def __and__(self, other: CodeValue) -> CodeValue:
        return CodeValue(Both(_BOOL, self.tree, other.tree))

    def __or__(self, other: CodeValue) -> CodeValue:
        return CodeValue(Either(_BOOL, self.tree, other.tree))

    def __invert__(self) -> CodeValue:
        return self.apply("not")


class Variable(CodeValue):
    """A register that changes: `x += y` is a statement of the function."""

    __slots__ = ("code",)

    def __init__(self, register: Register, code: CodeWriter) -> None:
        super().__init__(register)
        self.code = code

    def set(self, value: CodeValue | float) -> Variable:
        """Assign a new value."""
        assert isinstance(self.tree, Register)
        self.code.assign(self.tree, _tree(value, self.tree.dtype))
        return self

    def __iadd__(self, other: CodeValue | float) -> Variable:
        return self.set(self + other)

    def __isub__(self, other: CodeValue | float) -> Variable:
        return self.set(self - other)

    def __imul__(self, other: CodeValue | float) -> Variable:
        return self.set(self * other)

    def __itruediv__(self, other: CodeValue | float) -> Variable:
        return self.set(self / other)


def _tree(value: CodeValue | float, dtype: np.dtype) -> Expression:
    return value.tree if isinstance(value, CodeValue) else Number(dtype, value)


def where(condition: CodeValue, yes: CodeValue | float, no: CodeValue | float) -> CodeValue:
    """One of two numbers, the only one that is computed."""
    model = next((value.tree.dtype for value in (yes, no) if isinstance(value, CodeValue)), _FLOAT64)
    return CodeValue(Apply(model, "select", (condition.tree, _tree(yes, model), _tree(no, model))))


def operation(op: str, attribute: Any = None) -> Callable[..., CodeValue]:
    """An operation of the scalar alphabet, as a function of scalars of one dtype."""

    def apply(first: CodeValue | float, *others: CodeValue | float) -> CodeValue:
        model = next((value.tree.dtype for value in (first, *others) if isinstance(value, CodeValue)), _FLOAT64)
        return CodeValue(Apply(model, op, tuple(_tree(value, model) for value in (first, *others)), attribute))

    return apply


class Function:
    """A function of numbers. Its body is written when it is first needed; other bodies can call it if it has float64.

    inline: whether compilers of devices should insert it where it is called.

    >>> def larger(f, x, y):
    ...     f.give(x, x > y)
    ...     return y
    >>> function = Function.written(larger)
    >>> [register.name for register in function.parameters], len(function.body)
    (['x', 'y'], 2)
    """

    def __init__(
        self, name: str, parameters: tuple[Register, ...], write: Callable[[], Block], inline: bool = False
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.inline = inline
        self._write = write

    @staticmethod
    def written(define: FunctionType, inline: bool = False) -> Function:
        """A function of float64 numbers that Python code writes: its first parameter is a `FunctionWriter`."""
        names = define.__code__.co_varnames[1 : define.__code__.co_argcount]
        parameters = tuple(Register(_FLOAT64, name) for name in names)

        def write() -> Block:
            writer = FunctionWriter(parameters)
            writer.give(define(writer, *(Variable(register, writer.code) for register in parameters)))
            return writer.code.block

        return Function(define.__name__, parameters, write, inline)

    def __call__(self, *arguments: CodeValue | float) -> CodeValue:
        """A call, as an expression."""
        assert len(arguments) == len(self.parameters), f"{self.name} takes {len(self.parameters)} numbers"
        return CodeValue(Apply(_FLOAT64, "special", tuple(_tree(a, _FLOAT64) for a in arguments), self.name))

    @cached_property
    def body(self) -> Block:
        """The statements; the last one returns."""
        return self._write()

    @property
    def result(self) -> np.dtype:
        """The result's dtype."""
        last = self.body[-1]
        assert isinstance(last, Return)
        return last.value.dtype


class FunctionWriter:
    """Statements of a function. Names that are used before get a number."""

    def __init__(self, parameters: tuple[Register, ...]) -> None:
        self.code = CodeWriter()
        self._used = {register.name: 1 for register in parameters}

    def _register(self, name: str) -> Register:
        count = self._used[name] = self._used.get(name, 0) + 1
        return Register(_FLOAT64, name if count == 1 else f"{name}_{count}")

    def let(self, name: str, value: CodeValue) -> CodeValue:
        """A number with a name."""
        register = self._register(name)
        self.code.add(Declare(register, value.tree))
        return CodeValue(register)

    def lets(self, names: str, *values: CodeValue) -> list[CodeValue]:
        """Numbers with names."""
        return [self.let(name, value) for name, value in zip(names.split(), values, strict=True)]

    def variable(self, name: str, value: CodeValue | float) -> Variable:
        """A number that changes."""
        register = self._register(name)
        self.code.add(Declare(register, _tree(value, _FLOAT64), True))
        return Variable(register, self.code)

    def variables(self, names: str, *values: CodeValue | float) -> list[Variable]:
        """Numbers that change."""
        return [self.variable(name, value) for name, value in zip(names.split(), values, strict=True)]

    def give(self, value: CodeValue | float, when: CodeValue | None = None) -> None:
        """Return a number, if a condition holds."""
        self._add(Return(_tree(value, _FLOAT64)), when)

    def leave(self, when: CodeValue) -> None:
        """End the innermost loop if a condition holds."""
        self._add(Leave(), when)

    def leave_unless(self, condition: CodeValue) -> None:
        """End the innermost loop unless a condition holds."""
        self._add(Leave(), ~condition)

    def _add(self, statement: Any, when: CodeValue | None) -> None:
        self.code.add(statement if when is None else If(when.tree, (statement,)))

    @contextmanager
    def when(self, condition: CodeValue) -> Generator[None]:
        """Statements that run if a condition holds."""
        with self.code.when(condition.tree):
            yield

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """Statements that run if the condition of the preceding `when` does not hold."""
        with self.code.otherwise():
            yield

    @contextmanager
    def loop(self, condition: CodeValue) -> Generator[None]:
        """Statements that run while a condition holds."""
        with self.code.free_loop(condition.tree):
            yield

    @contextmanager
    def count(self, name: str, start: int, stop: int) -> Generator[CodeValue]:
        """Statements that run for start, start + 1, ... below stop."""
        index = self._register(name)
        with self.code.loop(index, start, stop):
            yield CodeValue(index)
