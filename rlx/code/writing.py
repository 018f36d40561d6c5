"""CodeWriter: collects statements, block by block."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.code.tree import (
    Allocate,
    Array,
    Assign,
    Block,
    Declare,
    Element,
    Expression,
    ForLoop,
    FreeLoop,
    If,
    Register,
    Statement,
    Write,
    index,
)

__all__ = ["CodeWriter"]


class CodeWriter:
    """Statements in order; a `with` block collects the body of a loop or of a condition.

    >>> import numpy as np
    >>> from rlx.code.tree import Array, Register
    >>> code, x = CodeWriter(), Array("x", np.dtype(np.float32))
    >>> i = Register(np.dtype(np.int32), "i")
    >>> with code.loop(i, 0, 10):
    ...     code.write(x[i + 1], x[i])
    >>> code.block[0].body[0].position
    (Linear(dtype=dtype('int32'), terms=((1, Register(dtype=dtype('int32'), name='i')),), offset=1),)
    """

    def __init__(self) -> None:
        self._blocks: list[list[Statement]] = [[]]

    @property
    def block(self) -> Block:
        """The statements of the innermost open block."""
        return tuple(self._blocks[-1])

    def add(self, *statements: Statement) -> None:
        """Append statements."""
        self._blocks[-1] += statements

    def declare(self, name: str, value: Expression, dtype: np.dtype | None = None, changes: bool = False) -> Register:
        """A new register, of the value's dtype by default."""
        register = Register(dtype or value.dtype, name)
        self.add(Declare(register, value, changes))
        return register

    def assign(self, register: Register, value: Expression) -> None:
        """A new value of a register."""
        self.add(Assign(register, value))

    def write(self, element: Element, value: Expression) -> None:
        """A new value of an element."""
        self.add(Write(element.array, element.position, value))

    def allocate(self, array: Array) -> Array:
        """Memory for a group or a work-item."""
        self.add(Allocate(array))
        return array

    @contextmanager
    def _inside(self) -> Generator[list[Statement]]:
        body: list[Statement] = []
        self._blocks.append(body)
        try:
            yield body
        finally:
            self._blocks.pop()

    @contextmanager
    def loop(
        self,
        register: Register,
        start: Expression | int,
        stop: Expression | int,
        step: Expression | int = 1,
        **how: Any,
    ) -> Generator[None]:
        """The body of a `ForLoop`, which has the attributes in `how`."""
        first, last = (index(bound, register.dtype) for bound in (start, stop))
        with self._inside() as body:
            yield
        self.add(ForLoop(register, first, last, tuple(body), step, **how))

    @contextmanager
    def free_loop(self, condition: Expression | None = None) -> Generator[None]:
        """The body of a `FreeLoop`."""
        with self._inside() as body:
            yield
        self.add(FreeLoop(tuple(body), condition))

    @contextmanager
    def when(self, condition: Expression) -> Generator[None]:
        """Statements that run if a condition holds."""
        with self._inside() as body:
            yield
        self.add(If(condition, tuple(body)))

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """Statements that run if the condition of the preceding `when` does not hold."""
        with self._inside() as body:
            yield
        before = self._blocks[-1].pop()
        assert isinstance(before, If)
        self.add(replace(before, otherwise=tuple(body)))

    def declare_digits(
        self, number: Expression, sizes: Sequence[int], names: Sequence[str], dtype: np.dtype
    ) -> list[Register]:
        """Registers of the digits of a number, the last one fastest; sizes bound all digits but the first one."""
        digits: list[Register] = []
        rest = number
        for position in range(len(sizes) - 1, -1, -1):
            if not position:
                digits.append(self.declare(names[0], rest, dtype))
                break
            digits.append(self.declare(names[position], rest % sizes[position], dtype))
            rest = self.declare(f"above_{names[position]}", rest // sizes[position])
        return digits[::-1]
