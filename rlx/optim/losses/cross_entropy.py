"""Cross-entropies of logits, and divergences of distributions."""

from __future__ import annotations

import math
from typing import Any

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import AxisError, DtypeError
from rlx.ir.types import is_integer
from rlx.nn.activations import log_sigmoid
from rlx.nn.normalisation import log_softmax, logsumexp, softmax
from rlx.numpy.promotion import canonical_axes
from rlx.optim.losses.operands import Axis, float_array, integer_array, loss, where_mask
from rlx.trace.flat import as_array

__all__ = [
    "generalized_kl_divergence",
    "kl_divergence",
    "kl_divergence_with_log_targets",
    "poly_loss_cross_entropy",
    "ranking_softmax_loss",
    "safe_softmax_cross_entropy",
    "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss",
    "smooth_labels",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
]


def _weighted(labels: Any, log_probabilities: Any, kept: Any) -> Array:
    """labels * log_probabilities where `kept`, else 0, in the derivatives as well."""
    if kept is None:
        return labels * log_probabilities
    # -inf times a zero cotangent would be NaN
    finite = jnp.where(kept, log_probabilities, 0.0)
    return jnp.where(kept, labels * finite, 0.0)


# ------------------------------------------------------------- softmax
def _refuse_class_numbers(name: str, logits: Array, labels: Any, axis: Axis) -> None:
    """Raise DtypeError for labels that number the classes: they may broadcast with logits, and mean something else."""
    found = as_array(labels)
    if not isinstance(axis, int) or not is_integer(found.dtype) or found.ndim != logits.ndim - 1:
        return
    (at,) = canonical_axes(axis, logits.ndim, f"optim.{name}")
    if found.shape == logits.shape[:at] + logits.shape[at + 1 :]:
        raise DtypeError(
            f"optim.{name} takes one label for each class, but got {found.type!r} for logits {logits.type!r}.",
            f"These labels number the classes: use optim.{name.removeprefix('safe_')}_with_integer_labels, or"
            " rlx.nn.one_hot(labels, num_classes).",
        )


@loss
def softmax_cross_entropy(logits: Any, labels: Any, axis: Axis = -1, where: Any = None) -> Array:
    """-sum(labels * log_softmax(logits)) over an axis.

    Args:
      logits: (..., classes) floats, of any size: the computation does not overflow.
      labels: one-hot labels or probabilities; they broadcast with logits.
      axis: one axis, several, or None for all.
      where: bools of the shape of logits, or of logits without `axis`; other classes do not count.

    Returns: an array without `axis`. A label of 0 at a logit of -inf gives NaN; see `safe_softmax_cross_entropy`.
    Raises: DtypeError if logits are not floats, or if labels are integers of the shape of logits without `axis`.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> logits, labels = jnp.array([[2.0, 0.0], [0.0, 1e6]]), jnp.array([[0.5, 0.5], [1.0, 0.0]])
    >>> optim.softmax_cross_entropy(logits, labels)[1].item()
    1000000.0
    """
    logits = float_array("softmax_cross_entropy", "logits", logits)
    _refuse_class_numbers("softmax_cross_entropy", logits, labels, axis)
    kept = where_mask(where, logits, axis)
    return -jnp.sum(_weighted(labels, log_softmax(logits, axis, kept), kept), axis)


@loss
def safe_softmax_cross_entropy(logits: Any, labels: Any) -> Array:
    """`softmax_cross_entropy` over the last axis, where a label of 0 at a logit of -inf gives 0.

    Args: logits: (..., classes) floats; labels: probabilities, which broadcast with logits. Returns: (...).
    Raises: DtypeError if logits are not floats, or if labels are integers of shape (...).

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.safe_softmax_cross_entropy(jnp.array([0.0, -jnp.inf]), jnp.array([1.0, 0.0])).item()
    -0.0
    """
    logits = float_array("safe_softmax_cross_entropy", "logits", logits)
    labels = jnp.asarray(labels)
    _refuse_class_numbers("safe_softmax_cross_entropy", logits, labels, -1)
    return -jnp.sum(_weighted(labels, log_softmax(logits), labels != 0), -1)


