"""The stages of pools, of arithmetic by elements, and of argmax."""

from __future__ import annotations

import math

import numpy as np

from rlx.errors import UnsupportedError
from rlx.fpga.nests import Limit, LoopNest, nest_of
from rlx.fpga.sites import Loops, Site, limited, window_loops
from rlx.fpga.stages import Operand, Scaling, Stage, WeightWords, scaling_of, sum_bounds, union
from rlx.quant.integer_program import (
    IntegerAdd,
    IntegerArgmax,
    IntegerMaxPool,
    IntegerMultiply,
    IntegerSumPool,
)

__all__ = ["add", "argmax", "max_pool", "multiply", "sum_pool"]


_MOST_POSITIONS = 256  # an index is stored in a byte


def _pooled(site: Site, op: IntegerMaxPool | IntegerSumPool) -> tuple[LoopNest, tuple[Limit, ...]]:
    x, y = site.x[0].shape, site.y.shape
    (rows, row_taps), (columns, column_taps) = window_loops(x, y, op.window, op.strides, (1, 1))
    loops: Loops = [rows, columns, (x[2], False, {"x": 1}), row_taps, column_taps]
    return limited(loops, site.x_at[0], x, op.padding, {})


def max_pool(site: Site, op: IntegerMaxPool) -> list[Stage]:
    nest, limits = _pooled(site, op)
    x = site.x[0]
    low = -128 if limits else x.low
    return [site.stage("largest", nest, limits=limits, operand=Operand(x.low, x.high, (), -128), sums=(low, x.high))]


def sum_pool(site: Site, op: IntegerSumPool) -> list[Stage]:
    nest, limits = _pooled(site, op)
    x, count = site.x[0], math.prod(op.window)
    bounds = sum_bounds(np.ones((1, count), np.int64), min(x.low - x.zero_point, 0), max(x.high - x.zero_point, 0))
    scaling = scaling_of(op.requantization, np.zeros(1, np.int64), site.tune.requant_precision.bits)
    operand = Operand(x.low, x.high, (x.zero_point,) if x.zero_point else ())
    return [site.stage("sum", nest, limits=limits, operand=operand, sums=bounds, scaling=scaling)]


def add(site: Site, op: IntegerAdd) -> list[Stage]:
    multipliers = np.array(op.multipliers, np.int64)
    zeros = [v.zero_point for v in site.x]
    low, high = union([(v.low, v.high) for v in site.x])
    scaling = Scaling(
        np.array([-int(multipliers @ zeros)]), None, np.zeros(1, np.int64), np.array([op.shift], np.int64), 0,
        op.zero_point, op.low, op.high,
    )  # fmt: skip
    width = max(int(m).bit_length() for m in np.append(multipliers, ~multipliers)) + 1
    return [
        site.stage(
            "sum", _operands(site, {"weight": 0}), operand=Operand(low, high, bases=tuple(site.x_at)),
            sums=sum_bounds(multipliers[None], low, high), scaling=scaling,
            weights=WeightWords(multipliers.reshape(-1, 1, 1), width),
        )  # fmt: skip
    ]


def multiply(site: Site, op: IntegerMultiply) -> list[Stage]:
    centred = [(v.low - v.zero_point, v.high - v.zero_point) for v in site.x]
    products = [a * b for a in centred[0] for b in centred[1]]
    operand = Operand(*union([(v.low, v.high) for v in site.x]), tuple(v.zero_point for v in site.x))
    operand = Operand(operand.low, operand.high, operand.zeros, 0, tuple(site.x_at))
    return [
        site.stage(
            "product", _operands(site, {}), operand=operand, sums=union([*centred, (min(products), max(products))]),
            scaling=scaling_of(op.requantization, np.zeros(1, np.int64), site.tune.requant_precision.bits),
        )  # fmt: skip
    ]


def _operands(site: Site, starts: dict[str, int]) -> LoopNest:
    """Each element of all operands."""
    elements = (math.prod(site.y.shape), False, {"x": 1})
    return nest_of([elements, (len(site.x), True, {"operand": 1, "weight": 1})], {"x": 0, "operand": 0, **starts})


def argmax(site: Site, op: IntegerArgmax) -> list[Stage]:
    shape = site.x[0].shape
    if shape[op.axis] > _MOST_POSITIONS:
        raise UnsupportedError(
            f"argmax of {shape[op.axis]} numbers has no circuit: an index is stored in a byte.",
            f"Give it at most {_MOST_POSITIONS} numbers.",
            op.origin,
        )
    axis, inner = op.axis % len(shape), math.prod(shape[op.axis % len(shape) + 1 :])
    loops: Loops = [
        (math.prod(shape[:axis]), False, {"x": shape[axis] * inner}), (inner, False, {"x": 1}),
        (shape[axis], True, {"x": inner}),
    ]  # fmt: skip
    return [site.stage("position", nest_of(loops, {"x": site.x_at[0]}), sums=(0, shape[axis] - 1))]
