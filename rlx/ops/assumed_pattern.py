"""assumed_pattern: the identity, with a user's statement of what it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.program import Equation
from rlx.ir.types import TensorType
from rlx.ops.families import LinearMap
from rlx.ops.shape import AxisMap, axes_but
from rlx.trace.primitive import Sample, primitive

__all__ = ["assumed_pattern"]


@primitive
class assumed_pattern(LinearMap):
    """x. params: rows, cols: pairs of an element of x and an element of the arguments that it may depend on."""

    def type(self, x: TensorType, *, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> TensorType:
        if shape[0] != x.size:
            raise ShapeError(
                f"assume_pattern got {x!r} and a pattern of shape {shape}.",
                "It has a row for each element of the value.",
            )
        return x

    def axis_map(self, x: TensorType, **params: Any) -> AxisMap:
        return (axes_but(x.ndim, ()),)

    def dependence(self, walk: Any, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """The pattern in place of the operand's sets."""
        p = equation.params
        return walk.assumed(equation, operands[0], p["rows"], p["cols"], p["shape"][1])

    def reference(self, x: np.ndarray, **params: Any) -> np.ndarray:
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        """The tangent unchanged."""
        return self.bind(*primals, **params), tangents[0]

    def pull_back(self, cotangent: Any, type: TensorType, **params: Any) -> Any:
        return cotangent

    def batch(self, size: int, inputs: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        """The operand: the pattern is of one element of the batch."""
        return inputs[0], dims[0]

    def lower(self, k: Any, x: Any, **params: Any) -> Any:
        """Nothing to compute."""
        return x

    def samples(self) -> Iterator[Sample]:
        """Any array; its pattern is the identity."""
        places = np.arange(3)
        yield Sample((np.linspace(0.0, 1.0, 3),), {"rows": places, "cols": places, "shape": (3, 3)})
