"""Comparisons, logic, and the bits of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ops.families import NonDifferentiable
from rlx.trace.primitive import primitive

__all__ = [
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "count_leading_zeros",
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "not_equal",
    "population_count",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
]


# ------------------------------------------------------------- comparisons
class Comparison(NonDifferentiable):
    """A bool for each pair of elements; NaN is unequal to everything and in no order."""

    kinds = "biuf"

    def result_dtype(self, *dtypes: np.dtype, **params: Any) -> np.dtype:
        """bool."""
        return np.dtype(bool)


@primitive
class equal(Comparison):
    """x == y."""

    kinds = "biufc"
    compute = staticmethod(np.equal)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.eq(x, y)


@primitive
class not_equal(Comparison):
    """x != y."""

    kinds = "biufc"
    compute = staticmethod(np.not_equal)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.ne(x, y)


@primitive
class less(Comparison):
    """x < y."""

    compute = staticmethod(np.less)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.lt(x, y)


@primitive
class less_equal(Comparison):
    """x <= y."""

    compute = staticmethod(np.less_equal)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.le(x, y)


@primitive
class greater(Comparison):
    """x > y."""

    compute = staticmethod(np.greater)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.gt(x, y)


@primitive
class greater_equal(Comparison):
    """x >= y."""

    compute = staticmethod(np.greater_equal)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.ge(x, y)


# ------------------------------------------------------------- logic
@primitive
class bitwise_and(NonDifferentiable):
    """x & y."""

    kinds = "biu"
    compute = staticmethod(np.bitwise_and)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.and_(x, y)


@primitive
class bitwise_or(NonDifferentiable):
    """x | y."""

    kinds = "biu"
    compute = staticmethod(np.bitwise_or)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.or_(x, y)


@primitive
class bitwise_xor(NonDifferentiable):
    """x ^ y."""

    kinds = "biu"
    compute = staticmethod(np.bitwise_xor)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.xor(x, y)


@primitive
class bitwise_not(NonDifferentiable):
    """~x; the opposite of a bool."""

    kinds = "biu"
    compute = staticmethod(np.invert)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.not_(x)


# ------------------------------------------------------------- bits
def _as_unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


class Shift(NonDifferentiable):
    """Shifts of x by y bits, y read as unsigned: the width or more shifts everything out."""

    kinds = "iu"
    domain = (0, 9)

    @staticmethod
    def split_amount(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether the amount is below the width; and the amount, 0 where it is not."""
        amount = _as_unsigned(y)
        inside = amount < amount.dtype.itemsize * 8
        return inside, np.where(inside, amount, amount.dtype.type(0))


@primitive
class shift_left(Shift):
    """x * 2**y, without the bits that fall off."""

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        inside, amount = self.split_amount(y)
        shifted = np.left_shift(_as_unsigned(x), amount)
        return np.where(inside, shifted, shifted.dtype.type(0)).view(x.dtype)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.shift_left(x, y)


@primitive
class shift_right_logical(Shift):
    """x shifted right, filled with zeros."""

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        inside, amount = self.split_amount(y)
        shifted = np.right_shift(_as_unsigned(x), amount)
        return np.where(inside, shifted, shifted.dtype.type(0)).view(x.dtype)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.shift_right_logical(x, y)


@primitive
class shift_right_arithmetic(Shift):
    """x shifted right, filled with its sign bit."""

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        inside, amount = self.split_amount(y)
        signed = x.view(np.dtype(f"i{x.dtype.itemsize}"))
        last = signed.dtype.type(x.dtype.itemsize * 8 - 1)
        steps = np.where(inside, amount.view(signed.dtype), last)
        return np.asarray(np.right_shift(signed, steps)).view(x.dtype)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.shift_right_arithmetic(x, y)


@primitive
class population_count(NonDifferentiable):
    """How many bits are set."""

    kinds = "iu"
    domain = (-100, 100)

    def compute(self, x: np.ndarray) -> Any:
        return np.bitwise_count(_as_unsigned(x)).astype(x.dtype)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.population_count(x)


@primitive
class count_leading_zeros(NonDifferentiable):
    """How many bits are clear above the highest one that is set."""

    kinds = "iu"
    domain = (-100, 100)

    def compute(self, x: np.ndarray) -> Any:
        bits, width = _as_unsigned(x), x.dtype.itemsize * 8
        step = 1
        while step < width:  # set every bit below the highest
            bits = bits | np.right_shift(bits, bits.dtype.type(step))
            step *= 2
        return (width - np.bitwise_count(bits)).astype(x.dtype)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.count_leading_zeros(x)
