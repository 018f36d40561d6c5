"""The stages of products with weights: convolutions and dense layers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.fpga.nests import Limit, nest_of
from rlx.fpga.sites import Loops, Site, limited, window_loops
from rlx.fpga.stages import Operand, Scaling, Stage, WeightWords, scaling_of, sum_bounds
from rlx.quant.integer_program import (
    IntegerConvolution,
    IntegerDense,
)

__all__ = ["convolution", "dense"]


def convolution(site: Site, op: IntegerConvolution) -> list[Stage]:
    return [_product(site, op, op.weights, site.x[0].shape, site.y.shape, (op.strides, op.dilation, op.padding))]


def dense(site: Site, op: IntegerDense) -> list[Stage]:
    rows, (outputs, inputs) = math.prod(site.y.shape[:-1]), op.weights.shape
    weights = op.weights.reshape(outputs, 1, 1, inputs)
    window = ((1, 1), (1, 1), ((0, 0), (0, 0)))
    return [_product(site, op, weights, (1, rows, inputs), (1, rows, outputs), window)]


def _product(site: Site, op: Any, weights: np.ndarray, x: tuple, y: tuple, window: tuple) -> Stage:
    """A convolution of x [h, w, c] to y with weights [o, kh, kw, i]; window: strides, dilation, padding."""
    tune, groups = site.tune, getattr(op, "groups", 1)
    inner = weights.shape[-1]
    depth = tune.ic_parallelism if inner % tune.ic_parallelism == 0 else 1
    terms = math.prod(weights.shape[1:]) // depth
    outputs = y[2] // groups
    lanes = max(1, min(tune.parallelism, outputs, terms))
    blocks = -(-outputs // lanes)
    positions = y[0] * y[1] if tune.weight_stationary and y[0] * y[1] > 1 and terms > 1 else 0
    strides, dilation, padding = window
    (row_loop, row_taps), (column_loop, column_taps) = window_loops(x, y, weights.shape[1:3], strides, dilation)
    weight = {"row": terms // weights.shape[1], "column": inner // depth}
    space: Loops = [
        (*row_loop[:2], {**row_loop[2], "position": y[1]}),
        (*column_loop[:2], {**column_loop[2], "position": 1}),
    ]
    channels: Loops = [
        (groups, False, {"x": inner, "weight": blocks * terms}), (blocks, False, {"weight": terms}),
    ]  # fmt: skip
    taps: Loops = [
        (*row_taps[:2], {**row_taps[2], "weight": weight["row"]}),
        (*column_taps[:2], {**column_taps[2], "weight": weight["column"]}),
        (inner // depth, True, {"x": depth, "weight": 1}),
    ]
    nest, limits = limited(
        channels + taps + space if positions else space + channels + taps, site.x_at[0], x, padding,
        {"weight": 0, **({"position": 0} if positions else {})},
    )  # fmt: skip
    zero = site.x[0].zero_point
    rows = weights.reshape(len(weights), -1)
    folds = tune.fold_zero_zp or zero == 0
    low, high = (site.x[0].low, site.x[0].high) if folds else (site.x[0].low - zero, site.x[0].high - zero)
    bias = op.bias.astype(np.int64) - (zero * rows.astype(np.int64).sum(axis=1) if folds else 0)
    return site.stage(
        "sum", nest, limits=limits, lanes=lanes, depth=depth, positions=positions,
        operand=Operand(site.x[0].low, site.x[0].high, () if folds else (zero,), zero if folds else 0),
        sums=sum_bounds(rows, min(low, zero if folds else 0), max(high, zero if folds else 0)),
        weights=WeightWords(_words(weights, groups, lanes, blocks, depth), op.bits),
        scaling=_laned(scaling_of(op.requantization, bias, tune.requant_precision.bits), groups, lanes * blocks),
        **_product_writes(site.y_at, y, groups, blocks, lanes, bool(positions)),
    )  # fmt: skip


def _words(weights: np.ndarray, groups: int, lanes: int, blocks: int, depth: int) -> np.ndarray:
    """The words of a ROM in the order of the nest: [groups * blocks * terms, lanes, depth]."""
    outputs = len(weights) // groups
    rows = weights.reshape(groups, outputs, -1, depth)
    padded = np.pad(rows, ((0, 0), (0, lanes * blocks - outputs), (0, 0), (0, 0)))
    apart = padded.reshape(groups, blocks, lanes, -1, depth)
    return apart.transpose(0, 1, 3, 2, 4).reshape(-1, lanes, depth)


def _laned(scaling: Scaling, groups: int, channels: int) -> Scaling:
    """A scaling with an entry for each lane, also for those without a channel."""

    def padded(entries: np.ndarray) -> np.ndarray:
        rows = entries.reshape(groups, -1)
        return np.pad(rows, ((0, 0), (0, channels - rows.shape[1])), mode="edge").reshape(-1)

    arrays = ("bias", "multiplier", "left", "right")
    return replace(scaling, **{name: padded(getattr(scaling, name)) for name in arrays})


def _product_writes(at: int, y: tuple, groups: int, blocks: int, lanes: int, stationary: bool) -> dict[str, Any]:
    outputs = y[2] // groups
    space: Loops = [(y[0], False, {"y": y[1] * y[2]}), (y[1], False, {"y": y[2]})]
    channels: Loops = [
        (groups, False, {"y": outputs, "channel": blocks * lanes}),
        (blocks, False, {"y": lanes, "channel": lanes, "lane": lanes}),
        (lanes, False, {"y": 1, "channel": 1, "lane": 1}),
    ]
    partial = blocks * lanes > outputs
    starts = {"y": at, "channel": 0, **({"lane": 0} if partial else {})}
    nest = nest_of(channels + space if stationary else space + channels, starts)
    return {"writes": nest, "write_limit": Limit("lane", outputs) if partial else None}
