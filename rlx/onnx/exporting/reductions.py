"""Reductions, cumulative reductions, sorting and windows as ONNX."""

from __future__ import annotations

import itertools

import numpy as np

from rlx.ir.program import Equation
from rlx.onnx.exporting.shapes import padded, sliced
from rlx.onnx.exporting.writer import FORMAT, WIDE, Names, Rule, Writer
from rlx.standalone.spelling import entering, refused

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name

_REDUCTIONS = {
    "reduce_sum": "ReduceSum", "reduce_prod": "ReduceProd", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
    "reduce_and": "ReduceMin", "reduce_or": "ReduceMax",
}  # fmt: skip


@rule(*_REDUCTIONS)
def _reduce(w: Writer, e: Equation, xs: Names) -> Names:
    dtype = e.inputs[0].type.dtype
    if e.primitive.name in ("reduce_and", "reduce_or") and dtype.kind != "b":
        raise refused(e, FORMAT, "it combines bits")
    if not e.params["axes"]:
        return xs
    narrow = dtype.kind in "iub" and dtype not in WIDE
    x = w.cast(xs[0], np.int64) if narrow else xs[0]
    found = w.node(_REDUCTIONS[e.primitive.name], x, w.integers(e.params["axes"]), keepdims=0)
    return [w.cast(found, dtype) if narrow else found]


@rule("argmax", "argmin")
def _extreme(w: Writer, e: Equation, xs: Names) -> Names:
    kind = "ArgMax" if e.primitive.name == "argmax" else "ArgMin"
    dtype = e.inputs[0].type.dtype
    x = w.cast(xs[0], np.int32) if dtype.kind in "iub" and dtype not in WIDE else xs[0]
    return [w.cast(w.node(kind, x, axis=e.params["axis"], keepdims=0), e.params["index_dtype"])]


@rule("cumsum")
def _cumsum(w: Writer, e: Equation, xs: Names) -> Names:
    dtype = e.inputs[0].type.dtype
    narrow = dtype.kind in "iub" and dtype not in WIDE
    x = w.cast(xs[0], np.int64) if narrow else xs[0]
    found = w.node("CumSum", x, w.constant(e.params["axis"], np.int64), reverse=int(e.params["reverse"]))
    return [w.cast(found, dtype) if narrow else found]


@rule("sort")
def _sort(w: Writer, e: Equation, xs: Names) -> Names:
    axis, keys = e.params["axis"], e.params["keys"]
    size = e.inputs[0].type.shape[axis]
    if keys != 1:
        raise refused(e, FORMAT, "it sorts by several keys")
    dtype = e.inputs[0].type.dtype
    key = w.cast(xs[0], np.int64) if dtype.kind in "iub" and dtype not in WIDE else xs[0]
    _, order = w.several("TopK", [key, w.integers([size])], 2, axis=axis, largest=0, sorted=1)
    return [w.node("GatherElements", x, order, axis=axis) for x in xs]


@rule("top_k")
def _top(w: Writer, e: Equation, xs: Names) -> Names:
    axis = e.params.get("axis", len(e.inputs[0].type.shape) - 1)
    values, order = w.several("TopK", [xs[0], w.integers([e.params["k"]])], 2, axis=axis, largest=1, sorted=1)
    return [values, w.cast(order, e.outputs[1].type.dtype)]


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