def _flat_classes(logits: Array, mask: Any, axis: Any) -> tuple[Array, Any, int]:
    """Logits and mask with the classes along one axis, and its number; several axes become one, the last."""
    name = "optim.softmax_cross_entropy_with_integer_labels"
    if axis is None:
        raise AxisError(f"{name} got axis=None.", "Pass the axis of the classes, or a tuple of axes.")
    axes = canonical_axes(axis, logits.ndim, name)
    if not isinstance(axis, tuple):
        return logits, mask, axes[0]
    others = tuple(i for i in range(logits.ndim) if i not in axes)

    def flat(x: Array) -> Array:
        moved = jnp.transpose(x, others + axes)
        return moved.reshape(*moved.shape[: len(others)], math.prod(moved.shape[len(others) :]))

    return flat(logits), None if mask is None else flat(jnp.broadcast_to(mask, logits.shape)), len(others)


@loss
def softmax_cross_entropy_with_integer_labels(
    logits: Any, labels: Any, axis: int | tuple[int, ...] = -1, where: Any = None
) -> Array:
    """log(sum(exp(logits))) - logits[labels] over an axis: softmax cross-entropy with the numbers of the classes.

    Args:
      logits: (..., classes) floats, of any size: the computation does not overflow.
      labels: (...) integers. As in optax, they are not checked, because they may be traced: -1 is the last class, and
        a number outside of the classes gives NaN.
      axis: the axis of the classes, or a tuple of axes, in which labels number the elements row by row.
      where: bools of the shape of logits, or of logits without `axis`; other classes do not count. The loss is 0
        where no class counts.

    Returns: an array without `axis`.
    Raises: DtypeError if logits are not floats or labels are not integers; AxisError for axis=None.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> logits = jnp.array([[2.0, 0.0], [0.0, 1e6]])
    >>> print(optim.softmax_cross_entropy_with_integer_labels(logits, jnp.array([0, 1])).round(4))
    [0.1269 0.    ]
    """
    name = "softmax_cross_entropy_with_integer_labels"
    logits, labels = float_array(name, "logits", logits), integer_array(name, "labels", labels)
    logits, kept, at = _flat_classes(logits, where_mask(where, logits, axis), axis)
    constant = lax.stop_gradient(logits)
    largest = jnp.max(constant, at, keepdims=True, initial=-math.inf, where=True if kept is None else kept)
    # first subtract the largest: two large numbers of nearly equal size would be rounded before their difference
    shifted = logits - jnp.where(jnp.isfinite(largest), largest, 0)
    chosen = jnp.squeeze(jnp.take_along_axis(shifted, jnp.expand_dims(labels, at), at), at)
    result = logsumexp(shifted, at, where=kept) - chosen
    return result if kept is None else jnp.where(jnp.any(kept, at), result, 0)


@loss
def poly_loss_cross_entropy(
    logits: Any, labels: Any, *, epsilon: Any = 2.0, axis: Axis = -1, where: Any = None
) -> Array:
    """Softmax cross-entropy plus epsilon * sum(labels * (1 - softmax(logits))).

    Args: logits, labels, axis, where: as for `softmax_cross_entropy`, but labels are floats; epsilon: the weight of
    the second term. Returns: an array without `axis`. Raises: DtypeError if logits or labels are not floats.
    Source: Leng et al., PolyLoss, ICLR 2022.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> print(optim.poly_loss_cross_entropy(jnp.array([2.0, 0.0]), jnp.array([1.0, 0.0])).round(4))
    0.3653
    """
    name = "poly_loss_cross_entropy"
    logits, labels = float_array(name, "logits", logits), float_array(name, "labels", labels)
    kept = where_mask(where, logits, axis)
    missed = jnp.sum(labels * (1 - softmax(logits, axis, kept)), axis, where=kept)
    return softmax_cross_entropy(logits, labels, axis, kept) + epsilon * missed


