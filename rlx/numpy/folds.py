"""Left folds of a binary function along the first axis: ufunc methods that have no faster implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.types import TensorType
from rlx.numpy.index_dtypes import index_dtype
from rlx.numpy.promotion import broadcast_array, convert_to, scalar_array
from rlx.ops import arithmetic, comparison
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.ops.scan import scan
from rlx.trace.flat import as_array
from rlx.trace.tracing import trace_program

__all__ = ["accumulated", "folded", "folded_between", "result_dtype", "updated"]

Function = Callable[..., Any]


def result_dtype(function: Function, *dtypes: np.dtype) -> np.dtype:
    """The dtype that a function of scalars returns."""
    program, _ = trace_program(lambda *x: [as_array(function(*x))], [TensorType((), d) for d in dtypes], name="scalars")
    return program.output_types[0].dtype


def _scanned(step: Callable[..., list[Any]], carry: Any, slices: list[Any]) -> tuple[Any, ...]:
    """The carry and stacked results of scan along the leading axis of arrays, for a single carry."""
    types = [TensorType(carry.shape, carry.dtype), *[TensorType(x.shape[1:], x.dtype) for x in slices]]
    body, captured = trace_program(step, types, name="fold")
    return scan(
        *captured,
        carry,
        *slices,
        body=body,
        constants=len(captured),
        carries=1,
        length=slices[0].shape[0],
        reverse=False,
    )


def _combined(function: Function, carry: Any, x: Any) -> Any:
    return convert_to(broadcast_array(as_array(function(carry, x)), carry.shape), carry.dtype)


def folded(function: Function, x: Any, initial: Any, where: Any) -> Any:
    """function(...function(function(initial, x[0]), x[1])..., x[-1]); without `initial`, from x[0] on."""
    if initial is None:
        carry, x = _first(x), shapes.slice_along(x, 1, x.shape[0], 0)
    else:
        carry = broadcast_array(convert_to(initial, x.dtype), x.shape[1:])
    if x.shape[0] == 0:
        return carry

    def step(carry: Any, element: Any, *mask: Any) -> list[Any]:
        value = _combined(function, carry, element)
        return [select(mask[0], value, carry) if mask else value]

    return _scanned(step, carry, [x] if where is None else [x, where])[0]


def _first(x: Any) -> Any:
    return shapes.squeeze(shapes.slice_along(x, 0, 1, 0), (0,))


def accumulated(function: Function, x: Any) -> Any:
    """All intermediate values of a fold."""
    if x.shape[0] < 2:
        return x

    def step(carry: Any, element: Any) -> list[Any]:
        value = _combined(function, carry, element)
        return [value, value]

    rest = _scanned(step, _first(x), [shapes.slice_along(x, 1, x.shape[0], 0)])[1]
    return shapes.concatenate(shapes.slice_along(x, 0, 1, 0), rest, axis=0)


def folded_between(function: Function, x: Any, starts: Any, ends: Any, firsts: Any) -> Any:
    """For each pair of bounds the fold of x[start:end]; x[start], given as `firsts`, if that is empty."""
    aligned = (starts.shape[0], *(1,) * (x.ndim - 1))
    starts, ends = [shapes.reshape(v, shape=aligned) for v in (starts, ends)]
    position = shapes.iota(type=TensorType((x.shape[0],), index_dtype(x.shape[0])), axis=0)

    def step(carry: Any, element: Any, here: Any) -> list[Any]:
        value = _combined(function, carry, broadcast_array(element, carry.shape))
        inside = comparison.bitwise_and(comparison.less(starts, here), comparison.less(here, ends))
        return [select(broadcast_array(inside, carry.shape), value, carry)]

    return _scanned(step, firsts, [x, position])[0]


def updated(function: Function, x: Any, positions: Any, operands: list[Any]) -> Any:
    """A flat array with x[p] = function(x[p], operand) done for one position after the other.

    Positions of x.size and beyond are left out.
    """
    if positions.shape[0] == 0:
        return x

    def step(carry: Any, position: Any, *operand: Any) -> list[Any]:
        before = carry.at[position].get(mode="clip")
        value = convert_to(as_array(function(before, *operand)), carry.dtype)
        kept = comparison.less(position, scalar_array(x.shape[0], position.dtype, True))
        index = arithmetic.minimum(position, scalar_array(max(x.shape[0] - 1, 0), position.dtype, True))
        return [carry.at[index].set(select(kept, value, before))]

    return _scanned(step, x, [positions, *operands])[0]
