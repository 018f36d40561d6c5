"""What a backend and a user may choose about lowering."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx.config import config

__all__ = ["LEAST_BANDS", "FusionLimits", "LoweringOptions"]

LEAST_BANDS = 4


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """How large a fused kernel may grow.

    >>> from rlx import fusion
    >>> fusion.FusionLimits(instructions=100)
    FusionLimits(instructions=100, operands=40, reduce_depth=4)
    """

    instructions: int = 400
    operands: int = 40
    reduce_depth: int = 4


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """Costs and limits of lowering.

    Units are one vectorised operation of one element; exp is about 6, a load of memory 8.
    recompute_cost: a value with several users is stored rather than computed again where that
    costs more: load_cost for each array after the first, and the arithmetic beyond free_cost
    (which hides behind the loads).
    repeat_cost: the same where one value meets many elements (a broadcast).
    chunk_elements: accumulation over fewer elements is not cut into chunks.
    least_bands: runs of kernels that can be cut in so many bands are (0: none).
    excess_precision: results of narrow floats are not rounded between fused operations (the switch of that name).
    """

    fusion: FusionLimits = field(default_factory=FusionLimits)
    expression_operations: int = 64
    expression_buffers: int = 8
    recompute_cost: int = 16
    load_cost: int = 8
    free_cost: int = 6
    repeat_cost: int = 4
    unroll_reduction: int = 8
    chunk_elements: int = 1 << 14
    max_chunks: int = 16
    least_bands: int = LEAST_BANDS
    fuse: bool = True
    excess_precision: bool = field(default_factory=lambda: config.excess_precision)
