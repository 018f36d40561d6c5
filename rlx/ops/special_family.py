"""The family of special functions: SciPy's, computed in float64 and rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.ir.scalar import SPECIAL
from rlx.ops.families import Elementwise

__all__ = ["ComplexSpecial", "Special", "unsupported"]


class Special(Elementwise):
    """The function of `ir.scalar.SPECIAL` with the primitive's name."""

    kinds = "f"
    sign_of: int | None = None  # the operand whose sign an odd function's result has: SciPy drops the sign of -0.

    @property
    def arity(self) -> int:
        """Number of operands."""
        return SPECIAL[self.name].arity

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """SciPy's function in float64, rounded to the operands' dtype."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = SPECIAL[self.name].evaluate(*arrays).astype(arrays[0].dtype)
        return found if self.sign_of is None else np.copysign(found, arrays[self.sign_of])

    def scalar(self, s: Any, *xs: Any, **params: Any) -> Any:
        found = s.special(self.name, *xs)
        return found if self.sign_of is None else s.copysign(found, xs[self.sign_of])


class ComplexSpecial(Elementwise):
    """A function of one complex number, in SPECIAL as a function for each part of the result."""

    kinds = "c"

    def reference(self, *arrays: np.ndarray, **params: Any) -> Any:
        """SciPy's function in complex128, rounded to the operand's dtype."""
        (z,) = arrays
        result = np.empty(z.shape, z.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            result.real = SPECIAL[f"{self.name}_real_part"].evaluate(z.real, z.imag)
            result.imag = SPECIAL[f"{self.name}_imaginary_part"].evaluate(z.real, z.imag)
        return result

    def scalar(self, s: Any, z: Any) -> Any:
        parts = s.real(z), s.imag(z)
        return s.complex(s.special(f"{self.name}_real_part", *parts), s.special(f"{self.name}_imaginary_part", *parts))


def unsupported(name: str, operand: str) -> Any:
    """A partial derivative that raises an error when a tangent needs it."""

    def refuse(tangent: Any) -> Any:
        raise UnsupportedError(
            f"{name} has no derivative with respect to {operand}.",
            "Wrap that operand in stop_gradient, or give the function a custom_jvp.",
        )

    return refuse
