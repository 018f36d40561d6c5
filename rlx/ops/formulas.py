"""Formulas over float64 that serve NumPy arrays and the scalars of kernels alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.scalar import SPECIAL

__all__ = ["Formula"]


class _ArrayOperations:
    """The few scalar operations that formulas need, on float64 arrays."""

    log, log1p, exp, abs, sqrt = (staticmethod(f) for f in (np.log, np.log1p, np.exp, np.abs, np.sqrt))
    min, max, rem, pow = (staticmethod(f) for f in (np.minimum, np.maximum, np.fmod, np.power))
    eq, copysign, select = (staticmethod(f) for f in (np.equal, np.copysign, np.where))

    @staticmethod
    def special(name: str, *arrays: np.ndarray) -> np.ndarray:
        return SPECIAL[name].evaluate(*arrays)


class Formula:
    """A function of (operations, *numbers), written with the operations of ScalarBuilder."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        self.formula = formula

    def array(self, *arrays: np.ndarray) -> np.ndarray:
        """Evaluate on NumPy arrays of one floating dtype, to which the result is rounded."""
        wide = [np.asarray(v, np.float64) for v in arrays]
        with np.errstate(all="ignore"):
            return np.asarray(self.formula(_ArrayOperations, *wide)).astype(arrays[0].dtype)

    def scalar(self, s: Any, *scalars: Any) -> Any:
        """Evaluate on scalars of a kernel."""
        return s.cast(self.formula(s, *[s.cast(x, "f8") for x in scalars]), scalars[0].dtype)
