"""checkpoint_name: the identity, with a name for policies of checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.ir.types import TensorType
from rlx.ops.shape import AxisMap, axes_but
from rlx.trace.primitive import Linear, Primitive, Sample, primitive

__all__ = ["checkpoint_name"]


@primitive
class checkpoint_name(Primitive):
    """x. params: name."""

    def type(self, x: TensorType, *, name: str) -> TensorType:
        return x

    def axis_map(self, x: TensorType, *, name: str) -> AxisMap:
        return (axes_but(x.ndim, ()),)

    def reference(self, x: np.ndarray, *, name: str) -> np.ndarray:
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, name: str) -> tuple[Any, Any]:
        """The tangent has no name."""
        return self.bind(*primals, name=name), tangents[0]

    def transpose(self, cotangent: Any, x: Any, *, name: str) -> tuple[Any, ...]:
        """The cotangent unchanged."""
        return (cotangent if isinstance(x, Linear) else None,)

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], *, name: str) -> tuple[Any, Any]:
        """The batch axis keeps its position."""
        return self.bind(*inputs, name=name), dims[0]

    def lower(self, k: Any, x: Any, *, name: str) -> Any:
        """Nothing to compute."""
        return x

    def samples(self) -> Iterator[Sample]:
        """Any array."""
        yield Sample((np.linspace(0.0, 1.0, 3),), {"name": "value"})
