"""Operations that move elements, as ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.program import Equation
from rlx.onnx.exporting.elementwise import log1p
from rlx.onnx.exporting.writer import Names, Rule, Writer
from rlx.ops.portable import CENTRE, TAIL
from rlx.standalone.spelling import entering

__all__ = ["RULES", "padded", "plain_pad", "sliced"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)  # registers the writer of primitives by name


@rule("portable_log", "portable_log1p", "portable_erf_inv")
def _portable(w: Writer, e: Equation, xs: Names) -> Names:
    """Equal up to rounding; rlx itself computes the same bits everywhere."""
    dtype, (x,) = e.inputs[0].type.dtype, xs
    if e.primitive.name == "portable_log":
        return [w.node("Log", x)]
    if e.primitive.name == "portable_log1p":
        return [log1p(w, x, dtype)]

    def number(value: float) -> str:
        return w.constant(value, dtype)

    logarithm = w.node("Neg", log1p(w, w.node("Neg", w.node("Mul", x, x)), dtype))
    central = w.node("Less", logarithm, number(5))
    far = w.node("Sub", w.node("Sqrt", logarithm), number(3))
    shifted = w.node("Where", central, w.node("Sub", logarithm, number(2.5)), far)
    found = number(0)
    for centre, tail in zip(CENTRE, TAIL, strict=True):
        chosen = w.node("Where", central, number(centre), number(tail))
        found = w.node("Add", w.node("Mul", found, shifted), chosen)
    edge = w.node("Equal", w.node("Abs", x), number(1))
    return [w.node("Where", edge, w.node("Mul", x, number(np.inf)), w.node("Mul", found, x))]


@rule("stop_gradient", "copy", "checkpoint_name", "random_wrap", "random_unwrap")
def _same(w: Writer, e: Equation, xs: Names) -> Names:
    return xs


@rule("optimization_barrier")
def _barrier(w: Writer, e: Equation, xs: Names) -> Names:
    return xs


@rule("reshape")
def _reshape(w: Writer, e: Equation, xs: Names) -> Names:
    return [w.node("Reshape", xs[0], w.integers(e.params["shape"]), allowzero=1)]


@rule("transpose")
def _transpose(w: Writer, e: Equation, xs: Names) -> Names:
    return [w.node("Transpose", xs[0], perm=list(e.params["permutation"]))]


@rule("broadcast_in_dim")
def _broadcast(w: Writer, e: Equation, xs: Names) -> Names:
    shape, dims = e.params["shape"], e.params["dims"]
    sizes = dict(zip(dims, e.inputs[0].type.shape, strict=True))
    placed = w.node("Reshape", xs[0], w.integers([sizes.get(a, 1) for a in range(len(shape))]), allowzero=1)
    return [w.node("Expand", placed, w.integers(shape))]


@rule("iota")
def _iota(w: Writer, e: Equation, xs: Names) -> Names:
    kind, axis = e.params["type"], e.params["axis"]
    line = w.cast(w.line(kind.shape[axis], axis, len(kind.shape)), kind.dtype)
    return [w.node("Expand", line, w.integers(kind.shape))]


def sliced(w: Writer, x: str, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> str:
    """A part of an array."""
    axes = range(len(starts))
    return (
        w.node("Slice", x, w.integers(starts), w.integers(ends), w.integers(axes), w.integers(steps)) if starts else x
    )


@rule("slice")
def _slice(w: Writer, e: Equation, xs: Names) -> Names:
    p = e.params
    return [sliced(w, xs[0], p["starts"], p["limits"], p["strides"])]


@rule("reverse")
def _reverse(w: Writer, e: Equation, xs: Names) -> Names:
    axes = list(e.params["axes"])
    if not axes:
        return xs
    ends = w.integers([np.iinfo(np.int64).min] * len(axes))
    minus = w.integers([-1] * len(axes))
    return [w.node("Slice", xs[0], minus, ends, w.integers(axes), minus)]


@rule("concatenate")
def _concatenate(w: Writer, e: Equation, xs: Names) -> Names:
    return [w.node("Concat", *xs, axis=e.params["axis"])]


@rule("pad")
def _pad(w: Writer, e: Equation, xs: Names) -> Names:
    return [padded(w, xs[0], xs[1], e.params["config"], e.inputs[0].type.shape, e.inputs[0].type.dtype)]


def padded(w: Writer, x: str, value: str, config: Any, shape: Sequence[int], dtype: np.dtype) -> str:
    """Padding before, after and between elements; negative amounts cut."""
    sizes = list(shape)
    for axis, (_, _, between) in enumerate(config):
        if between and sizes[axis]:
            apart = w.node("Unsqueeze", x, w.integers([axis + 1]))
            amounts = [0] * (2 * len(sizes) + 2)
            amounts[len(sizes) + 1 + axis + 1] = between
            apart = plain_pad(w, apart, amounts, value, dtype)
            sizes[axis] *= between + 1
            x = w.node("Reshape", apart, w.integers(sizes))
            sizes[axis] -= between
            x = sliced(w, x, [0] * len(sizes), sizes, [1] * len(sizes))
    lows, highs = [low for low, _, _ in config], [high for _, high, _ in config]
    amounts = [max(n, 0) for n in (*lows, *highs)]
    if any(amounts):
        x = plain_pad(w, x, amounts, value, dtype)
    if min([*lows, *highs], default=0) < 0:
        grown = [n + max(a, 0) + max(b, 0) for n, a, b in zip(sizes, lows, highs, strict=True)]
        starts = [max(-a, 0) for a in lows]
        x = sliced(w, x, starts, [n + min(b, 0) for n, b in zip(grown, highs, strict=True)], [1] * len(sizes))
    return x


def plain_pad(w: Writer, x: str, amounts: Sequence[int], value: str, dtype: np.dtype) -> str:
    """Padding before and after."""
    if dtype.name in ("bool", "int16", "uint16"):
        wide = w.node("Pad", w.cast(x, np.int32), w.integers(amounts), w.cast(value, np.int32))
        return w.cast(wide, dtype)
    return w.node("Pad", x, w.integers(amounts), value)
