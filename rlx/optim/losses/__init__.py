"""rlx.optim.losses: functions of predictions and targets, with optax's names; they are also in rlx.optim."""

from __future__ import annotations

from rlx.offered_names import offer_names as _offer_names
from rlx.optim.losses.cross_entropy import (
    generalized_kl_divergence,
    kl_divergence,
    kl_divergence_with_log_targets,
    poly_loss_cross_entropy,
    ranking_softmax_loss,
    safe_softmax_cross_entropy,
    sigmoid_binary_cross_entropy,
    sigmoid_focal_loss,
    smooth_labels,
    softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
)
from rlx.optim.losses.margins import (
    hinge_loss,
    make_fenchel_young_loss,
    multiclass_hinge_loss,
    multiclass_perceptron_loss,
    multiclass_sparsemax_loss,
    perceptron_loss,
    sparsemax_loss,
)
from rlx.optim.losses.regression import (
    cosine_distance,
    cosine_similarity,
    huber_loss,
    l2_loss,
    log_cosh,
    ntxent,
    squared_error,
    triplet_margin_loss,
)
from rlx.optim.losses.segmentation import (
    binary_dice_loss,
    dice_loss,
    multiclass_generalized_dice_loss,
)
from rlx.optim.losses.sequences import (
    ctc_loss,
    ctc_loss_with_forward_probs,
)

__all__ = [
    "binary_dice_loss",
    "cosine_distance",
    "cosine_similarity",
    "ctc_loss",
    "ctc_loss_with_forward_probs",
    "dice_loss",
    "generalized_kl_divergence",
    "hinge_loss",
    "huber_loss",
    "kl_divergence",
    "kl_divergence_with_log_targets",
    "l2_loss",
    "log_cosh",
    "make_fenchel_young_loss",
    "multiclass_generalized_dice_loss",
    "multiclass_hinge_loss",
    "multiclass_perceptron_loss",
    "multiclass_sparsemax_loss",
    "ntxent",
    "perceptron_loss",
    "poly_loss_cross_entropy",
    "ranking_softmax_loss",
    "safe_softmax_cross_entropy",
    "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss",
    "smooth_labels",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
    "sparsemax_loss",
    "squared_error",
    "triplet_margin_loss",
]

_offer_names(globals())
