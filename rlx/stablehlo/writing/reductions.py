"""Reductions, cumulative reductions, sorting and windows as StableHLO."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from rlx.ir.program import Equation, Program
from rlx.ir.types import dtype_kind, is_complex, is_float, is_narrow
from rlx.stablehlo.text import Value, array_attribute
from rlx.stablehlo.writing.writer import BOOL, FLOAT32, FORMAT, INT64, Rule, Values, Writer, types_of
from rlx.standalone.spelling import entering, refused

__all__ = ["RULES", "limits_of"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


def _lowest(dtype: np.dtype) -> Any:
    return _end(dtype, -np.inf) if is_float(dtype) else False if dtype_kind(dtype) == "b" else limits_of(dtype)[0]


def _highest(dtype: np.dtype) -> Any:
    return _end(dtype, np.inf) if is_float(dtype) else True if dtype_kind(dtype) == "b" else limits_of(dtype)[1]


def _end(dtype: np.dtype, infinity: float) -> float:
    """The end of a float's range: an infinity, or the outermost number of a dtype without infinities."""
    if np.isinf(np.float64(infinity).astype(dtype)):
        return infinity
    info = ml_dtypes.finfo(dtype)
    return float(info.max if infinity > 0 else info.min)


def limits_of(dtype: np.dtype) -> tuple[int, int]:
    """The least and the largest integer of a dtype."""
    bits = int("".join(c for c in dtype.name if c.isdigit()))
    return (0, 2**bits - 1) if dtype_kind(dtype) == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _all_ones(dtype: np.dtype) -> Any:
    return True if dtype_kind(dtype) == "b" else limits_of(dtype)[1] if dtype_kind(dtype) == "u" else -1


_REDUCTIONS: dict[str, tuple[str, Callable[[np.dtype], Any]]] = {
    "reduce_sum": ("add", lambda d: 0),
    "reduce_prod": ("multiply", lambda d: 1),
    "reduce_max": ("maximum", _lowest),
    "reduce_min": ("minimum", _highest),
    "reduce_and": ("and", _all_ones),
    "reduce_or": ("or", lambda d: 0),
    "reduce_xor": ("xor", lambda d: 0),
}


@rule(*_REDUCTIONS)
def _reduce(w: Writer, e: Equation, xs: Values) -> Values:
    kind, start = _REDUCTIONS[e.primitive.name]
    return [w.reduce(kind, xs[0], e.params["axes"], start(xs[0].dtype))]


@rule("reduce")
def _general_reduce(w: Writer, e: Equation, xs: Values) -> Values:
    count = len(xs) // 2
    computation: Program = e.params["computation"]
    scalars = [((), x.dtype) for x in xs[:count]]
    return w.with_regions(
        "stablehlo.reduce",
        xs,
        types_of(e.outputs),
        [([*scalars, *scalars], lambda a: w.program(computation, a))],
        dimensions=array_attribute(e.params["axes"]),
    )


@rule("argmax", "argmin")
def _extreme(w: Writer, e: Equation, xs: Values) -> Values:
    x, axis, dtype = xs[0], e.params["axis"], e.params["index_dtype"]
    kind, start = ("maximum", _lowest) if e.primitive.name == "argmax" else ("minimum", _highest)
    best = w.reduce(kind, x, [axis], start(x.dtype))
    rest = [a for a in range(len(x.shape)) if a != axis]
    whole = w.broadcast(best, x.shape, rest)
    hit = w.compare("EQ", x, whole)
    if is_float(x.dtype):
        hit = w.op("stablehlo.or", [hit, w.compare("NE", x, x)], x.shape, BOOL)
    places = w.iota(x.shape, dtype, axis)
    shown = w.select(hit, places, w.constant(limits_of(np.dtype(dtype))[1], dtype))
    return [w.reduce("minimum", shown, [axis], limits_of(np.dtype(dtype))[1])]


_CUMULATED = {
    "cumsum": ("add", 0),
    "cumprod": ("multiply", 1),
    "cummax": ("maximum", None),
    "cummin": ("minimum", None),
}


@rule(*_CUMULATED, "cumlogsumexp")
def _cumulate(w: Writer, e: Equation, xs: Values) -> Values:
    """A parallel scan in steps of 1, 2, 4, ... elements."""
    x, axis = xs[0], e.params["axis"]
    name = e.primitive.name
    kind, neutral = _CUMULATED.get(name, ("", -np.inf))
    if neutral is None:
        neutral = _lowest(x.dtype) if name == "cummax" else _highest(x.dtype)
    size, distance = x.shape[axis], 1
    wide = w.convert(x, FLOAT32) if is_float(x.dtype) and is_narrow(x.dtype) else x
    while distance < size:
        ends = (-distance, distance) if e.params.get("reverse") else (distance, -distance)
        config = [(*ends, 0) if a == axis else (0, 0, 0) for a in range(len(x.shape))]
        moved = w.pad(wide, w.constant(neutral, wide.dtype), config)
        wide = _log_add(w, wide, moved) if not kind else w.binary(kind, wide, moved)
        distance *= 2
    return [w.convert(wide, x.dtype)]


