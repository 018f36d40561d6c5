"""Arithmetic: sums, products, quotients, powers, rounding, selection, complex parts, casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ops.families import Elementwise
from rlx.trace.primitive import Linear, Zero, primitive

__all__ = ["add", "multiply", "negative", "subtract"]


@primitive
class add(Elementwise):
    """x + y."""

    kinds = "iufc"

    def reference(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.add(x, y)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.add(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (1, 1)

    def linear_transpose(self, ct: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (ct, ct)


@primitive
class multiply(Elementwise):
    """x * y."""

    kinds = "iufc"

    def reference(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.multiply(x, y)

    def scalar(self, s: Any, x: Any, y: Any) -> Any:
        return s.mul(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return (y, x)

    def linear_transpose(self, ct: Any, x: Any, y: Any) -> tuple[Any, ...]:
        if isinstance(x, Linear):
            return (multiply(ct, y), None)
        return (None, multiply(ct, x))
