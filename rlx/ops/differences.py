"""Derivatives in parameters that have no closed form, by differences of order eight in float64.

If a function is analytic and accurate to the last bits, a central difference over a small part of
its scale is exact to about twelve digits. It is a composition of primitives: it can be
differentiated again, batched and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ops.arithmetic import add, convert, divide, multiply
from rlx.ops.reduction import reduce_sum
from rlx.ops.shape import reshape
from rlx.trace.primitive import type_of

__all__ = ["slope", "widened"]

# central first difference on the points a + k h, k = 1..4, and minus its mirror image
_OFFSETS = np.array([1, 2, 3, 4, -1, -2, -3, -4], np.float64)
_WEIGHTS = np.array([4 / 5, -1 / 5, 4 / 105, -1 / 280, -4 / 5, 1 / 5, -4 / 105, 1 / 280], np.float64)


def widened(x: Any) -> Any:
    """x in float64 or complex128."""
    return convert(x, dtype=np.dtype("c16" if type_of(x).dtype.kind == "c" else "f8"), weak=False)


def _with_last_axis(x: Any) -> Any:
    return reshape(x, shape=(*type_of(x).shape, 1))


def slope(function: Callable[..., Any], operands: Sequence[Any], moved: int, step: Any) -> Any:
    """The derivative of function(*operands) in the operand with index `moved`.

    Args:
      function: elementwise, of operands of float64 (or complex128).
      operands: arrays of that dtype that broadcast.
      step: a step much smaller than the scale on which the function varies there.
    """
    dtype = type_of(operands[moved]).dtype
    points = [_with_last_axis(x) for x in operands]
    distances = multiply(_with_last_axis(step), _OFFSETS.astype(dtype))
    points[moved] = add(points[moved], distances)
    terms = multiply(function(*points), _WEIGHTS.astype(dtype))
    return divide(reduce_sum(terms, axes=(len(type_of(terms).shape) - 1,)), step)
