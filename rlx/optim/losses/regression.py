"""Losses of numbers, and similarities of vectors."""

from __future__ import annotations

import math
from typing import Any

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.nn.normalisation import logsumexp
from rlx.optim.losses.operands import Axis, float_array, loss, same_shapes

__all__ = [
    "cosine_distance",
    "cosine_similarity",
    "huber_loss",
    "l2_loss",
    "log_cosh",
    "ntxent",
    "squared_error",
    "triplet_margin_loss",
]


# ------------------------------------------------------------- differences
def _errors(name: str, predictions: Any, targets: Any) -> Array:
    predictions = float_array(name, "predictions", predictions)
    return predictions if targets is None else predictions - targets


def _squares(name: str, predictions: Any, targets: Any) -> Array:
    if targets is not None:
        same_shapes(name, predictions=predictions, targets=targets)
    return jnp.square(_errors(name, predictions, targets))


@loss
def squared_error(predictions: Any, targets: Any = None) -> Array:
    """(predictions - targets) ** 2, element by element.

    Args: predictions: floats; targets: an array of the same shape, or None for zeros. Returns: predictions' shape.
    Raises: DtypeError if predictions are not floats; ShapeError if the shapes differ.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.squared_error(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0])).tolist()
    [0.0, 4.0]
    """
    return _squares("squared_error", predictions, targets)


@loss
def l2_loss(predictions: Any, targets: Any = None) -> Array:
    """0.5 * (predictions - targets) ** 2, element by element: half of `squared_error`.

    Args: predictions: floats; targets: an array of the same shape, or None for zeros. Returns: predictions' shape.
    Raises: DtypeError if predictions are not floats; ShapeError if the shapes differ.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.l2_loss(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0])).tolist()
    [0.0, 2.0]
    """
    return 0.5 * _squares("l2_loss", predictions, targets)


@loss
def huber_loss(predictions: Any, targets: Any = None, *, delta: Any = 1.0) -> Array:
    """0.5 * error ** 2 for errors up to delta, and a line of slope delta beyond, element by element.

    Args: predictions: floats; targets: an array that broadcasts with them, or None for zeros; delta: a positive
    number. Returns: an array of the broadcast shape. Raises: DtypeError if predictions are not floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.huber_loss(jnp.array([0.5, -3.0])).tolist()
    [0.125, 2.5]
    """
    sizes = jnp.abs(_errors("huber_loss", predictions, targets))
    inside = jnp.minimum(sizes, delta)
    return 0.5 * jnp.square(inside) + delta * (sizes - inside)


@loss
def log_cosh(predictions: Any, targets: Any = None) -> Array:
    """log(cosh(predictions - targets)), element by element: accurate for small errors, finite for large ones.

    Args: predictions: floats; targets: an array that broadcasts with them, or None for zeros.
    Returns: an array of the broadcast shape. Raises: DtypeError if predictions are not floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> print(optim.log_cosh(jnp.array([0.0, 1000.0])).round(3))
    [  0.    999.307]
    """
    sizes = jnp.abs(_errors("log_cosh", predictions, targets))
    is_small = sizes < 1
    # near 0, the difference of the second form would cancel
    near = jnp.log1p(2 * jnp.square(jnp.sinh(0.5 * jnp.where(is_small, sizes, 0))))
    return jnp.where(is_small, near, sizes + jnp.log1p(jnp.exp(-2 * sizes)) - math.log(2))


# ------------------------------------------------------------- vectors
@loss
def cosine_similarity(
    predictions: Any, targets: Any, *, epsilon: Any = 0.0, axis: Axis = -1, where: Any = None
) -> Array:
    """The cosine of the angle between vectors along an axis.

    Args: predictions, targets: (..., n) floats, which broadcast; epsilon: the smallest squared norm, so that zero
    vectors give 0 instead of NaN; axis: one axis, several, or None for all; where: bools, which elements to include.
    Returns: an array without `axis`. Raises: DtypeError if an operand is not of floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.cosine_similarity(jnp.array([3.0, 0.0]), jnp.array([[1.0, 0.0], [0.0, 2.0]])).tolist()
    [1.0, 0.0]
    """

    def unit(name: str, x: Any) -> Array:
        vector = float_array("cosine_similarity", name, x)
        squares = jnp.sum(jnp.square(vector), axis, where=where, keepdims=True)
        return vector / jnp.sqrt(jnp.maximum(squares, epsilon))

    return jnp.sum(unit("predictions", predictions) * unit("targets", targets), axis, where=where)


