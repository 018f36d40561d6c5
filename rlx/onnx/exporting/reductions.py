"""Reductions, cumulative reductions, sorting and windows as ONNX."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Equation
from rlx.ir.scalar import neutral
from rlx.ir.types import TensorType, is_float
from rlx.onnx.exporting.shapes import padded, sliced
from rlx.onnx.exporting.writer import FORMAT, WIDE, Names, Rule, Writer, has_operator, working_dtype
from rlx.ops.arithmetic import maximum, minimum, multiply
from rlx.ops.contract import cast
from rlx.ops.families import full_like, move_axis
from rlx.ops.scan import scan_over
from rlx.ops.transcendental import logaddexp
from rlx.standalone.spelling import entering, refused
from rlx.trace.primitive import type_of
from rlx.trace.tracing import trace_program

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name

PRODUCTS = (*WIDE, np.dtype(np.float32), np.dtype(np.float64))  # dtypes of CumProd
_LEAST = np.iinfo(np.int64).min
_REDUCTIONS = {
    "reduce_sum": "ReduceSum", "reduce_prod": "ReduceProd", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
    "reduce_and": "ReduceMin", "reduce_or": "ReduceMax", "reduce_xor": "ReduceSum",
}  # fmt: skip
_BITWISE = ("reduce_and", "reduce_or", "reduce_xor")


@rule(*_REDUCTIONS)
def _reduce(w: Writer, e: Equation, xs: Names) -> Names:
    dtype = e.inputs[0].type.dtype
    if not e.params["axes"]:
        return xs
    kind = _REDUCTIONS[e.primitive.name]
    if dtype.kind != "b" and e.primitive.name in _BITWISE:
        return [w.packed(_combined(w, w.unpacked(xs[0], dtype), e), dtype)]
    if e.primitive.name == "reduce_xor":
        return [w.cast(_combined(w, w.cast(xs[0], np.int64), e), dtype)]
    arithmetic = kind in ("ReduceSum", "ReduceProd")
    before, after = (Writer.widened, Writer.narrowed) if arithmetic else (_ordered, _disordered)
    return [after(w, w.reduction(kind, before(w, xs[0], dtype), e.params["axes"]), dtype)]


def _combined(w: Writer, bits: str, e: Equation) -> str:
    """Bits as int64, combined along axes that may be empty."""
    if e.primitive.name == "reduce_and":
        return w.reduction("ReduceProd", bits, e.params["axes"])
    total = w.reduction("ReduceSum", bits, e.params["axes"])
    if e.primitive.name == "reduce_xor":
        return w.node("Mod", total, w.constant(2, np.int64))
    return w.cast(w.cast(total, np.bool_), np.int64)


def _ordered(w: Writer, x: str, dtype: np.dtype) -> str:
    """Numbers in a dtype in which runtimes compare them; uint64 less 2 ** 63."""
    wide = w.widened(x, dtype)
    return w.node("Add", wide, w.constant(_LEAST, np.int64)) if dtype == np.uint64 else wide


def _disordered(w: Writer, x: str, dtype: np.dtype) -> str:
    """The inverse of `_ordered`."""
    return w.narrowed(w.node("Sub", x, w.constant(_LEAST, np.int64)) if dtype == np.uint64 else x, dtype)


@rule("argmax", "argmin")
def _extreme(w: Writer, e: Equation, xs: Names) -> Names:
    kind = "ArgMax" if e.primitive.name == "argmax" else "ArgMin"
    dtype = e.inputs[0].type.dtype
    axis, x = e.params["axis"], _ordered(w, xs[0], dtype)
    found = w.node(kind, x, axis=axis, keepdims=0)
    if is_float(dtype):  # the place of the first NaN, if there is one; ONNX does not say what NaN does
        missing = w.cast(w.node("IsNaN", x), np.int32)
        first = w.node("ArgMax", missing, axis=axis, keepdims=0)
        any_missing = w.cast(w.reduction("ReduceMax", missing, [axis]), np.bool_)
        found = w.node("Where", any_missing, first, found)
    return [w.cast(found, e.params["index_dtype"])]


@rule("cumsum")
def _cumsum(w: Writer, e: Equation, xs: Names) -> Names:
    dtype = e.inputs[0].type.dtype
    x, axis = w.widened(xs[0], dtype), w.constant(e.params["axis"], np.int64)
    return [w.narrowed(w.node("CumSum", x, axis, reverse=int(e.params["reverse"])), dtype)]


_RUNNING: dict[str, tuple[Any, str]] = {
    "cumprod": (multiply, "mul"), "cummax": (maximum, "max"), "cummin": (minimum, "min"),
    "cumlogsumexp": (logaddexp, "max"),
}  # fmt: skip


@rule(*_RUNNING)
def _running(w: Writer, e: Equation, xs: Names) -> Names:
    """A scan over slices; CumProd in the operator sets that have it."""
    type, axis = e.inputs[0].type, e.params["axis"]
    if e.primitive.name == "cumprod" and type.dtype in PRODUCTS and has_operator("CumProd", w.opset):
        place = w.constant(axis, np.int64)
        return [w.node("CumProd", xs[0], place, reverse=int(e.params["reverse"]))]
    combine, reducer = _RUNNING[e.primitive.name]

    def run(x: Any) -> list[Any]:
        wide = cast(x, np.dtype(np.float32)) if is_float(type.dtype) and type.dtype.itemsize < 4 else x
        slices = move_axis(wide, axis, 0)
        length, *rest = type_of(slices).shape
        start = full_like(TensorType(tuple(rest), type_of(wide).dtype), neutral(reducer, type_of(wide).dtype))
        step, backwards = lambda before, part: [combine(before, part)] * 2, e.params["reverse"]
        _, (found,) = scan_over(step, [start], [slices], length, backwards)
        return [cast(move_axis(found, 0, axis), type.dtype)]

    return w.program(trace_program(run, [type.strong()])[0], xs)


@rule("sort")
def _sort(w: Writer, e: Equation, xs: Names) -> Names:
    axis, keys = e.params["axis"], e.params["keys"]
    size = e.inputs[0].type.shape[axis]
    if keys != 1:
        raise refused(e, FORMAT, "it sorts by several keys")
    dtype = e.inputs[0].type.dtype
    key = _ordered(w, xs[0], dtype)
    _, order = w.several("TopK", [key, w.integers([size])], 2, axis=axis, largest=0, sorted=1)
    return [w.node("GatherElements", x, order, axis=axis) for x in xs]


@rule("top_k")
def _top(w: Writer, e: Equation, xs: Names) -> Names:
    axis = e.params.get("axis", len(e.inputs[0].type.shape) - 1)
    dtype = e.inputs[0].type.dtype
    key = _ordered(w, xs[0], dtype)
    _, order = w.several("TopK", [key, w.integers([e.params["k"]])], 2, axis=axis, largest=1, sorted=1)
    return [w.node("GatherElements", xs[0], order, axis=axis), w.cast(order, e.outputs[1].type.dtype)]


@rule("reduce_window")
def _reduce_window(w: Writer, e: Equation, xs: Names) -> Names:
    """Combine slices, one for each position in the window."""
    p, kind = e.params, e.inputs[0].type
    combine = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[p["op"]]
    start = {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}[p["op"]]
    if kind.dtype.kind != "f" and p["op"] in ("max", "min"):
        start = np.iinfo(kind.dtype).min if p["op"] == "max" else np.iinfo(kind.dtype).max
    config = [(low, high, d - 1) for (low, high), d in zip(p["padding"], p["base_dilation"], strict=True)]
    x = padded(w, xs[0], w.constant(start, kind.dtype), config, kind.shape, kind.dtype)
    counts = e.outputs[0].type.shape
    parts = []
    for place in itertools.product(*map(range, p["window"])):
        starts = [o * d for o, d in zip(place, p["window_dilation"], strict=True)]
        ends = [s + (n - 1) * t + 1 for s, n, t in zip(starts, counts, p["strides"], strict=True)]
        parts.append(sliced(w, x, starts, ends, p["strides"]))
    found = parts[0]
    for part in parts[1:]:
        found = w.node(combine, found, part)
    return [found]


@rule("windows")
def _windows(w: Writer, e: Equation, xs: Names) -> Names:
    """Gather the windows along each axis, then move the positions to the front."""
    p, found = e.params, xs[0]
    positions, rank = e.outputs[0].type.shape, len(e.params["window"])
    for axis in reversed(range(rank)):
        sizes = positions[axis], p["window"][axis]
        found = w.node("Gather", found, _inside_windows(w, p, axis, sizes, (0, 1), 2), axis=axis)
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
    return [w.node("Transpose", found, perm=order)]


def _inside_windows(w: Writer, p: Any, axis: int, sizes: Sequence[int], axes: tuple[int, int], rank: int) -> str:
    """The places along an axis that windows read, by position and by offset, which count along `axes`."""
    steps = p["strides"][axis], p["dilation"][axis]
    first, second = (
        w.node("Mul", w.line(size, at, rank), w.constant(step, np.int64))
        for size, at, step in zip(sizes, axes, steps, strict=True)
    )
    return w.node("Add", first, second)


@rule("overlap_add")
def _overlap_add(w: Writer, e: Equation, xs: Names) -> Names:
    shape, type = e.params["shape"], e.inputs[0].type
    rank, dtype = len(shape), type.dtype
    columns = []
    for axis in range(rank):
        sizes = type.shape[axis], type.shape[rank + axis]
        places = _inside_windows(w, e.params, axis, sizes, (axis, rank + axis), 2 * rank)
        columns.append(w.node("Unsqueeze", w.node("Expand", places, w.integers(type.shape)), w.integers([2 * rank])))
    empty = w.node("Expand", w.constant(0, working_dtype(dtype)), w.integers(shape))
    places = w.node("Concat", *columns, axis=2 * rank)
    return [w.narrowed(w.node("ScatterND", empty, places, w.widened(xs[0], dtype), reduction="add"), dtype)]
