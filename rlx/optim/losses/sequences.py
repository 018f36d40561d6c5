"""Losses of sequences: connectionist temporal classification."""

from __future__ import annotations

from typing import Any

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.nn.normalisation import log_softmax
from rlx.optim.losses.operands import float_array, integer_array, loss

__all__ = ["ctc_loss", "ctc_loss_with_forward_probs"]


def _checked(logits: Any, logit_paddings: Any, labels: Any, label_paddings: Any) -> tuple[Array, Array, Array, Array]:
    """The operands, with paddings as bools."""
    name = "ctc_loss"
    logits, labels = float_array(name, "logits", logits), integer_array(name, "labels", labels)
    frames, symbols = jnp.not_equal(logit_paddings, 0), jnp.not_equal(label_paddings, 0)
    wanted = logits.ndim == 3 and labels.ndim == 2 and labels.shape[0] == logits.shape[0]
    if not wanted or frames.shape != logits.shape[:2] or symbols.shape != labels.shape:
        raise ShapeError(
            f"optim.{name} got logits of shape {logits.shape}, logit_paddings of shape {frames.shape},"
            f" labels of shape {labels.shape} and label_paddings of shape {symbols.shape}.",
            "The shapes must be (batch, frames, classes), (batch, frames), (batch, symbols) and (batch, symbols).",
        )
    return logits, frames, labels, symbols


def _after_label(blank: Array, label: Array) -> Array:
    """Logarithms of the probabilities of n written labels, the last frame a blank or a label; (batch, labels + 1)."""
    return jnp.concatenate([blank[:, :1], jnp.logaddexp(blank[:, 1:], label)], 1)


@loss
def _forward(
    logits: Array, frames: Array, labels: Array, symbols: Array, blank_id: Any, log_epsilon: Any
) -> tuple[Array, Array, Array]:
    """The recursion over frames of Graves et al., with one state per label and one per blank between labels."""
    batch, count = labels.shape
    logarithms = log_softmax(logits)
    labels = jnp.where(symbols, 0, labels)  # a padded label may be any number
    emitted = jnp.take_along_axis(logarithms, labels[:, None], 2)  # (batch, frames, labels)
    pause = lax.index_in_dim(logarithms, blank_id, 2)  # (batch, frames, 1)
    is_repeated = labels[:, 1:] == labels[:, :-1]
    never = jnp.asarray(log_epsilon, logarithms.dtype)

    def step(state: tuple[Array, Array], frame: tuple[Array, Array, Array]) -> Any:
        blank, label = state
        emitted, pause, is_padded = frame
        # a label is reached from the blank before it, or from another label
        skipped = jnp.where(is_repeated, never, label[:, :-1])
        reached = jnp.concatenate([blank[:, :1], jnp.logaddexp(blank[:, 1:-1], skipped)], 1)[:, :count]
        next_label = jnp.logaddexp(label, reached) + emitted
        next_blank = _after_label(blank, label) + pause
        kept = is_padded[:, None]
        state = jnp.where(kept, blank, next_blank), jnp.where(kept, label, next_label)
        return state, state

    nothing = jnp.zeros((batch, 1), logarithms.dtype)
    blank = jnp.concatenate([nothing, jnp.full((batch, count), never)], 1)
    xs = (jnp.moveaxis(emitted, 1, 0), jnp.moveaxis(pause, 1, 0), frames.T)
    (blank, label), (blanks, nonblanks) = lax.scan(step, (blank, jnp.full((batch, count), never)), xs)
    ends = _after_label(blank, label)
    length = jnp.sum(~symbols, 1, keepdims=True)
    losses = -jnp.squeeze(jnp.take_along_axis(ends, length, 1), 1)
    return losses, blanks.at[-1:].set(ends), nonblanks


def ctc_loss_with_forward_probs(
    logits: Any, logit_paddings: Any, labels: Any, label_paddings: Any, *, blank_id: int = 0, log_epsilon: Any = -1e5
) -> tuple[Array, Array, Array]:
    """`ctc_loss` with the logarithms of its forward probabilities.

    Args: as for `ctc_loss`.

    Returns:
      losses: (batch,).
      logalpha_blank: (frames, batch, symbols + 1): element n of a frame is the logarithm of the probability that n
        labels are written and the frame is blank. The last frame also includes the paths that end with label n.
      logalpha_nonblank: (frames, batch, symbols): the same for frames of label n. Elements that no path reaches are
        about log_epsilon.

    Raises: as for `ctc_loss`.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> paddings = jnp.zeros((1, 2)), jnp.zeros((1, 1))
    >>> losses, blank, label = optim.ctc_loss_with_forward_probs(
    ...     jnp.zeros((1, 2, 2)), paddings[0], jnp.array([[1]]), paddings[1]
    ... )
    >>> print(jnp.exp(label[:, 0, 0]).round(2))
    [0.5 0.5]
    """
    return _forward(*_checked(logits, logit_paddings, labels, label_paddings), blank_id, log_epsilon)


def ctc_loss(
    logits: Any, logit_paddings: Any, labels: Any, label_paddings: Any, *, blank_id: int = 0, log_epsilon: Any = -1e5
) -> Array:
    """Connectionist temporal classification: -log(probability that the frames, without repeats and blanks, are labels).

    Args:
      logits: (batch, frames, classes) floats, where one class is the blank.
      logit_paddings: (batch, frames): 1 for frames that do not count, else 0.
      labels: (batch, symbols) integers. They are not checked: a number outside of the classes gives NaN.
      label_paddings: (batch, symbols): 1 for symbols that do not count, else 0; they are at the end of a row.
      blank_id: the number of the blank's class.
      log_epsilon: the number that stands for log(0), large and negative.

    Returns: (batch,) losses; labels that do not fit into the frames give about -log_epsilon.
    Raises: DtypeError if logits are not floats or labels are not integers; ShapeError for other shapes.
    Source: Graves et al., Connectionist temporal classification, 2006.

    >>> from rlx import optim
    >>> import rlx.numpy as jnp
    >>> logits, labels = jnp.zeros((1, 2, 2)), jnp.array([[1]])
    >>> loss = optim.ctc_loss(logits, jnp.zeros((1, 2)), labels, jnp.zeros((1, 1)))
    >>> print(jnp.exp(-loss).round(2))
    [0.75]
    """
    return _forward(*_checked(logits, logit_paddings, labels, label_paddings), blank_id, log_epsilon)[0]
