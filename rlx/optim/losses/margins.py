"""Losses that are zero beyond a margin, and losses whose probabilities may be exactly zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.nn.activations import sparse_plus
from rlx.optim.losses.operands import float_array, integer_array, loss, same_shapes
from rlx.trace.flat import as_array

__all__ = [
    "hinge_loss",
    "make_fenchel_young_loss",
    "multiclass_hinge_loss",
    "multiclass_perceptron_loss",
    "multiclass_sparsemax_loss",
    "perceptron_loss",
    "sparsemax_loss",
]


# ------------------------------------------------------------- two classes
@loss
def hinge_loss(predictor_outputs: Any, targets: Any) -> Array:
    """max(0, 1 - predictor_outputs * targets), element by element.

    Args: predictor_outputs: floats; targets: -1 or 1; they broadcast. Returns: an array of the broadcast shape.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.hinge_loss(jnp.array([0.5, -2.0]), jnp.array([1, 1])).tolist()
    [0.5, 3.0]
    """
    return jnp.maximum(0, 1 - as_array(predictor_outputs) * targets)


@loss
def perceptron_loss(predictor_outputs: Any, targets: Any) -> Array:
    """max(0, -predictor_outputs * targets), element by element.

    Args: predictor_outputs: floats; targets: -1 or 1, in an array of the same shape. Returns: that shape.
    Raises: ShapeError if the shapes differ.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.perceptron_loss(jnp.array([0.5, -2.0]), jnp.array([1, 1])).tolist()
    [0.0, 2.0]
    """
    same_shapes("perceptron_loss", predictor_outputs=predictor_outputs, targets=targets)
    return jnp.maximum(0, -as_array(predictor_outputs) * targets)


@loss
def sparsemax_loss(logits: Any, labels: Any) -> Array:
    """sparse_plus(-logits) for labels of 1 and sparse_plus(logits) for labels of 0, element by element.

    Args: logits: floats; labels: 0 or 1; they broadcast. Returns: an array of the broadcast shape.
    Source: Blondel, Martins and Niculae, Learning with Fenchel-Young losses, 2020.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.sparsemax_loss(jnp.array([0.0, 2.0]), jnp.array([1, 0])).tolist()
    [0.25, 2.0]
    """
    value = as_array(logits)
    return sparse_plus(jnp.where(as_array(labels).astype(bool), -value, value))


# ------------------------------------------------------------- several classes
def _with_chosen(name: str, scores: Any, labels: Any) -> tuple[Array, Array, Array]:
    """Scores, the bools of the labelled classes, and the labelled scores; a label outside of the classes has none."""
    scores, labels = float_array(name, "scores", scores), integer_array(name, "labels", labels)
    is_label = jnp.equal(labels[..., None], jnp.arange(scores.shape[-1], dtype=labels.dtype))
    # jnp.sum(scores, -1, where=is_label) would sum another axis where labels have more axes than scores
    return scores, is_label, jnp.sum(jnp.where(is_label, scores, 0), -1)


@loss
def multiclass_hinge_loss(scores: Any, labels: Any) -> Array:
    """max(scores + 1 - one_hot(labels)) - scores[labels] over the last axis.

    Args: scores: (..., classes) floats; labels: (...) integers, not checked. Returns: (...).
    Raises: DtypeError if scores are not floats or labels are not integers.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.multiclass_hinge_loss(jnp.array([[1.0, 1.5], [9.0, 0.0]]), jnp.array([0, 0])).tolist()
    [1.5, 0.0]
    """
    scores, is_label, chosen = _with_chosen("multiclass_hinge_loss", scores, labels)
    return jnp.max(jnp.where(is_label, scores, scores + 1), -1) - chosen


@loss
def multiclass_perceptron_loss(scores: Any, labels: Any) -> Array:
    """max(scores) - scores[labels] over the last axis.

    Args: scores: (..., classes) floats; labels: (...) integers, not checked. Returns: (...).
    Raises: DtypeError if scores are not floats or labels are not integers.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.multiclass_perceptron_loss(jnp.array([[1.0, 1.5], [9.0, 0.0]]), jnp.array([0, 0])).tolist()
    [0.5, 0.0]
    """
    scores, _, chosen = _with_chosen("multiclass_perceptron_loss", scores, labels)
    return jnp.max(scores, -1) - chosen


def _nearest_distribution(scores: Array) -> Array:
    """The nearest point to `scores` among vectors of probabilities, along the last axis (sparsemax)."""
    known = lax.stop_gradient(scores)
    descending = -jnp.sort(-known, axis=-1)
    counts = jnp.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    is_kept = 1 + counts * descending > jnp.cumsum(descending, -1)
    least = jnp.min(descending, -1, where=is_kept, initial=jnp.inf, keepdims=True)
    # the derivative is the derivative of the formula for the kept classes, which are constant
    support = known >= least
    excess = jnp.sum(scores, -1, where=support, keepdims=True) - 1
    return jnp.where(support, scores - excess / jnp.sum(support, -1, keepdims=True), 0)


@loss
def multiclass_sparsemax_loss(scores: Any, labels: Any) -> Array:
    """The loss that is 0 where sparsemax(scores), the nearest vector of probabilities, is one-hot at the label.

    Args: scores: (..., classes) floats; labels: (...) integers, not checked. Returns: (...).
    Raises: DtypeError if scores are not floats or labels are not integers.
    Source: Martins and Astudillo, From softmax to sparsemax, 2016.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.multiclass_sparsemax_loss(jnp.array([[1.0, 1.0], [9.0, 0.0]]), jnp.array([0, 0])).tolist()
    [0.25, 0.0]
    """
    scores, is_label, chosen = _with_chosen("multiclass_sparsemax_loss", scores, labels)
    # differences first: a sum that is added to all scores must not be rounded
    differences = jnp.where(is_label, 0, scores - chosen[..., None])
    nearest = _nearest_distribution(differences)
    return jnp.sum(nearest * differences, -1) + 0.5 * (1 - jnp.sum(jnp.square(nearest), -1))


def make_fenchel_young_loss(max_fun: Callable[..., Any]) -> Callable[..., Array]:
    """The function (scores, targets, *args, **kwargs) -> max_fun(scores, *args, **kwargs) - sum(scores * targets).

    Args: max_fun: a convex function of a vector, for example logsumexp, whose loss is softmax cross-entropy.
    Returns: a function of arrays (..., n), which calls max_fun with vectors along the last axis; its result is (...).
    Source: Blondel, Martins and Niculae, Learning with Fenchel-Young losses, 2020.

    >>> from rlx import nn, optim
    >>> import rlx.numpy as jnp
    >>> loss = optim.make_fenchel_young_loss(nn.logsumexp)
    >>> print(loss(jnp.array([2.0, 0.0]), jnp.array([1.0, 0.0])).round(4))
    0.1269
    """

    def fenchel_young_loss(scores: Any, targets: Any, *args: Any, **kwargs: Any) -> Array:
        largest = jnp.vectorize(lambda row: max_fun(row, *args, **kwargs), signature="(n)->()")(scores)
        return largest - jnp.vecdot(targets, scores)

    return fenchel_young_loss
