"""Comparisons, logic, and the bits of integers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlx.ir.types import bits_of, is_key, is_narrow
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
    """A bool for each pair of elements; NaN is unequal to everything and unordered."""

    kinds = "biuf"

    def result_dtype(self, *dtypes: np.dtype, **params: Any) -> np.dtype:
        """bool."""
        return np.dtype(bool)


class Equality(Comparison):
    """A comparison that also supports keys: of all of their words."""

    kinds = "biufc"

    def takes(self, dtype: np.dtype) -> bool:
        """Numbers and keys."""
        return is_key(dtype) or super().takes(dtype)


@primitive
class equal(Equality):
    """x == y."""

    compute = staticmethod(operator.eq)
    across_words = "reduce_and"

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.eq(x, y)


@primitive
class not_equal(Equality):
    """x != y."""

    compute = staticmethod(operator.ne)
    across_words = "reduce_or"

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
def _codes(x: np.ndarray) -> np.ndarray:
    """The bits of integers as unsigned numbers; the bits of narrow integers in bytes."""
    if is_narrow(x.dtype):
        return x.astype(np.int8).view(np.uint8) & np.uint8((1 << bits_of(x.dtype)) - 1)
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _numbers(codes: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The integers whose lowest bits are given."""
    return codes.astype(dtype) if is_narrow(dtype) else codes.view(dtype)


class Bits(NonDifferentiable):
    """Operations on the bits of integers, which see their width."""

    kinds = "iu"

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """`compute` in the operands' own width."""
        return self.compute(*arrays)


class Shift(Bits):
    """Shifts of x by y bits, y read as unsigned: the width or more shifts everything out."""

    domain = (0, 9)

    @staticmethod
    def split_amount(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether the amount is below the width; and the amount, or 0 if it is not."""
        amount = _codes(y)
        inside = amount < bits_of(y.dtype)
        return inside, np.where(inside, amount, amount.dtype.type(0))


@primitive
class shift_left(Shift):
    """x * 2**y, without the bits shifted out."""

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        inside, amount = self.split_amount(y)
        shifted = np.left_shift(_codes(x), amount)
        return _numbers(np.where(inside, shifted, shifted.dtype.type(0)), x.dtype)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.shift_left(x, y)


@primitive
class shift_right_logical(Shift):
    """x shifted right, filled with zeros."""

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        inside, amount = self.split_amount(y)
        shifted = np.right_shift(_codes(x), amount)
        return _numbers(np.where(inside, shifted, shifted.dtype.type(0)), x.dtype)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.shift_right_logical(x, y)


@primitive
class shift_right_arithmetic(Shift):
    """x shifted right, filled with its sign bit."""

    def compute(self, x: np.ndarray, y: np.ndarray) -> Any:
        inside, amount = self.split_amount(y)
        spare = 8 * x.dtype.itemsize - bits_of(x.dtype)  # the sign bit of a narrow integer has to be the highest bit
        top = np.left_shift(_codes(x), amount.dtype.type(spare)) if spare else _codes(x)
        signed = top.view(np.dtype(f"i{x.dtype.itemsize}"))
        steps = np.where(inside, amount.view(signed.dtype), signed.dtype.type(bits_of(x.dtype) - 1))
        return _numbers(np.asarray(np.right_shift(signed, steps + signed.dtype.type(spare))), x.dtype)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.shift_right_arithmetic(x, y)


@primitive
class population_count(Bits):
    """The number of set bits."""

    domain = (-100, 100)

    def compute(self, x: np.ndarray) -> Any:
        return np.bitwise_count(_codes(x)).astype(x.dtype)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.population_count(x)


@primitive
class count_leading_zeros(Bits):
    """The number of leading zero bits."""

    domain = (-100, 100)

    def compute(self, x: np.ndarray) -> Any:
        bits, width = _codes(x), bits_of(x.dtype)
        step = 1
        while step < width:  # set every bit below the highest
            bits = bits | np.right_shift(bits, bits.dtype.type(step))
            step *= 2
        return (width - np.bitwise_count(bits)).astype(x.dtype)

    def scalar(self, s: Any, x: Any) -> Any:
        return s.count_leading_zeros(x)