@loss
def _list_losses(logits: Any, labels: Any, where: Any = None, weights: Any = None) -> Array:
    if weights is not None:
        labels = labels * weights
    return -jnp.sum(_weighted(labels, log_softmax(logits, -1, where), where), -1)


def ranking_softmax_loss(
    logits: Any, labels: Any, *, where: Any = None, weights: Any = None, reduce_fn: Any = jnp.mean
) -> Array:
    """Softmax cross-entropy of the scores of the items of a list, with their relevances as labels.

    Args:
      logits: (..., items) floats: the scores; labels: (..., items) relevances, converted to the dtype of logits.
      where: (..., items) bools: other items do not count. weights: (..., items) factors of labels.
      reduce_fn: function(losses, where=lists) that reduces the losses of the lists, or None to return them. A list
        without items does not count.

    Returns: reduce_fn's result; (...) losses if it is None. The mean of no lists is 0.
    Raises: DtypeError if logits are not floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> print(optim.ranking_softmax_loss(jnp.array([2.0, 1.0, 3.0]), jnp.array([1.0, 0.0, 0.0])).round(3))
    1.408
    """
    logits = float_array("ranking_softmax_loss", "logits", logits)
    losses = _list_losses(logits, jnp.asarray(labels, logits.dtype), where, weights)
    lists = None if where is None else jnp.any(jnp.asarray(where), -1)
    if reduce_fn is None:
        return losses if lists is None else jnp.where(lists, losses, 0)
    if reduce_fn is jnp.mean and lists is not None:
        return jnp.where(jnp.any(lists), reduce_fn(losses, where=lists), 0)
    return reduce_fn(losses, where=lists)


def smooth_labels(labels: Any, alpha: Any, *, axis: Axis = -1, where: Any = None) -> Array:
    """(1 - alpha) * labels + alpha / classes.

    Args: labels: (..., classes) floats, one-hot; alpha: a number from 0 to 1; axis: the axes of the classes; where:
    bools, which classes to count. Returns: labels' shape. Raises: DtypeError if labels are not floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.smooth_labels(jnp.array([0.0, 1.0]), 0.5).tolist()
    [0.25, 0.75]
    """
    labels = float_array("smooth_labels", "labels", labels)
    axes = canonical_axes(axis, labels.ndim, "optim.smooth_labels")
    size = math.prod(labels.shape[i] for i in axes)
    classes = size if where is None else jnp.sum(where, axis, dtype=labels.dtype, keepdims=True)
    return (1.0 - alpha) * labels + alpha / classes


# ------------------------------------------------------------- sigmoid
@loss
def _binary_cross_entropy(logits: Any, labels: Any) -> Array:
    return -labels * log_sigmoid(logits) - (1 - labels) * log_sigmoid(-logits)


def sigmoid_binary_cross_entropy(logits: Any, labels: Any) -> Array:
    """-labels * log(sigmoid(logits)) - (1 - labels) * log(1 - sigmoid(logits)), element by element.

    Args: logits: floats of any size: the computation does not overflow; labels: 0, 1 or probabilities, which broadcast
    with logits and are converted to their dtype. Returns: an array of the broadcast shape in the dtype of logits.
    Raises: DtypeError if logits are not floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> print(optim.sigmoid_binary_cross_entropy(jnp.array([0.0, -1000.0]), jnp.array([1, 1])).round(4))
    [6.931e-01 1.000e+03]
    """
    logits = float_array("sigmoid_binary_cross_entropy", "logits", logits)
    return _binary_cross_entropy(logits, jnp.asarray(labels, logits.dtype))


