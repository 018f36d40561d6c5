"""The stages of operations that copy codes: tables, clamps and changes of shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlx.fpga.nests import Limit, nest_of
from rlx.fpga.sites import Loops, Site
from rlx.fpga.stages import Operand, Stage, union
from rlx.quant.integer_program import (
    IntegerClamp,
    IntegerConcatenate,
    IntegerPad,
    IntegerReshape,
    IntegerSlice,
    IntegerTable,
    IntegerTranspose,
)

__all__ = ["clamp", "concatenate", "pad", "part", "reshape", "table", "transpose"]


def _copy(site: Site, which: int = 0, pitch: Sequence[int] | None = None, start: int = 0, **fields: Any) -> Stage:
    """Codes read with a pitch for each axis of the result."""
    shape = fields.pop("shape", site.y.shape)
    loops: Loops = [(n, False, {"x": p}) for n, p in zip(shape, pitch or _pitches(shape), strict=True)]
    return site.stage("largest", nest_of(loops, {"x": site.x_at[which] + start}), **fields)


def _pitches(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def clamp(site: Site, op: IntegerClamp) -> list[Stage]:
    return [_copy(site, clamp=(op.low, op.high))]


def table(site: Site, op: IntegerTable) -> list[Stage]:
    return [_copy(site, table=op.table)]


def transpose(site: Site, op: IntegerTranspose) -> list[Stage]:
    pitches = _pitches(site.x[0].shape)
    return [_copy(site, pitch=[pitches[axis] for axis in op.permutation])]


def part(site: Site, op: IntegerSlice) -> list[Stage]:
    pitches = _pitches(site.x[0].shape)
    ranges = [
        range(*slice(*part).indices(n))
        for *part, n in zip(op.starts, op.stops, op.steps, site.x[0].shape, strict=True)
    ]
    start = sum(r.start * p for r, p in zip(ranges, pitches, strict=True))
    return [_copy(site, pitch=[r.step * p for r, p in zip(ranges, pitches, strict=True)], start=start)]


def pad(site: Site, op: IntegerPad) -> list[Stage]:
    x, pitches = site.x[0], _pitches(site.x[0].shape)
    before = [pads[0] for pads in op.padding]
    padded = [axis for axis, pads in enumerate(op.padding) if any(pads)]
    walks = {axis: f"axis{axis}" for axis in padded}
    loops: Loops = [
        (n, False, {"x": p, **({walks[axis]: 1} if axis in walks else {})})
        for axis, (n, p) in enumerate(zip(site.y.shape, pitches, strict=True))
    ]
    start = site.x_at[0] - sum(b * p for b, p in zip(before, pitches, strict=True))
    nest = nest_of(loops, {"x": start, **{walk: -before[axis] for axis, walk in walks.items()}})
    limits = tuple(Limit(walk, x.shape[axis]) for axis, walk in walks.items())
    return [
        site.stage(
            "largest", nest, limits=limits, operand=Operand(x.low, x.high, (), op.value),
            sums=union([(x.low, x.high), (op.value, op.value)]),
        )  # fmt: skip
    ]


def concatenate(site: Site, op: IntegerConcatenate) -> list[Stage]:
    axis = op.axis % len(site.y.shape)
    pitches, stages, done = _pitches(site.y.shape), [], 0
    for which, x in enumerate(site.x):
        writes: Loops = [(n, False, {"y": p}) for n, p in zip(x.shape, pitches, strict=True)]
        nest = nest_of(writes, {"y": site.y_at + done * pitches[axis]})
        part = _copy(site, which, shape=x.shape, writes=nest)
        stages.append(replace(part, name=f"{site.name}_{which}"))
        done += x.shape[axis]
    return stages


def reshape(site: Site, op: IntegerReshape) -> list[Stage]:
    return []