@loss
def cosine_distance(predictions: Any, targets: Any, *, epsilon: Any = 0.0, axis: Axis = -1, where: Any = None) -> Array:
    """1 - `cosine_similarity`: from 0 for the same direction to 2 for the opposite one.

    Args: as for `cosine_similarity`. Returns: an array without `axis`. Raises: DtypeError if an operand is not of
    floats.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> optim.cosine_distance(jnp.array([3.0, 0.0]), jnp.array([-1.0, 0.0])).item()
    2.0
    """
    return 1.0 - cosine_similarity(predictions, targets, epsilon=epsilon, axis=axis, where=where)


@loss
def ntxent(embeddings: Any, labels: Any, temperature: Any = 0.07) -> Array:
    """Normalised temperature-scaled cross-entropy of pairs of embeddings with equal labels.

    Each pair of different rows with equal labels competes with all rows of other labels; similarities are cosines.

    Args: embeddings: (batch, n) floats; labels: (batch,) integers; temperature: what the cosines are divided by.
    Returns: the mean over all pairs, a scalar; NaN if there are none.
    Raises: DtypeError if embeddings are not floats; ShapeError if the batches differ.
    Source: Sohn, Improved deep metric learning with multi-class N-pair loss objective, 2016.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> rows = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> print(optim.ntxent(rows, jnp.array([0, 0, 1]), temperature=1.0).round(4))
    0.3133
    """
    embeddings = float_array("ntxent", "embeddings", embeddings)
    count = embeddings.shape[0]
    if jnp.shape(labels) != (count,):
        raise ShapeError(
            f"optim.ntxent got embeddings of shape {embeddings.shape} and labels of shape {jnp.shape(labels)}.",
            "Pass one label for each row of embeddings.",
        )
    labels = jnp.asarray(labels)
    epsilon = jnp.finfo(embeddings.dtype).eps
    similarities = cosine_similarity(embeddings[None], embeddings[:, None], epsilon=epsilon) / temperature
    is_equal = jnp.equal(labels[:, None], labels[None])
    is_pair = is_equal & ~jnp.eye(count, dtype=bool)
    # the logarithm of the sum over the rows with other labels, which may be none
    others = logsumexp(similarities, 1, where=~is_equal, keepdims=True)
    losses = jnp.logaddexp(others - similarities, 0.0)
    return jnp.sum(losses, where=is_pair) / jnp.sum(is_pair)


@loss
def triplet_margin_loss(
    anchors: Any,
    positives: Any,
    negatives: Any,
    axis: int = -1,
    norm_degree: Any = 2,
    margin: Any = 1.0,
    eps: Any = 1e-6,
) -> Array:
    """max(distance to the positive - distance to the negative + margin, 0).

    Args: anchors, positives, negatives: (..., n) floats; axis: the axis of the vectors; norm_degree: p of the
    distance (sum(abs(difference) ** p) + eps) ** (1 / p); margin: the wanted difference of the distances.
    Returns: an array without `axis`. Optax takes powers of differences with their signs, so odd degrees differ.
    Raises: DtypeError if an operand is not of floats.
    Source: Balntas et al., Learning shallow convolutional feature descriptors with triplet losses, 2016.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> anchor, near, far = jnp.zeros(2), jnp.array([0.0, 1.0]), jnp.array([3.0, 4.0])
    >>> print(optim.triplet_margin_loss(anchor, near, far, margin=5.0).round(3))
    1.0
    """
    anchors = float_array("triplet_margin_loss", "anchors", anchors)

    def distance(name: str, x: Any) -> Array:
        sizes = jnp.abs(anchors - float_array("triplet_margin_loss", name, x))
        return jnp.power(jnp.sum(jnp.power(sizes, norm_degree), axis) + eps, 1 / norm_degree)

    return jnp.maximum(distance("positives", positives) - distance("negatives", negatives) + margin, 0)