@loss
def _focal_loss(logits: Any, labels: Any, alpha: Any, gamma: Any) -> Array:
    sides = jnp.stack([log_sigmoid(logits), log_sigmoid(-logits)], -1)
    # the logarithm of 1 - p, where p is the probability of the label
    missed = logsumexp(sides, -1, b=jnp.stack(jnp.broadcast_arrays(1 - labels, labels), -1))
    result = _binary_cross_entropy(logits, labels) * jnp.exp(gamma * missed)
    return result if alpha is None else (alpha * labels + (1 - alpha) * (1 - labels)) * result


def sigmoid_focal_loss(logits: Any, labels: Any, *, alpha: Any = None, gamma: Any = 2.0) -> Array:
    """`sigmoid_binary_cross_entropy` times (1 - p) ** gamma, where p is the probability of the label.

    Args: logits: floats of any size; labels: 0, 1 or probabilities, which broadcast with logits and are converted to
    their dtype; alpha: the weight of labels of 1, where 1 - alpha is the weight of labels of 0, or None for no
    weights; gamma: 0 gives the cross-entropy, and larger numbers reduce the losses of easy examples.
    Returns: an array of the broadcast shape. Raises: DtypeError if logits are not floats.
    Source: Lin et al., Focal Loss for Dense Object Detection, 2017.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> print(optim.sigmoid_focal_loss(jnp.array([0.0, 9.0]), jnp.array([1, 0])).round(3))
    [0.173 8.998]
    """
    logits = float_array("sigmoid_focal_loss", "logits", logits)
    return _focal_loss(logits, jnp.asarray(labels, logits.dtype), alpha, gamma)


# ------------------------------------------------------------- divergences
@loss
def kl_divergence(log_predictions: Any, targets: Any, axis: Axis = -1, where: Any = None) -> Array:
    """sum(targets * (log(targets) - log_predictions)) over an axis; a target of 0 adds 0.

    Args: log_predictions: (..., n) floats, the logarithms of probabilities; targets: floats, probabilities; axis: one
    axis, several, or None for all; where: bools, which elements to include. Returns: an array without `axis`.
    Raises: DtypeError if an operand is not of floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> print(optim.kl_divergence(jnp.log(jnp.array([0.5, 0.5])), jnp.array([1.0, 0.0])).round(4))
    0.6931
    """
    log_predictions = float_array("kl_divergence", "log_predictions", log_predictions)
    targets = float_array("kl_divergence", "targets", targets)
    is_zero = targets == 0
    logarithms = jnp.where(is_zero, 0, jnp.log(jnp.where(is_zero, 1, targets)))
    return jnp.sum(targets * (logarithms - log_predictions), axis, where=where)


@loss
def kl_divergence_with_log_targets(log_predictions: Any, log_targets: Any, axis: Axis = -1, where: Any = None) -> Array:
    """`kl_divergence` of targets that are given as logarithms.

    Args: log_predictions, log_targets: (..., n) floats; axis: one axis, several, or None for all; where: bools, which
    elements to include. Returns: an array without `axis`. Raises: DtypeError if an operand is not of floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> logarithms = jnp.log(jnp.array([0.5, 0.5]))
    >>> optim.kl_divergence_with_log_targets(logarithms, logarithms).item()
    0.0
    """
    name = "kl_divergence_with_log_targets"
    log_predictions = float_array(name, "log_predictions", log_predictions)
    log_targets = float_array(name, "log_targets", log_targets)
    return jnp.sum(jnp.exp(log_targets) * (log_targets - log_predictions), axis, where=where)


@loss
def generalized_kl_divergence(log_predictions: Any, targets: Any, axis: Axis = -1, where: Any = None) -> Array:
    """`kl_divergence` plus sum(exp(log_predictions) - targets): for measures whose sums are not 1.

    Args: as for `kl_divergence`; targets are positive. Returns: an array without `axis`.
    Raises: DtypeError if an operand is not of floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.generalized_kl_divergence(jnp.log(jnp.array([2.0])), jnp.array([2.0])).item()
    0.0
    """
    divergence = kl_divergence(log_predictions, targets, axis, where)
    return divergence + jnp.sum(jnp.exp(log_predictions) - targets, axis, where=where)
