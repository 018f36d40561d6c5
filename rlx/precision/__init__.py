"""Mixed precision: computation in 16 bits by kind of operation, and loss scaling for float16 gradients."""

from __future__ import annotations

from rlx.offered_names import offer_names
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

offer_names(globals())
