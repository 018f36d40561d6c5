"""Real and complex numbers in kernel code: expressions of their parts, and the arrays that hold the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx.code.tree import Apply, Array, Element, Expression, Number, Register
from rlx.code.writing import CodeWriter
from rlx.ir.types import element_dtype

__all__ = ["SplitArray", "SplitNumber"]


@dataclass(frozen=True, slots=True)
class SplitNumber:
    """A real number, or a complex one as its real and its imaginary part."""

    parts: tuple[Expression, ...]

    def __add__(self, other: SplitNumber) -> SplitNumber:
        return SplitNumber(tuple(_apply("add", a, b) for a, b in zip(self.parts, other.parts, strict=True)))

    def __sub__(self, other: SplitNumber) -> SplitNumber:
        return SplitNumber(tuple(_apply("sub", a, b) for a, b in zip(self.parts, other.parts, strict=True)))

    def __mul__(self, other: SplitNumber | float) -> SplitNumber:
        if not isinstance(other, SplitNumber):
            return self.scaled(Number(self.parts[0].dtype, other))
        products = [[_apply("mul", a, b) for b in other.parts] for a in self.parts]
        if len(products) == 1:
            return SplitNumber((products[0][0],))
        (real, cross), (crossed, squared) = products
        return SplitNumber((_apply("sub", real, squared), _apply("add", cross, crossed)))

    def conjugate(self) -> SplitNumber:
        """The number with the opposite imaginary part."""
        return SplitNumber((self.parts[0], *(_apply("neg", part) for part in self.parts[1:])))

    def scaled(self, factor: Expression) -> SplitNumber:
        """The number times a real one."""
        return SplitNumber(tuple(_apply("mul", part, factor) for part in self.parts))

    def over(self, divisor: Expression) -> SplitNumber:
        """The number divided by a real one."""
        return SplitNumber(tuple(_apply("div", part, divisor) for part in self.parts))

    def less_product(self, left: SplitNumber, right: SplitNumber) -> SplitNumber:
        """self - left * right, in the order in which hardware multiplies and adds at once."""
        pairs = zip(self.parts, right.parts, strict=True)
        made = tuple(_apply("sub", part, _apply("mul", left.parts[0], other)) for part, other in pairs)
        if len(made) == 1:
            return SplitNumber(made)
        cross = [_apply("mul", left.parts[1], y) for y in right.parts]
        return SplitNumber((_apply("add", made[0], cross[1]), _apply("sub", made[1], cross[0])))

    def magnitude(self) -> Expression:
        """The sum of the absolute values of the parts."""
        first, *rest = (_apply("abs", part) for part in self.parts)
        return _apply("add", first, rest[0]) if rest else first

    def divided(self, divisor: SplitNumber, code: CodeWriter) -> SplitNumber:
        """The quotient. A complex divisor is scaled by its larger part, to avoid overflow (Smith, 1962)."""
        if len(self.parts) == 1:
            return SplitNumber((_apply("div", self.parts[0], divisor.parts[0]),))
        c, d = divisor.parts
        real = code.declare("real_is_larger", _apply("abs", c) >= _apply("abs", d))

        def larger(name: str, pair: Sequence[Expression]) -> tuple[Expression, Expression]:
            first, second = pair
            chosen = (Apply(first.dtype, "select", (real, *p)) for p in ((first, second), (second, first)))
            return code.declare(f"{name}_large", next(chosen)), code.declare(f"{name}_small", next(chosen))

        (c, d), (a, b) = larger("divisor", (c, d)), larger("dividend", self.parts)
        ratio = code.declare("ratio", _apply("div", d, c))
        scale = code.declare("scale", _apply("add", c, _apply("mul", d, ratio)))
        quotient = SplitNumber((a, b)) + SplitNumber((b, _apply("neg", a))).scaled(ratio)
        first, second = (_apply("div", part, scale) for part in quotient.parts)
        imaginary = code.declare("imaginary_quotient", second)
        return SplitNumber((first, Apply(c.dtype, "select", (real, imaginary, _apply("neg", imaginary)))))

    def where(self, condition: Expression, other: SplitNumber) -> SplitNumber:
        """The number if a condition holds, otherwise the other one."""
        pairs = zip(self.parts, other.parts, strict=True)
        return SplitNumber(tuple(_apply("select", condition, *pair) for pair in pairs))

    def declared(self, code: CodeWriter, name: str, changes: bool = False) -> SplitNumber:
        """The number in new registers."""
        names = zip((name, f"{name}_imaginary"), self.parts, strict=False)
        return SplitNumber(tuple(code.declare(n, part, changes=changes) for n, part in names))

    def assign(self, code: CodeWriter, value: SplitNumber) -> None:
        """A new value of a number in registers."""
        for register, part in zip(self.parts, value.parts, strict=True):
            assert isinstance(register, Register)
            code.assign(register, part)


def _apply(op: str, *arguments: Expression) -> Apply:
    return Apply(arguments[-1].dtype, op, arguments)


@dataclass(frozen=True, slots=True)
class SplitArray:
    """An array of numbers; of a group or a work-item: an array for each part. In device memory, parts are adjacent."""

    arrays: tuple[Array, ...]
    parts: int

    @staticmethod
    def of_device(name: str, dtype: np.dtype) -> SplitArray:
        """An array of real or complex numbers in device memory."""
        return SplitArray((Array(name, element_dtype(dtype)),), 1 + (dtype.kind == "c"))

    @staticmethod
    def of_group(code: CodeWriter, name: str, dtype: np.dtype, size: int) -> SplitArray:
        """New memory of a group."""
        names = (name, f"{name}_imaginary")[: 1 + (dtype.kind == "c")]
        arrays = (code.allocate(Array(n, element_dtype(dtype), "group", (size,))) for n in names)
        return SplitArray(tuple(arrays), len(names))

    def elements(self, place: Expression) -> tuple[Element, ...]:
        """The elements that hold a number."""
        if len(self.arrays) == self.parts:
            return tuple(array[place] for array in self.arrays)
        return tuple(self.arrays[0][place * self.parts + part] for part in range(self.parts))

    def __getitem__(self, place: Expression) -> SplitNumber:
        return SplitNumber(self.elements(place))

    def zero(self) -> SplitNumber:
        """The number 0."""
        return SplitNumber((Number(self.arrays[0].dtype, 0),) * self.parts)

    def write(self, code: CodeWriter, place: Expression, value: SplitNumber) -> None:
        """A new value of a number."""
        for element, part in zip(self.elements(place), value.parts, strict=True):
            code.write(element, part)
