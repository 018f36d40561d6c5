"""From logits to tokens: adjustments of logits in Hugging Face's order, and sampling with a key per sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rlx import lax, nn, random
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import OptionError
from rlx.transforms.vmap import vmap

__all__ = ["Sampling", "choose", "processed"]


@dataclass(frozen=True)
class Sampling:
    """The choice of the next token. Options at their default have no effect; they apply in this order.

    Args:
      bias: pairs (token, number that is added to its logit).
      repetition_penalty: logits of tokens that occurred are divided by it, negative ones multiplied.
      temperature: logits are divided by it; 0: choose the greatest logit.
      top_k: keep this number of the greatest logits; 0: all.
      top_p: keep the smallest set of tokens with this total probability.
      min_p: those with at least this share of the greatest's probability.
      typical_p: the same, with the tokens closest to the expected surprise first.
      seed: for sampling; each sequence of a batch has a separate key.

    Raises OptionError for numbers out of range.

    >>> from rlx.lm import Sampling
    >>> Sampling().greedy, Sampling(temperature=0.8, top_p=0.9).greedy
    (True, False)
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    bias: Mapping[int, float] | tuple[tuple[int, float], ...] = field(default=())
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.bias, Mapping):
            object.__setattr__(self, "bias", tuple(sorted(self.bias.items())))
        ranges = (
            ("temperature", 0 <= self.temperature < math.inf, "0 or more"),
            ("top_k", self.top_k >= 0, "0 (all) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
            ("typical_p", 0 < self.typical_p <= 1, "above 0 and at most 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0"),
        )
        for name, fits, wanted in ranges:
            if not fits:
                raise OptionError(f"Sampling got {name}={getattr(self, name)!r}.", f"It is {wanted}.")

    @property
    def greedy(self) -> bool:
        """Whether the greatest logit is taken."""
        return self.temperature == 0


def processed(logits: Any, sampling: Sampling, seen: Any = None) -> Any:
    """Logits [..., vocabulary] for sampling; excluded tokens have -inf.

    seen: bools of the same shape: which tokens are there already; for the penalty only.

    >>> import numpy as np
    >>> from rlx.lm import Sampling
    >>> processed(np.array([1.0, 2.0, 3.0], np.float32), Sampling(temperature=1.0, top_k=2)).tolist()
    [-inf, 2.0, 3.0]
    """
    logits = jnp.asarray(logits)
    if sampling.bias:
        tokens, numbers = zip(*sampling.bias, strict=True)
        logits = logits.at[..., np.array(tokens)].add(np.array(numbers, np.float32))
    if sampling.repetition_penalty != 1 and seen is not None:
        penalty = np.float32(sampling.repetition_penalty)
        logits = jnp.where(seen, jnp.where(logits < 0, logits * penalty, logits / penalty), logits)
    if sampling.temperature not in (0.0, 1.0):
        logits = logits / np.float32(sampling.temperature)
    if sampling.top_k:
        least = lax.top_k(logits, min(sampling.top_k, logits.shape[-1]))[0][..., -1:]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    if sampling.top_p < 1:
        logits = _most_likely(logits, sampling.top_p)
    if sampling.min_p:
        chances = nn.softmax(logits, axis=-1)
        least = np.float32(sampling.min_p) * jnp.max(chances, axis=-1, keepdims=True)
        logits = jnp.where(chances < least, -jnp.inf, logits)
    return _typical(logits, sampling.typical_p) if sampling.typical_p < 1 else logits


def _back(values: Any, order: Any) -> Any:
    """Sorted values where they came from."""
    return jnp.take_along_axis(values, jnp.argsort(order, axis=-1), axis=-1)


def _most_likely(logits: Any, share: float) -> Any:
    order = jnp.argsort(logits, axis=-1)
    below = jnp.cumsum(nn.softmax(jnp.take_along_axis(logits, order, axis=-1), axis=-1), axis=-1)
    before_last = jnp.arange(logits.shape[-1]) < logits.shape[-1] - 1
    gone = (below <= np.float32(1 - share)) & before_last
    return jnp.where(_back(gone, order), -jnp.inf, logits)


def _typical(logits: Any, share: float) -> Any:
    told = nn.log_softmax(logits, axis=-1)
    chances = jnp.exp(told)
    expected = -jnp.sum(jnp.where(chances > 0, chances * told, 0), axis=-1, keepdims=True)
    distance = jnp.abs(-told - expected)
    order = jnp.argsort(distance, axis=-1)
    ordered = jnp.take_along_axis(distance, order, axis=-1)
    together = jnp.cumsum(jnp.take_along_axis(chances, order, axis=-1), axis=-1)
    last = jnp.minimum(jnp.sum(together < np.float32(share), axis=-1, keepdims=True), logits.shape[-1] - 1)
    return jnp.where(distance > jnp.take_along_axis(ordered, last, axis=-1), -jnp.inf, logits)


@partial(jit, static_argnums=(1,))
def choose(logits: Any, sampling: Sampling, seen: Any, step: Any) -> Any:
    """The next token of each sequence: int32 [batch] of logits [batch, vocabulary]; `step` counts the draws so far."""
    found = processed(logits, sampling, seen)
    if sampling.greedy:
        return jnp.argmax(found, axis=-1).astype(np.int32)
    key = random.fold_in(random.key(sampling.seed), step)
    keys = vmap(lambda row: random.fold_in(key, row))(jnp.arange(found.shape[0]))
    return vmap(random.categorical)(keys, found).astype(np.int32)
