"""Gathers, scatters and slices at computed positions, as ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Equation
from rlx.onnx.exporting.shapes import plain_pad, sliced
from rlx.onnx.exporting.writer import FORMAT, Names, Rule, Writer
from rlx.standalone.spelling import entering, refused

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


def _places(w: Writer, e: Equation, indices: str, numbers: Any, shape: Sequence[int], clamp: bool) -> tuple[str, str]:
    """For each element of a gather's result (or of a scatter's updates, of that shape) its position in the operand, and
    whether its window is inside. numbers: the gather's dimension numbers."""
    operand, given = e.inputs[0].type.shape, e.inputs[1].type.shape
    offset = list(numbers.offset_dims)
    batch = [a for a in range(len(shape)) if a not in offset]
    inner = [a for a in range(len(operand)) if a not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)]
    sizes = [1] * len(operand)
    for axis, at in zip(inner, offset, strict=True):
        sizes[axis] = shape[at]
    wide = w.cast(indices, np.int64)
    columns, inside = [], ""
    for axis in range(len(operand)):
        parts = []
        if axis in numbers.start_index_map:
            k = numbers.start_index_map.index(axis)
            last = len(given) - 1
            start = w.node("Gather", wide, w.constant(k, np.int64), axis=last)
            placed = [given[batch.index(a)] if a in batch else 1 for a in range(len(shape))]
            start = w.node("Reshape", start, w.integers(placed), allowzero=1)
            zero, most = w.constant(0, np.int64), w.constant(operand[axis] - sizes[axis], np.int64)
            fits = w.node("And", w.node("GreaterOrEqual", start, zero), w.node("LessOrEqual", start, most))
            inside = fits if not inside else w.node("And", inside, fits)
            parts.append(w.node("Min", w.node("Max", start, zero), most) if clamp else start)
        if axis in numbers.operand_batching_dims:
            where = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(axis)]
            parts.append(w.line(operand[axis], batch[where], len(shape)))
        if axis in inner:
            parts.append(w.line(sizes[axis], offset[inner.index(axis)], len(shape)))
        total = parts[0] if parts else w.constant(np.zeros([1] * len(shape), np.int64))
        for part in parts[1:]:
            total = w.node("Add", total, part)
        columns.append(w.node("Unsqueeze", w.node("Expand", total, w.integers(shape)), w.integers([len(shape)])))
    places = w.node("Concat", *columns, axis=len(shape)) if len(columns) > 1 else columns[0]
    return places, inside or w.constant(True)


@rule("gather")
def _gather(w: Writer, e: Equation, xs: Names) -> Names:
    numbers, mode, out = e.params["dimension_numbers"], e.params["mode"], e.outputs[0].type
    operand = e.inputs[0].type
    if not operand.shape:
        return [w.node("Expand", xs[0], w.integers(out.shape))]
    places, inside = _places(w, e, xs[1], numbers, out.shape, True)
    found = w.node("GatherND", xs[0], places)
    if mode != "fill":
        return [found]
    fill = e.params["fill_value"]
    if fill is None:
        low = np.nan if out.dtype.kind == "f" else True if out.dtype == bool else None
        fill = (
            low if low is not None else (np.iinfo(out.dtype).min if out.dtype.kind == "i" else np.iinfo(out.dtype).max)
        )
    return [w.node("Where", inside, found, w.constant(fill, out.dtype))]


_SCATTERS = {"scatter": "none", "scatter_add": "add", "scatter_mul": "mul", "scatter_max": "max", "scatter_min": "min"}


@rule(*_SCATTERS)
def _scatter(w: Writer, e: Equation, xs: Names) -> Names:
    """Updates outside the operand go to an extra row, which is cut off."""
    numbers = e.params["dimension_numbers"].gather()
    operand, updates = e.inputs[0].type, e.inputs[2].type
    if not operand.shape:
        raise refused(e, FORMAT, "its operand has no axes")
    clamp = e.params["mode"] == "clip"
    places, inside = _places(w, e, xs[1], numbers, updates.shape, clamp)
    target = xs[0]
    rank = len(operand.shape)
    drops = e.params["mode"] not in ("clip", "promise_in_bounds")
    if drops:
        target = plain_pad(w, target, [0] * rank + [1] + [0] * (rank - 1), w.constant(0, operand.dtype), operand.dtype)
        away = w.constant(np.array([operand.shape[0]] + [0] * (rank - 1), np.int64))
        shown = w.node(
            "Unsqueeze", w.node("Expand", inside, w.integers(updates.shape)), w.integers([len(updates.shape)])
        )
        places = w.node("Where", shown, places, away)
    reduction = _SCATTERS[e.primitive.name]
    found = w.node("ScatterND", target, places, xs[2], reduction=reduction)
    return [sliced(w, found, [0] * rank, operand.shape, [1] * rank) if drops else found]


@rule("dynamic_slice")
def _dynamic_slice(w: Writer, e: Equation, xs: Names) -> Names:
    starts, ends = _bounds(w, e, xs[1:], e.params["sizes"])
    return [w.node("Slice", xs[0], starts, ends)] if xs[1:] else xs[:1]


def _bounds(w: Writer, e: Equation, starts: Names, sizes: Sequence[int]) -> tuple[str, str]:
    """The first and last positions of a slice, clamped to the operand."""
    columns = [w.node("Reshape", w.cast(s, np.int64), w.integers([1])) for s in starts]
    if not columns:
        return "", ""
    first = w.node("Concat", *columns, axis=0) if len(columns) > 1 else columns[0]
    most = w.integers([n - k for n, k in zip(e.inputs[0].type.shape, sizes, strict=True)])
    inside = w.node("Min", w.node("Max", first, w.integers([0])), most)
    return inside, w.node("Add", inside, w.integers(sizes))


@rule("dynamic_update_slice")
def _dynamic_update(w: Writer, e: Equation, xs: Names) -> Names:
    sizes = e.inputs[1].type.shape
    if not sizes:
        return [xs[1]]
    first, _ = _bounds(w, e, xs[2:], sizes)
    shape, rank = w.integers(sizes), len(sizes)
    lines = [w.node("Expand", w.line(n, a, rank), shape) for a, n in enumerate(sizes)]
    columns = [w.node("Unsqueeze", line, w.integers([rank])) for line in lines]
    grid = w.node("Concat", *columns, axis=rank)
    return [w.node("ScatterND", xs[0], w.node("Add", grid, first), xs[1])]
