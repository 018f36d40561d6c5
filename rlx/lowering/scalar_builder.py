"""ScalarBuilder: the interface of primitives' `scalar` rules and reducers.

Complex numbers are pairs of real nodes, floats narrower than 32 bits are float32 nodes that are
rounded at the end of a primitive (see rounding.py), integers narrower than 8 bits are byte-wide
nodes that every operation wraps.
"""

from __future__ import annotations

import numpy as np

from rlx.ir.formats import FLOAT_FORMATS, INTEGER_FORMATS
from rlx.ir.types import bits_of
from rlx.lowering import complex_scalars
from rlx.lowering.narrow_bits import bits_to_narrow, narrow_integer, narrow_nextafter, narrow_to_bits
from rlx.lowering.scalar_calculus import Operand, Scalar, ScalarCalculus

__all__ = ["Scalar", "ScalarBuilder"]


class ScalarBuilder(ScalarCalculus):
    """The argument of `scalar` rules: the calculus on numbers of every dtype."""

    __slots__ = ()

    def same_dtype(self, op: str, *operands: Scalar) -> Scalar:
        """An operation of the alphabet whose result has its operands' dtype."""
        first = operands[0]
        if first.imaginary is not None:
            return complex_scalars.elementary(op, self, *operands)
        if first.dtype in INTEGER_FORMATS:
            return narrow_integer(op, self, *operands)
        return super().same_dtype(op, *operands)

    def truth(self, op: str, x: Scalar, y: Scalar) -> Scalar:
        """A comparison of the alphabet."""
        return super().truth(op, x, y) if x.imaginary is None else complex_scalars.compare(op, self, x, y)

    def nextafter(self, x: Operand, y: Operand) -> Scalar:
        x, y = self._common(x, y)
        return super().nextafter(x, y) if x.node.dtype == x.dtype else narrow_nextafter(self, x, y)

    def reread(self, x: Scalar, dtype: np.dtype) -> Scalar:
        """The bits of x as another dtype, which is as wide."""
        if x.dtype in FLOAT_FORMATS:
            return self._of_code(narrow_to_bits(self, self.rounded(x)), dtype)
        if dtype in FLOAT_FORMATS:
            return bits_to_narrow(self, self.bitcast(x, np.dtype(f"uint{bits_of(dtype)}")), dtype)
        return self.cast(x, dtype) if x.dtype in INTEGER_FORMATS else super().reread(x, dtype)

    def _of_code(self, code: Scalar, dtype: np.dtype) -> Scalar:
        """The value of `dtype` whose bits are the lowest ones of an unsigned integer."""
        if dtype in FLOAT_FORMATS:
            return bits_to_narrow(self, code, dtype)
        return self.cast(code, dtype) if dtype in INTEGER_FORMATS else self.bitcast(code, dtype)
