"""stop_gradient: the identity without a derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ops.families import NonDifferentiable
from rlx.trace.primitive import primitive

__all__ = ["stop_gradient"]


@primitive
class stop_gradient(NonDifferentiable):
    """x, a constant for every derivative."""

    def takes(self, dtype: np.dtype) -> bool:
        """Any type, including keys."""
        return True

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x

    def scalar(self, s: Any, x: Any) -> Any:
        return x

    def lower(self, k: Any, *values: Any, **params: Any) -> Any:
        """Nothing to compute."""
        return values[0]
