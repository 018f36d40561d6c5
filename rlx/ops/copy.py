"""copy: the same values in new memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.ir.types import TensorType
from rlx.ops.families import LinearPrimitive
from rlx.trace.primitive import Linear, Sample, primitive

__all__ = ["copy"]


@primitive
class copy(LinearPrimitive):
    """x, as a new array if it is a result; inside a program, it is the same as x."""

    def type(self, x: TensorType) -> TensorType:
        return x

    def axis_map(self, x: TensorType) -> tuple[tuple[int | None, ...], ...]:
        return (tuple(range(x.ndim)),)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def transpose(self, cotangent: Any, x: Any) -> tuple[Any, ...]:
        """A copy of the cotangent."""
        return (copy(cotangent) if isinstance(x, Linear) else None,)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, Any]:
        """The batch axis keeps its position."""
        return copy(*inputs), dims[0]

    def lower(self, k: Any, x: Any) -> Any:
        """The value itself: results are written to new memory."""
        return x

    def samples(self) -> Iterator[Sample]:
        """Any array."""
        yield Sample((np.linspace(0.0, 1.0, 3),), {})
        yield Sample((np.arange(6).reshape(2, 3),), {})
