"""Gradients, integrals and phases of sampled functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ir.types import dtype_kind
from rlx.numpy.cumulative import cumsum, diff
from rlx.numpy.elementwise import multiply
from rlx.numpy.floats import absolute
from rlx.numpy.promotion import (
    canonical_axes,
    canonical_axis,
    convert_to,
    inexact,
    operand,
    promote,
    promote_inexact,
    scalar_array,
)
from rlx.numpy.reductions import sum as sum_
from rlx.numpy.rounding import remainder
from rlx.ops import arithmetic, comparison
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["gradient", "trapezoid", "unwrap"]


def _along(x: Any, axis: int, start: int, stop: int) -> Any:
    size = x.shape[axis]
    return shapes.slice_along(x, start % size if start < 0 else start, stop + size if stop <= 0 else stop, axis)


def _spaced(x: Any, axis: int, step: Any, edge_order: int) -> Any:
    """Central differences for a constant step, one-sided at the ends."""
    step = convert_to(operand(step), x.dtype)
    inner = arithmetic.divide(
        arithmetic.subtract(_along(x, axis, 2, 0), _along(x, axis, 0, -2)),
        arithmetic.multiply(step, scalar_array(2, x.dtype, True)),
    )
    rises = arithmetic.divide(diff(x, axis=axis), step)
    first, last = _ends(rises, axis, None, edge_order)
    return shapes.concatenate(first, inner, last, axis=axis)


def _ends(rises: Any, axis: int, steps: Any, edge_order: int) -> tuple[Any, Any]:
    """Derivatives at both ends from the slopes between neighbours. steps: the distances (None: even spacing)."""
    size = rises.shape[axis]
    first, last = _along(rises, axis, 0, 1), _along(rises, axis, size - 1, size)
    if edge_order == 1:
        return first, last
    # the slope of the parabola through the last three points
    second, previous = _along(rises, axis, 1, 2), _along(rises, axis, size - 2, size - 1)
    half = scalar_array(0.5, rises.dtype, True)
    shares = [half, half]
    if steps is not None:
        near, far = _along(steps, axis, 0, 1), _along(steps, axis, 1, 2)
        shares[0] = arithmetic.divide(near, arithmetic.add(near, far))
        near, far = _along(steps, axis, size - 1, size), _along(steps, axis, size - 2, size - 1)
        shares[1] = arithmetic.divide(near, arithmetic.add(near, far))
    bends = arithmetic.subtract(first, second), arithmetic.subtract(last, previous)
    front, back = [multiply(bend, share) for bend, share in zip(bends, shares, strict=True)]
    return arithmetic.add(first, front), arithmetic.add(last, back)


def _unevenly_spaced(x: Any, axis: int, places: Any, edge_order: int) -> Any:
    """Second-order differences at given positions."""
    steps = convert_to(diff(places), x.dtype)
    steps = shapes.reshape(steps, shape=tuple(steps.size if i == axis else 1 for i in range(x.ndim)))
    before, after = _along(steps, axis, 0, -1), _along(steps, axis, 1, 0)
    total = arithmetic.add(before, after)
    left = arithmetic.divide(arithmetic.negative(after), arithmetic.multiply(before, total))
    middle = arithmetic.divide(arithmetic.subtract(after, before), arithmetic.multiply(before, after))
    right = arithmetic.divide(before, arithmetic.multiply(after, total))
    parts = [
        arithmetic.multiply(left, _along(x, axis, 0, -2)),
        arithmetic.multiply(middle, _along(x, axis, 1, -1)),
        arithmetic.multiply(right, _along(x, axis, 2, 0)),
    ]
    inner = arithmetic.add(arithmetic.add(parts[0], parts[1]), parts[2])
    first, last = _ends(arithmetic.divide(diff(x, axis=axis), steps), axis, steps, edge_order)
    return shapes.concatenate(first, inner, last, axis=axis)


@replayed
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Derivatives by central differences.

    Args: f: array; varargs: the step, one for each axis, or the positions (1-d); axis: int or ints
    (None: all); edge_order: 1 or 2, the order of the differences at the ends.
    Returns: an array, or a list with one for each axis.
    Raises: ShapeError for axes shorter than 2 or incompatible spacings.

    >>> import rlx.numpy as jnp
    >>> jnp.gradient(jnp.array([1.0, 2.0, 4.0]))
    Array([1. , 1.5, 2. ], dtype=float32)
    """
    order = 1 if edge_order is None else edge_order
    if order not in (1, 2):
        raise ValueError(f"gradient got edge_order={edge_order}: it is 1 or 2.")
    x = inexact(f, "gradient")
    axes = canonical_axes(axis, x.ndim, "gradient")
    steps = list(varargs) if varargs else [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes):
        raise ShapeError(f"gradient got {len(steps)} spacings for {len(axes)} axes.", "Give one for each.")
    results = []
    for number, step in zip(axes, steps, strict=True):
        if x.shape[number] < order + 1:
            raise ShapeError(f"gradient got axis {number} of size {x.shape[number]}.", f"It needs {order + 1} or more.")
        if np.ndim(step) == 0:
            results.append(_spaced(x, number, step, order))
            continue
        places = as_array(np.asarray(step) if isinstance(step, (list, tuple)) else step)
        if places.shape != (x.shape[number],):
            raise ShapeError(f"gradient got places of shape {places.shape}.", "Pass one for each element of the axis.")
        results.append(_unevenly_spaced(x, number, places, order))
    return results[0] if len(results) == 1 else results


