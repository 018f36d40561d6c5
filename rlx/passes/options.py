"""What a backend and a user may choose about lowering."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["FusionLimits", "LoweringOptions"]


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """How large a fused kernel may grow."""

    instructions: int = 400
    operands: int = 40
    reduce_depth: int = 4


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """Costs and limits of lowering.

    recompute_cost: a value with several users is stored rather than computed again where its
    arithmetic costs more (units: one vectorised operation; exp is about 6, a store and a load 24).
    repeat_cost: the same where one value meets many elements (a broadcast).
    chunk_elements: accumulation over fewer elements is not cut into chunks.
    """

    fusion: FusionLimits = field(default_factory=FusionLimits)
    expression_operations: int = 64
    expression_buffers: int = 8
    recompute_cost: int = 12
    repeat_cost: int = 4
    unroll_reduction: int = 8
    chunk_elements: int = 1 << 16
    max_chunks: int = 16
    fuse: bool = True
