"""Dice losses: the overlap of predicted and true regions."""

from __future__ import annotations

from typing import Any, Literal

from rlx import numpy as jnp
from rlx.array import Array
from rlx.nn.activations import sigmoid
from rlx.nn.normalisation import softmax
from rlx.optim.losses.operands import float_array, loss, same_shapes
from rlx.trace.flat import as_array

__all__ = ["binary_dice_loss", "dice_loss", "multiclass_generalized_dice_loss"]

_REDUCTIONS = {"mean": lambda x: jnp.mean(x, -1), "sum": lambda x: jnp.sum(x, -1), "none": lambda x: x}


def _with_classes(predictions: Any, targets: Any) -> tuple[Array, Array]:
    """The operands, of one rank: an axis of one class is added where only the other has it."""
    predictions, targets = float_array("dice_loss", "predictions", predictions), as_array(targets)
    if predictions.ndim == targets.ndim - 1:
        predictions = predictions[..., None]
    elif targets.ndim == predictions.ndim - 1:
        targets = targets[..., None]
    same_shapes("dice_loss", predictions=predictions, targets=targets)
    return predictions, targets


@loss
def dice_loss(
    predictions: Any,
    targets: Any,
    *,
    class_weights: Any = None,
    smooth: Any = 1.0,
    alpha: Any = 0.5,
    beta: Any = 0.5,
    apply_softmax: bool = True,
    reduction: Literal["mean", "sum", "none"] = "mean",
    ignore_background: bool = False,
    axis: int | tuple[int, ...] | None = None,
) -> Array:
    """1 - (hits + smooth) / (hits + alpha * false positives + beta * misses + smooth) for each class, reduced.

    Args:
      predictions: (batch, ..., classes) float logits, or (batch, ..., 1) for two classes.
      targets: one-hot, of the same shape; an axis of size 1 may be missing in one of the two.
      class_weights: (classes,) factors of the classes' losses.
      smooth: a positive number, added to both sides of the fraction.
      alpha, beta: the weights of false positives and of misses; equal for Dice, different for the Tversky loss.
      apply_softmax: turn logits into probabilities, by sigmoid for one class; False for predictions that are
        probabilities. Unlike in optax, their sums are not checked, because they may be traced.
      reduction: over the classes: "mean", "sum" or "none".
      ignore_background: leave out class 0.
      axis: the axes of the pixels; all but the first and the last by default.

    Returns: (batch,) losses; (batch, classes) for "none".
    Raises: DtypeError if predictions are not floats; ShapeError if the shapes differ; ValueError for another reduction.
    Source: Milletari et al., V-Net, 2016.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> print(optim.dice_loss(jnp.array([[[50.0], [-50.0]]]), jnp.array([[[1.0], [1.0]]])).round(3))
    [0.2]
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f'optim.dice_loss has no reduction {reduction!r}: use "mean", "sum" or "none".')
    predictions, targets = _with_classes(predictions, targets)
    if apply_softmax:
        predictions = sigmoid(predictions) if predictions.shape[-1] == 1 else softmax(predictions)
    pixels = tuple(range(1, predictions.ndim - 1)) if axis is None else axis
    hits = jnp.sum(predictions * targets, pixels)
    extra, missed = jnp.sum(predictions, pixels) - hits, jnp.sum(targets, pixels) - hits
    losses = 1 - (hits + smooth) / (hits + alpha * extra + beta * missed + smooth)
    if class_weights is not None:
        losses = losses * class_weights
    if ignore_background and predictions.shape[-1] > 1:
        losses = losses[..., 1:]
    return _REDUCTIONS[reduction](losses)


@loss
def multiclass_generalized_dice_loss(
    predictions: Any, targets: Any, *, smooth: Any = 1.0, apply_softmax: bool = True, ignore_background: bool = False
) -> Array:
    """The mean `dice_loss` with classes weighted by 1 / (their number of pixels in the batch) ** 2.

    Args: predictions: (batch, ..., classes) float logits; targets: one-hot, of the same shape; the others as for
    `dice_loss`. Returns: a scalar. Raises: DtypeError if predictions are not floats; ShapeError if the shapes differ.
    Source: Sudre et al., Generalised Dice overlap, 2017.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> logits, targets = jnp.array([[[90.0, 0.0], [0.0, 90.0]]]), jnp.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> optim.multiclass_generalized_dice_loss(logits, targets).item()
    0.0
    """
    same_shapes("multiclass_generalized_dice_loss", predictions=predictions, targets=targets)
    targets = as_array(targets)
    weights = 1 / (jnp.square(jnp.sum(targets, tuple(range(targets.ndim - 1)))) + 1e-7)
    losses = dice_loss(
        predictions,
        targets,
        class_weights=weights / jnp.mean(weights),
        smooth=smooth,
        apply_softmax=apply_softmax,
        reduction="none",
        ignore_background=ignore_background,
    )
    return jnp.mean(losses)


@loss
def binary_dice_loss(predictions: Any, targets: Any, *, smooth: Any = 1.0, apply_sigmoid: bool = True) -> Array:
    """`dice_loss` of one class.

    Args: predictions: (batch, ...) or (batch, ..., 1) float logits; targets: 0 or 1, of the same shape; smooth as for
    `dice_loss`; apply_sigmoid: False for predictions that are probabilities. Returns: (batch,) losses.
    Raises: DtypeError if predictions are not floats; ShapeError if the shapes differ.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.binary_dice_loss(jnp.array([[50.0, -50.0]]), jnp.array([[1.0, 0.0]])).tolist()
    [0.0]
    """
    predictions, targets = as_array(predictions), as_array(targets)
    if predictions.ndim == targets.ndim and predictions.shape[-1] != 1:
        predictions, targets = predictions[..., None], targets[..., None]
    return dice_loss(predictions, targets, smooth=smooth, apply_softmax=apply_sigmoid)
