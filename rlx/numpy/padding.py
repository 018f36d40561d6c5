"""pad: an array with values around it, in all of NumPy's modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array import Array, is_array_or_numpy
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.types import is_integer
from rlx.numpy.manipulation import flip, moveaxis
from rlx.numpy.promotion import broadcast_array, convert_to, operand
from rlx.numpy.quantiles import median
from rlx.numpy.ranges import linspace
from rlx.numpy.reductions import max as max_
from rlx.numpy.reductions import mean
from rlx.numpy.reductions import min as min_
from rlx.numpy.rounding import round as round_
from rlx.ops import arithmetic
from rlx.ops import shape as shapes
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["pad"]

_STATISTICS: dict[str, Callable[..., Any]] = {"maximum": max_, "minimum": min_, "mean": mean, "median": median}


def _pairs(value: Any, ndim: int, name: str) -> list[tuple[Any, Any]]:
    """A width or value argument as (before, after) for each axis."""
    if is_array_or_numpy(value) and np.ndim(value) == 0:
        return [(value, value)] * ndim
    if not isinstance(value, (list, tuple, np.ndarray)):
        return [(value, value)] * ndim
    items = list(value)
    if items and all(np.ndim(i) == 0 for i in items):
        if len(items) == 1:
            return [(items[0], items[0])] * ndim
        if len(items) == 2:
            return [(items[0], items[1])] * ndim
    rows = [tuple(i) if np.ndim(i) else (i,) for i in items]
    rows = [r * 2 if len(r) == 1 else r for r in rows]
    rows = rows * ndim if len(rows) == 1 else rows
    if len(rows) != ndim or any(len(r) != 2 for r in rows):
        raise ShapeError(
            f"pad got {name}={value!r} for an array of {ndim} axes.", "Give (before, after) for each axis."
        )
    return rows


@replayed
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Array:
    """An array with values around it.

    Args: array; pad_width: int, (before, after), or one pair for each axis (or a dict of axes);
    mode: "constant" (constant_values=), "edge", "linear_ramp" (end_values=), "maximum", "mean",
    "median", "minimum" (stat_length=), "reflect", "symmetric" (reflect_type=), "wrap", "empty", or
    a function as NumPy takes it.
    Returns: an array. Raises: ShapeError for invalid widths; UnsupportedError for another
    mode; ValueError for an option that the mode does not have.

    >>> import rlx.numpy as jnp
    >>> jnp.pad(jnp.array([1, 2]), (1, 2))
    Array([0, 1, 2, 0, 0], dtype=int32)
    """
    x = as_array(operand(array, "pad"))
    if isinstance(pad_width, dict):
        given = {axis % x.ndim: w for axis, w in pad_width.items()}
        pad_width = [given.get(i, (0, 0)) if np.ndim(given.get(i, (0, 0))) else (given[i],) * 2 for i in range(x.ndim)]
    widths = [(int(a), int(b)) for a, b in _pairs(pad_width, x.ndim, "pad_width")]
    if any(n < 0 for pair in widths for n in pair):
        raise ShapeError(f"pad got negative widths {widths}.", "Use a slice to cut elements off.")
    if callable(mode):
        return _by_function(x, widths, mode, kwargs)
    allowed = _OPTIONS.get(mode)
    if allowed is None:
        raise UnsupportedError(f"pad has no mode {mode!r}.", f"Use one of {', '.join(_OPTIONS)}, or a function.")
    if set(kwargs) - set(allowed):
        raise ValueError(f"pad in mode {mode!r} takes no {', '.join(set(kwargs) - set(allowed))}.")
    if mode in ("constant", "empty"):
        return _constant(x, widths, kwargs.get("constant_values", 0))
    values = {name: _pairs(v, x.ndim, name) for name, v in kwargs.items() if name != "reflect_type"}
    for axis, (before, after) in enumerate(widths):
        if before == after == 0:
            continue
        x = _along(x, axis, before, after, mode, values, kwargs.get("reflect_type", "even"))
    return x


_OPTIONS: dict[str, tuple[str, ...]] = {
    "constant": ("constant_values",),
    "empty": (),
    "edge": (),
    "wrap": (),
    "linear_ramp": ("end_values",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    **{name: ("stat_length",) for name in _STATISTICS},
}


def _constant(x: Any, widths: list[tuple[int, int]], values: Any) -> Any:
    if np.ndim(values) == 0:
        value = convert_to(operand(values, "pad"), x.dtype, x.weak_type)
        config = tuple((a, b, 0) for a, b in widths)
        return shapes.pad(x, value, config=config) if any(a or b for a, b in widths) else x
    for axis, ((before, after), pair) in enumerate(zip(widths, _pairs(values, x.ndim, "constant_values"), strict=True)):
        for width, value, front in ((before, pair[0], True), (after, pair[1], False)):
            config = tuple(
                ((width, 0, 0) if front else (0, width, 0)) if i == axis else (0, 0, 0) for i in range(x.ndim)
            )
            x = shapes.pad(x, convert_to(operand(value, "pad"), x.dtype, x.weak_type), config=config) if width else x
    return x


def _along(x: Any, axis: int, before: int, after: int, mode: str, values: dict[str, Any], reflect_type: str) -> Any:
    size = x.shape[axis]
    if size == 0:
        raise ShapeError(f"pad in mode {mode!r} got an axis of size 0.", 'Use mode="constant".')
    if mode == "edge":
        front, back = [_spread(x, place, axis, n) for place, n in ((0, before), (size - 1, after))]
    elif mode == "linear_ramp":
        ends = values.get("end_values", [(0, 0)] * x.ndim)[axis]
        front, back = _ramps(x, axis, (before, after), ends)
    elif mode in _STATISTICS:
        lengths = values.get("stat_length", [(None, None)] * x.ndim)[axis]
        front, back = _statistics(x, axis, (before, after), mode, lengths)
    elif mode == "wrap":
        front, back = _wrapped(x, axis, before, after)
    else:
        return _reflected(x, axis, before, after, mode, reflect_type)
    return shapes.concatenate(*[part for part in (front, x, back) if part.shape[axis]], axis=axis)


def _spread(x: Any, place: int, axis: int, count: int) -> Any:
    """One slice repeated."""
    shape = tuple(count if i == axis else n for i, n in enumerate(x.shape))
    return broadcast_array(shapes.slice_along(x, place, place + 1, axis), shape)


def _ramps(x: Any, axis: int, widths: tuple[int, int], ends: tuple[Any, Any]) -> list[Any]:
    result = []
    for width, end, place, front in (
        (widths[0], ends[0], 0, True),
        (widths[1], ends[1], x.shape[axis] - 1, False),
    ):
        edge = shapes.squeeze(shapes.slice_along(x, place, place + 1, axis), (axis,))
        ramp = linspace(end, edge, width, endpoint=False, dtype=x.dtype, axis=axis)
        result.append(ramp if front else flip(ramp, axis))
    return result


def _statistics(x: Any, axis: int, widths: tuple[int, int], mode: str, lengths: tuple[Any, Any]) -> list[Any]:
    size, result = x.shape[axis], []
    for width, length, front in ((widths[0], lengths[0], True), (widths[1], lengths[1], False)):
        count = size if length is None else min(int(length), size)
        if count < 1:
            raise ShapeError(f"pad got stat_length={length}.", "It must be 1 or more.")
        piece = shapes.slice_along(x, 0, count, axis) if front else shapes.slice_along(x, size - count, size, axis)
        value = _STATISTICS[mode](piece, axis=axis, keepdims=True)
        if is_integer(x.dtype) and not is_integer(value.dtype):
            value = round_(value)
        result.append(_spread(convert_to(value, x.dtype), 0, axis, width))
    return result


def _wrapped(x: Any, axis: int, before: int, after: int) -> tuple[Any, Any]:
    size = x.shape[axis]

    def repeated(copies: int) -> list[Any]:
        return [x] * copies

    whole, rest = divmod(before, size)
    front = [shapes.slice_along(x, size - rest, size, axis), *repeated(whole)]
    whole, rest = divmod(after, size)
    back = [*repeated(whole), shapes.slice_along(x, 0, rest, axis)]
    return shapes.concatenate(*front, axis=axis), shapes.concatenate(*back, axis=axis)


def _reflected(x: Any, axis: int, before: int, after: int, mode: str, reflect_type: str) -> Any:
    """Mirrored at the ends, as often as needed."""
    if reflect_type not in ("even", "odd"):
        raise ValueError(f"pad has no reflect_type {reflect_type!r}: use 'even' or 'odd'.")
    size = x.shape[axis]
    offset = 1 if mode == "reflect" and size > 1 else 0
    if mode == "reflect" and size == 1:
        return shapes.concatenate(_spread(x, 0, axis, before), x, _spread(x, 0, axis, after), axis=axis)
    front = _mirror(x, axis, before, offset, reflect_type, True)
    back = _mirror(x, axis, after, offset, reflect_type, False)
    return shapes.concatenate(*[part for part in (front, x, back) if part.shape[axis]], axis=axis)


def _mirror(x: Any, axis: int, width: int, offset: int, reflect_type: str, front: bool) -> Any:
    """The padding before or after x: mirror images that grow until there is enough."""
    grown, missing = x, width
    while missing > 0:
        own = grown.shape[axis]
        count = min(missing, own - offset)
        start = offset if front else own - offset - count
        image = flip(shapes.slice_along(grown, start, start + count, axis), axis)
        if reflect_type == "odd":
            edge = shapes.slice_along(grown, 0 if front else own - 1, 1 if front else own, axis)
            image = arithmetic.subtract(arithmetic.multiply(edge, np.asarray(2, x.dtype)), image)
        grown = shapes.concatenate(*((image, grown) if front else (grown, image)), axis=axis)
        missing -= count
    total = grown.shape[axis]
    return shapes.slice_along(grown, 0, width, axis) if front else shapes.slice_along(grown, total - width, total, axis)


def _by_function(x: Any, widths: list[tuple[int, int]], function: Callable[..., Any], kwargs: Any) -> Any:
    padded = _constant(x, widths, 0)
    for axis, width in enumerate(widths):
        moved = moveaxis(padded, axis, -1)
        lead = moved.shape[:-1]
        rows = shapes.reshape(moved, shape=(int(np.prod(lead)), moved.shape[-1]))
        done = []
        for i in range(rows.shape[0]):
            row = shapes.squeeze(shapes.slice_along(rows, i, i + 1, 0), (0,))
            changed = function(row, width, axis, kwargs)
            if changed is None:
                raise ValueError("The function given to pad must return the padded row: arrays are immutable.")
            done.append(shapes.reshape(changed, shape=(1, moved.shape[-1])))
        rows = shapes.concatenate(*done, axis=0) if done else rows
        padded = moveaxis(shapes.reshape(rows, shape=moved.shape), -1, axis)
    return padded