@replayed
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """The integral of sampled values by the trapezoidal rule.

    Args: y: array; x: positions of the samples; dx: their distances if x is None; axis.
    Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.trapezoid(jnp.array([1.0, 2.0, 3.0])))
    4.0
    """
    values, places = promote_inexact("trapezoid", y, dx if x is None else x)
    number = canonical_axis(axis, values.ndim, "trapezoid")
    if x is None:
        step = places
    elif places.ndim == 1:
        step = diff(places)
        step = shapes.reshape(step, shape=(step.shape[0], *(1,) * (values.ndim - number - 1)))
    else:
        step = diff(places, axis=axis)
    size = values.shape[number]
    if size == 0:
        return sum_(values, axis=number)
    after, before = shapes.slice_along(values, 1, size, number), shapes.slice_along(values, 0, size - 1, number)
    total = sum_(multiply(arithmetic.add(after, before), step), axis=number)
    return arithmetic.multiply(total, scalar_array(0.5, total.dtype, True))


@replayed
def unwrap(p: Any, discont: Any = None, axis: int = -1, period: float = 2 * math.pi) -> Array:
    """Phases without jumps of more than half a period.

    Args: p: array; discont: the smallest jump to remove (None: half a period); axis; period.
    Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.unwrap(jnp.array([0.0, 1.0, 7.0, 8.0]), period=6)
    Array([0., 1., 1., 2.], dtype=float32)
    """
    x = promote("unwrap", p, period)[0]
    number = canonical_axis(axis, x.ndim, "unwrap")
    if x.shape[number] == 0:
        return x
    jumps = diff(x, axis=number)
    whole = scalar_array(period, x.dtype, True)
    if dtype_kind(x.dtype) in "iu":
        half = scalar_array(int(period) // 2, x.dtype, True)
        ambiguous = period % 2 == 0
    else:
        half, ambiguous = scalar_array(period / 2, x.dtype, True), True
    folded = arithmetic.subtract(remainder(arithmetic.add(jumps, half), whole), half)
    if ambiguous:
        edge = comparison.bitwise_and(
            comparison.equal(folded, arithmetic.negative(half)),
            comparison.less(scalar_array(0, x.dtype, True), jumps),
        )
        folded = select(edge, half, folded)
    least = half if discont is None else convert_to(operand(discont), x.dtype)
    small = comparison.less(absolute(jumps), least)
    mend = select(small, scalar_array(0, x.dtype, True), arithmetic.subtract(folded, jumps))
    rest = arithmetic.add(
        shapes.slice_along(x, 1, x.shape[number], number), convert_to(cumsum(mend, axis=number), x.dtype)
    )
    return shapes.concatenate(shapes.slice_along(x, 0, 1, number), rest, axis=number)
