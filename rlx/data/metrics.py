"""Metrics of a classifier's predictions."""

from __future__ import annotations

from typing import Any

import rlx.numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError

__all__ = ["accuracy", "confusion_matrix"]


def accuracy(scores: Any, labels: Any) -> Array:
    """The fraction of rows whose largest score is at their label.

    Args:
      scores: [..., classes], of any real dtype.
      labels: [...], integers.

    Returns a float32 number; NaN if there are no rows. Raises ShapeError if the shapes are incompatible.

    >>> import numpy as np
    >>> from rlx.data import accuracy
    >>> float(accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1])))
    0.5
    """
    scores, labels = jnp.asarray(scores), jnp.asarray(labels)
    if scores.shape[:-1] != labels.shape:
        raise ShapeError(f"Scores of shape {scores.shape} do not match labels of shape {labels.shape}.")
    return jnp.mean(scores.argmax(axis=-1) == labels)


def confusion_matrix(guesses: Any, labels: Any, classes: int) -> Array:
    """The confusion matrix: counts of each pair of true class and prediction.

    Args:
      guesses: the predictions, integers from 0 to classes - 1, of any shape.
      labels: the true classes, of the same shape.
      classes: the number of classes; other values are not counted.

    Returns int32[classes, classes]: row i, column j counts the samples of class i predicted as class j. Raises
    ShapeError if the shapes differ.

    >>> from rlx.data import confusion_matrix
    >>> confusion_matrix([0, 1, 1], [0, 0, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    guesses, labels = jnp.asarray(guesses).ravel(), jnp.asarray(labels).ravel()
    if guesses.shape != labels.shape:
        raise ShapeError(f"There are {guesses.size} guesses for {labels.size} labels.")
    known = (guesses >= 0) & (guesses < classes) & (labels >= 0) & (labels < classes)
    return jnp.zeros((classes, classes), "int32").at[labels, guesses].add(known.astype("int32"), mode="drop")
