"""Floats in kernel code, with operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx.code.tree import Apply, Expression, Number, Register
from rlx.code.writing import CodeWriter

__all__ = ["Real"]

_BOOL = np.dtype(bool)


@dataclass(frozen=True, slots=True)
class Real:
    """A float; Python numbers become constants of its dtype.

    >>> import numpy as np
    >>> from rlx.code.reals import Real
    >>> from rlx.code.tree import Register
    >>> x = Real(Register(np.dtype(np.float32), "x"))
    >>> (x * 2.0 + 1.0).of.op
    'add'
    """

    of: Expression

    def apply(self, op: str, *others: Real | float) -> Real:
        """An operation of the scalar alphabet, with this number as its first argument."""
        return Real(Apply(self.of.dtype, op, (self.of, *map(self._lifted, others))))

    def _lifted(self, other: Real | float) -> Expression:
        return other.of if isinstance(other, Real) else Number(self.of.dtype, float(other))

    def __add__(self, other: Real | float) -> Real:
        return self.apply("add", other)

    def __sub__(self, other: Real | float) -> Real:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Real:
        return Real(self._lifted(other)) - self

    def __mul__(self, other: Real | float) -> Real:
        return self.apply("mul", other)

    def __truediv__(self, other: Real | float) -> Real:
        return self.apply("div", other)

    def __rtruediv__(self, other: float) -> Real:
        return Real(self._lifted(other)) / self

    def __neg__(self) -> Real:
        return self.apply("neg")

    def compared(self, op: str, other: Real | float) -> Expression:
        """A comparison, as a condition."""
        return Apply(_BOOL, op, (self.of, self._lifted(other)))

    def chosen(self, condition: Expression, other: Real | float) -> Real:
        """This number if a condition holds, else the other one."""
        return Real(Apply(self.of.dtype, "select", (condition, self.of, self._lifted(other))))

    def declared(self, code: CodeWriter, name: str, changes: bool = False) -> Real:
        """The number in a new register."""
        return Real(code.declare(name, self.of, changes=changes))

    def assign(self, code: CodeWriter, value: Real) -> None:
        """A new value of a number in a register that changes."""
        assert isinstance(self.of, Register)
        code.assign(self.of, value.of)
