"""Stages: one layer of a circuit, as loop nests, words of ROMs and the scaling of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlx.fpga.nests import Limit, LoopNest
from rlx.quant.integer_program import Requantization

__all__ = ["Operand", "Scaling", "Stage", "WeightWords", "scaling_of"]

Combine = Literal["sum", "largest", "product", "position"]


@dataclass(frozen=True, slots=True)
class Operand:
    """The codes that a stage reads, one or several at once.

    Attributes:
      low, high: their bounds.
      zeros: is subtracted from the codes of each operand; none: codes are used as they are.
      outside: the number, after the subtraction, where there is no element.
      bases: addresses that are added to the walk "x" for each operand; the walk "operand" counts them.
    """

    low: int
    high: int
    zeros: tuple[int, ...] = ()
    outside: int = 0
    bases: tuple[int, ...] = (0,)


@dataclass(frozen=True, eq=False, slots=True)
class WeightWords:
    """Words of a ROM [depth, lanes, codes at once], and the bits of a weight."""

    words: np.ndarray
    bits: int


@dataclass(frozen=True, eq=False, slots=True)
class Scaling:
    """From sums to codes: `round(round((sum + bias) * 2**left * multiplier / 2**fraction) / 2**right) + zero_point`.

    bias, multiplier, left, right: an integer for each channel; multiplier: None to scale with shifts only. The second
    rounding is half away from zero, the first one half up. The codes are clipped to low, ..., high.
    """

    bias: np.ndarray
    multiplier: np.ndarray | None
    left: np.ndarray
    right: np.ndarray
    fraction: int
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, eq=False, slots=True)
class Stage:
    """One layer.

    Attributes:
      name: of the module; operation: the operation's class, for comments.
      combine: the result of a reduction: the sum of products with weights, the largest code, the product of two
        operands, or the position of the first largest code.
      nest: the iterations, with the walks "x" (the address of a code), "weight" (the address of a word of weights),
        "operand", "position" (of a partial sum in memory), and the walks of limits.
      sums: the bounds of all partial sums.
      lanes: channels at once; depth: codes at once.
      writes: the results in their order, with the walks "y" (address) and "channel" (of bias and multiplier).
      scaling, clamp, table: from a combined number to a code; none: it is a code.
      positions: the number of partial sums in memory; 0: they are in registers.
      idle: the iterations of the innermost loop "idle"; only the first one does something.
      rights: the most right shifts of a unit that scales bit by bit; none: the unit takes a sum in each cycle.
    """

    name: str
    operation: str
    combine: Combine
    nest: LoopNest
    limits: tuple[Limit, ...]
    operand: Operand
    sums: tuple[int, int]
    writes: LoopNest
    write_limit: Limit | None = None
    weights: WeightWords | None = None
    lanes: int = 1
    depth: int = 1
    scaling: Scaling | None = None
    clamp: tuple[int, int] | None = None
    table: np.ndarray | None = None
    positions: int = 0
    idle: int = 1
    rights: int | None = None


def scaling_of(found: Requantization, bias: np.ndarray, fraction: int) -> Scaling:
    """The scaling of a requantisation, whose multipliers are multiples of 2**(31 - fraction)."""
    shift = np.broadcast_to(found.shift, bias.shape).astype(np.int64)
    multiplier = np.broadcast_to(found.multiplier, bias.shape).astype(np.int64)
    return Scaling(
        bias.astype(np.int64), multiplier >> (31 - fraction), np.maximum(-shift, 0), np.maximum(shift, 0), fraction,
        found.zero_point, found.low, found.high,
    )  # fmt: skip


def sum_bounds(terms: np.ndarray, low: int, high: int) -> tuple[int, int]:
    """The bounds of all partial sums of codes from low to high times rows of weights [sums, terms]."""
    weights = terms.astype(np.int64)
    products = np.stack([weights * low, weights * high])
    least = np.minimum(products.min(axis=0), 0).sum(axis=1)
    most = np.maximum(products.max(axis=0), 0).sum(axis=1)
    return int(least.min(initial=0)), int(most.max(initial=0))


def union(intervals: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The bounds of several intervals."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)
