"""Mixed precision: which operations compute in 16 bits, and loss scaling for gradients of float16."""

from __future__ import annotations

from rlx.precision.block_scale import BlockScaled, CastConfig
from rlx.precision.loss_scale import LossScale, LossScaler, Unscaled, all_finite, choose
from rlx.precision.policy import OperationKind, Precision, PrecisionPolicy, operation_kind
from rlx.precision.rewrite import AutoMixedPrecision, mixed_precision, mixed_program

__all__ = [
    "AutoMixedPrecision",
    "BlockScaled",
    "CastConfig",
    "LossScale",
    "LossScaler",
    "OperationKind",
    "Precision",
    "PrecisionPolicy",
    "Unscaled",
    "all_finite",
    "choose",
    "mixed_precision",
    "mixed_program",
    "operation_kind",
]