def _log_add(w: Writer, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y))."""
    most = w.binary("maximum", x, y)
    gap = w.op("stablehlo.abs", [w.binary("subtract", x, y)], x.shape, x.dtype)
    less = w.op("stablehlo.exponential", [w.op("stablehlo.negate", [gap], x.shape, x.dtype)], x.shape, x.dtype)
    found = w.binary("add", most, w.op("stablehlo.log_plus_one", [less], x.shape, x.dtype))
    return w.select(w.compare("EQ", x, y), w.binary("add", most, w.constant(np.log(2.0), x.dtype)), found)


def _before(w: Writer, x: Value, y: Value) -> Value:
    """Whether x sorts before y: ascending, NaN last; complex numbers by real part, then imaginary part."""
    if is_complex(x.dtype):
        part = np.dtype(f"f{x.dtype.itemsize // 2}")
        (a, b), (c, d) = ([w.op(f"stablehlo.{n}", [v], v.shape, part) for n in ("real", "imag")] for v in (x, y))
        same = w.op("stablehlo.not", [w.op("stablehlo.or", [_before(w, a, c), _before(w, c, a)], (), BOOL)], (), BOOL)
        return w.op(
            "stablehlo.or", [_before(w, a, c), w.op("stablehlo.and", [same, _before(w, b, d)], (), BOOL)], (), BOOL
        )
    less = w.compare("LT", x, y)
    if not is_float(x.dtype):
        return less
    last = w.op("stablehlo.and", [w.compare("EQ", x, x), w.compare("NE", y, y)], x.shape, BOOL)
    return w.op("stablehlo.or", [less, last], x.shape, BOOL)


def _sorted(w: Writer, xs: Values, axis: int, keys: int, descending: bool = False) -> Values:
    def earlier(args: Values) -> Values:
        found = None
        for k in reversed(range(keys)):
            a, b = args[2 * k], args[2 * k + 1]
            a, b = (b, a) if descending else (a, b)
            first, later = _before(w, a, b), _before(w, b, a)
            if found is None:
                found = first
            else:
                same = w.op("stablehlo.not", [later], (), BOOL)
                tied = w.op("stablehlo.and", [same, found], (), BOOL)
                found = w.op("stablehlo.or", [first, tied], (), BOOL)
        return [found] if found is not None else []

    pairs = [((), x.dtype) for x in xs for _ in range(2)]
    return w.with_regions(
        "stablehlo.sort",
        xs,
        [(x.shape, x.dtype) for x in xs],
        [(pairs, earlier)],
        dimension=f"{axis} : i64",
        is_stable="true",
    )


@rule("sort")
def _sort(w: Writer, e: Equation, xs: Values) -> Values:
    return _sorted(w, xs, e.params["axis"], e.params["keys"])


@rule("top_k")
def _top(w: Writer, e: Equation, xs: Values) -> Values:
    x, axis = xs[0], e.params.get("axis", len(xs[0].shape) - 1) % len(xs[0].shape)
    places = w.iota(x.shape, e.outputs[1].type.dtype, axis)
    found = _sorted(w, [x, places], axis, 1, descending=True)
    limits = [e.params["k"] if a == axis else n for a, n in enumerate(x.shape)]
    return [w.slice(v, [0] * len(limits), limits) for v in found]


def _window_attributes(p: Any) -> dict[str, str]:
    padding = ", ".join(f"[{a}, {b}]" for a, b in p["padding"])
    return {
        "window_dimensions": array_attribute(p["window"]),
        "window_strides": array_attribute(p["strides"]),
        "base_dilations": array_attribute(p["base_dilation"]),
        "window_dilations": array_attribute(p["window_dilation"]),
        "padding": f"dense<[{padding}]> : tensor<{len(p['padding'])}x2xi64>",
    }


@rule("reduce_window")
def _reduce_window(w: Writer, e: Equation, xs: Values) -> Values:
    p, x = e.params, xs[0]
    kinds: dict[str, Any] = {"add": _REDUCTIONS["reduce_sum"], "mul": _REDUCTIONS["reduce_prod"]}
    kinds |= {"max": _REDUCTIONS["reduce_max"], "min": _REDUCTIONS["reduce_min"]}
    kind, start = kinds[p["op"]]
    if not x.shape:
        return xs
    wide = w.convert(x, FLOAT32) if is_float(x.dtype) and is_narrow(x.dtype) else x
    scalar = ((), wide.dtype)
    (found,) = w.with_regions(
        "stablehlo.reduce_window",
        [wide, w.constant(start(x.dtype), wide.dtype)],
        [(e.outputs[0].type.shape, wide.dtype)],
        [([scalar, scalar], lambda a: [w.op(f"stablehlo.{kind}", a, (), wide.dtype)])],
        **_window_attributes(p),
    )
    return [w.convert(found, x.dtype)]


@rule("select_and_scatter_add")
def _select_and_scatter(w: Writer, e: Equation, xs: Values) -> Values:
    """Pad the operand with values that no window selects; cut the padding of the result off."""
    p, (source, operand) = e.params, xs
    if {*p["base_dilation"], *p["window_dilation"]} - {1}:
        raise refused(e, FORMAT, "its windows are dilated")
    largest = p["select"] == ">="
    config = [(a, b, 0) for a, b in p["padding"]]
    edge = _lowest(operand.dtype) if largest else _highest(operand.dtype)
    padded = w.pad(operand, w.constant(edge, operand.dtype), config)
    chosen, added = ((), operand.dtype), ((), source.dtype)
    (found,) = w.with_regions(
        "stablehlo.select_and_scatter",
        [padded, source, w.constant(0, source.dtype)],
        [(padded.shape, source.dtype)],
        [
            ([chosen, chosen], lambda a: [w.compare("GE" if largest else "LE", *a)]),
            ([added, added], lambda a: [w.binary("add", *a)]),
        ],
        window_dimensions=array_attribute(p["window"]),
        window_strides=array_attribute(p["strides"]),
    )
    return [w.pad(found, w.constant(0, source.dtype), [(-a, -b, 0) for a, b, _ in config])]


@rule("select_and_gather_add")
def _select_and_gather(w: Writer, e: Equation, xs: Values) -> Values:
    """The tangent of each window's first extreme element: NaN is the most extreme, padding never is."""
    p, (tangents, operand) = e.params, xs
    direction = "GT" if p["select"] == ">=" else "LT"
    edge = _lowest(operand.dtype) if p["select"] == ">=" else _highest(operand.dtype)
    count = math.prod(operand.shape)
    starts = [w.constant(edge, operand.dtype), w.constant(0, tangents.dtype), w.constant(count, INT64)]
    arrays = [operand, tangents, w.reshape(w.iota((count,), INT64, 0), operand.shape)]
    numbers = [((), x.dtype) for x in arrays]

    def first(a: Values) -> Values:
        """Of two (value, tangent, position), the one that sorts first."""
        left, right = a[:3], a[3:]
        more = w.compare(direction, left[0], right[0])
        same = w.compare("EQ", left[0], right[0])
        if is_float(operand.dtype):
            one, other = (w.compare("NE", x[0], x[0]) for x in (left, right))
            more = w.binary("or", more, w.binary("and", one, w.op("stablehlo.not", [other], (), BOOL)))
            same = w.binary("or", same, w.binary("and", one, other))
        earlier = w.binary("and", same, w.compare("LT", left[2], right[2]))
        wins = w.binary("or", more, earlier)
        return [w.select(wins, x, y) for x, y in zip(left, right, strict=True)]

    shape = e.outputs[0].type.shape
    results = [(shape, x.dtype) for x in arrays]
    region = ([*numbers, *numbers], first)
    found = w.with_regions("stablehlo.reduce_window", [*arrays, *starts], results, [region], **_window_attributes(p))
    return [found[1]]


