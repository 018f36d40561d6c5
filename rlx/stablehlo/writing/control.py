"""Loops and branches as StableHLO."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.ir.program import Equation, Program
from rlx.stablehlo.text import Value, array_attribute
from rlx.stablehlo.writing.writer import INT32, INT64, Rule, Values, Writer, shape_of, types_of
from rlx.standalone.spelling import entering

__all__ = ["RULES"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


@rule("while_loop")
def _while(w: Writer, e: Equation, xs: Values) -> Values:
    p = e.params
    c, b = p["condition_constants"], p["body_constants"]
    types = [(x.shape, x.dtype) for x in xs]

    def condition(args: Values) -> Values:
        return w.program(p["condition"], [*args[:c], *args[c + b :]])

    def body(args: Values) -> Values:
        return [*args[: c + b], *w.program(p["body"], args[c:])]

    return w.with_regions("stablehlo.while", xs, types, [(types, condition), (types, body)])[c + b :]


@rule("scan")
def _scan(w: Writer, e: Equation, xs: Values) -> Values:
    """A loop with a counter; stacked results are written one by one."""
    p = e.params
    n, k, length = p["constants"], p["carries"], p["length"]
    stacks = e.outputs[k:]
    if not length:
        empty = [w.constant(np.zeros(shape_of(v.type)[0]), shape_of(v.type)[1]) for v in stacks]
        return [*xs[n : n + k], *empty]
    start = [w.spread(w.constant(0, d), s) for s, d in types_of(stacks)]
    state = [w.constant(0, INT64), *xs, *start]
    types = [(v.shape, v.dtype) for v in state]
    fixed = 1 + n

    def condition(args: Values) -> Values:
        return [w.compare("LT", args[0], w.constant(length, INT64))]

    def body(args: Values) -> Values:
        i = args[0]
        at = w.binary("subtract", w.constant(length - 1, INT64), i) if p["reverse"] else i
        scanned = args[fixed + k : 1 + len(xs)]
        found = w.program(p["body"], [*args[1 : fixed + k], *(_row(w, x, at) for x in scanned)])
        written = [_put(w, s, y, at) for s, y in zip(args[1 + len(xs) :], found[k:], strict=True)]
        return [w.binary("add", i, w.constant(1, INT64)), *args[1:fixed], *found[:k], *scanned, *written]

    found = w.with_regions("stablehlo.while", state, types, [(types, condition), (types, body)])
    return [*found[fixed : fixed + k], *found[1 + len(xs) :]]


def _row(w: Writer, x: Value, at: Value) -> Value:
    zeros = [w.constant(0, INT64)] * (len(x.shape) - 1)
    shape = (1, *x.shape[1:])
    part = w.op("stablehlo.dynamic_slice", [x, at, *zeros], shape, x.dtype, slice_sizes=array_attribute(shape))
    return w.reshape(part, x.shape[1:])


def _put(w: Writer, x: Value, row: Value, at: Value) -> Value:
    zeros = [w.constant(0, INT64)] * (len(x.shape) - 1)
    part = w.reshape(row, (1, *row.shape))
    return w.op("stablehlo.dynamic_update_slice", [x, part, at, *zeros], x.shape, x.dtype)


@rule("cond")
def _cond(w: Writer, e: Equation, xs: Values) -> Values:
    branches: Sequence[Program] = e.params["branches"]
    index = w.convert(xs[0], INT32)
    index = w.op("stablehlo.clamp", [w.constant(0, INT32), index, w.constant(len(branches) - 1, INT32)], (), INT32)
    bodies = [([], lambda _, b=b: w.program(b, xs[1:])) for b in branches]
    return w.with_regions("stablehlo.case", [index], types_of(e.outputs), bodies)