@rule("windows")
def _windows(w: Writer, e: Equation, xs: Values) -> Values:
    """Slices, one for each position in a window, concatenated."""
    p, out = e.params, e.outputs[0].type
    rank = len(p["window"])
    counts = out.shape[:rank]
    if 0 in out.shape:
        return [w.constant(np.zeros(out.shape), out.dtype)]
    parts = []
    for place in itertools.product(*map(range, p["window"])):
        starts = [o * d for o, d in zip(place, p["dilation"], strict=True)]
        limits = [s + (n - 1) * t + 1 for s, n, t in zip(starts, counts, p["strides"], strict=True)]
        parts.append(w.reshape(w.slice(xs[0], starts, limits, p["strides"]), (*counts, 1)))
    shape = (*counts, len(parts))
    joined = w.op("stablehlo.concatenate", parts, shape, out.dtype, dimension=f"{rank} : i64")
    return [w.reshape(joined, out.shape)]


@rule("overlap_add")
def _overlap_add(w: Writer, e: Equation, xs: Values) -> Values:
    """Spread each position of a window over the whole array, and sum."""
    p, out, x = e.params, e.outputs[0].type, xs[0]
    rank = len(p["shape"])
    counts, window = x.shape[:rank], x.shape[rank:]
    total = w.spread(w.constant(0, out.dtype), out.shape)
    if 0 in x.shape:
        return [total]
    for place in itertools.product(*map(range, window)):
        limits = (*counts, *(o + 1 for o in place))
        part = w.reshape(w.slice(x, (*[0] * rank, *place), limits), counts)
        config = []
        for size, n, o, d, s in zip(p["shape"], counts, place, p["dilation"], p["strides"], strict=True):
            config.append((o * d, size - o * d - (n - 1) * s - 1, s - 1))
        total = w.binary("add", total, w.pad(part, w.constant(0, out.dtype), config))
    return [total]
