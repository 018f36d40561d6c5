"""From logits to tokens: adjustments of logits in Hugging Face's order, and sampling with a key per sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlx import lax, nn, random
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import OptionError
from rlx.transforms.vmap import vmap

__all__ = ["Numbers", "Sampling", "adjusted", "bias_of", "choose", "level_of", "likely", "numbers_of", "processed"]


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
            ("top_k", isinstance(self.top_k, (int, np.integer)) and self.top_k >= 0, "an integer, 0 (all) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
            ("typical_p", 0 < self.typical_p <= 1, "above 0 and at most 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0"),
            ("seed", isinstance(self.seed, (int, np.integer)), "an integer"),
        )
        for name, fits, wanted in ranges:
            if not fits:
                raise OptionError(f"Sampling got {name}={getattr(self, name)!r}.", f"It is {wanted}.")

    @property
    def greedy(self) -> bool:
        """Whether the greatest logit is taken."""
        return self.temperature == 0


class Numbers(NamedTuple):
    """The options of several sequences as arrays, so that requests share programs: each [sequences].

    keys: uint32 [sequences, words], the data of a key of each seed; rows: int32, the number of a sequence within its
    request.
    """

    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    typical_p: Any
    repetition_penalty: Any
    keys: Any
    rows: Any


# what has to be computed, each with all before it; a program is made for each, and not for each request
_LEVELS = ("greedy", "plain", "sorted", "typical")


def level_of(samplings: Sequence[Sampling]) -> str:
    """The first of the levels that computes all options of these requests.

    >>> from rlx.lm import Sampling
    >>> level_of([Sampling()]), level_of([Sampling(), Sampling(temperature=0.5, top_p=0.9)])
    ('greedy', 'sorted')
    """
    needed = 0
    for sampling in samplings:
        if not sampling.greedy or sampling.min_p:
            needed = max(needed, 1)
        if sampling.top_k or sampling.top_p < 1:
            needed = max(needed, 2)
        if sampling.typical_p < 1:
            needed = 3
    return _LEVELS[needed]


def numbers_of(samplings: Sequence[Sampling], rows: Sequence[int]) -> Numbers:
    """The options of sequences as arrays; rows: the number of each within its request."""
    kinds = {"top_k": np.int32}
    names = Numbers._fields[:-2]
    fields = [np.array([getattr(s, name) for s in samplings], kinds.get(name, np.float32)) for name in names]
    keys = np.stack([np.asarray(random.key_data(random.key(s.seed))) for s in samplings])
    return Numbers(*fields, keys, np.asarray(rows, np.int32))


def bias_of(samplings: Sequence[Sampling], vocabulary: int) -> np.ndarray | None:
    """What is added to the logits of each sequence: float32 [sequences, vocabulary]; None if nothing is.

    Raises OptionError for tokens outside the vocabulary.
    """
    if not any(s.bias for s in samplings):
        return None
    found = np.zeros((len(samplings), vocabulary), np.float32)
    for row, sampling in zip(found, samplings, strict=True):
        for token, number in dict(sampling.bias).items():
            if not 0 <= token < vocabulary:
                raise OptionError(f"Sampling has a bias for the token {token}, outside the vocabulary of {vocabulary}.")
            row[token] = number
    return found


def processed(logits: Any, sampling: Sampling, seen: Any = None) -> Any:
    """Logits [..., vocabulary] for sampling; excluded tokens have -inf.

    seen: bools of the same shape: which tokens are there already; for the penalty only.

    >>> import numpy as np
    >>> from rlx.lm import Sampling
    >>> processed(np.array([1.0, 2.0, 3.0], np.float32), Sampling(temperature=1.0, top_k=2)).tolist()
    [-inf, 2.0, 3.0]
    """
    logits = jnp.asarray(logits)
    flat = logits.reshape(-1, logits.shape[-1])
    rows = [sampling] * flat.shape[0]
    given = None if seen is None else jnp.asarray(seen).reshape(flat.shape)
    found = adjusted(flat, numbers_of(rows, range(len(rows))), level_of(rows), given, bias_of(rows, flat.shape[-1]))
    return found.reshape(logits.shape)


@partial(jit, static_argnums=(2,))
def adjusted(logits: Any, numbers: Numbers, level: str, seen: Any = None, bias: Any = None) -> Any:
    """Logits [sequences, vocabulary] for sampling; excluded tokens have -inf."""
    given = Numbers(*(field[:, None] for field in numbers))
    if bias is not None:
        logits = logits + bias
    if seen is not None:
        penalty = given.repetition_penalty
        logits = jnp.where(seen, jnp.where(logits < 0, logits * penalty, logits / penalty), logits)
    logits = logits / jnp.where(given.temperature == 0, 1, given.temperature)
    if level in _LEVELS[2:]:
        logits = _most_likely(logits, given.top_k, given.top_p)
    if level in _LEVELS[1:]:
        chances = nn.softmax(logits, axis=-1)
        logits = jnp.where(chances < given.min_p * jnp.max(chances, axis=-1, keepdims=True), -jnp.inf, logits)
    return _typical(logits, given.typical_p) if level == "typical" else logits


def _most_likely(logits: Any, count: Any, share: Any) -> Any:
    """top_k, then top_p, by one sort."""
    size = logits.shape[-1]
    order = jnp.argsort(logits, axis=-1)
    rising = jnp.take_along_axis(logits, order, axis=-1)
    first = jnp.where(count == 0, 0, jnp.maximum(size - count, 0))
    rising = jnp.where(rising < jnp.take_along_axis(rising, first, axis=-1), -jnp.inf, rising)
    below = jnp.cumsum(nn.softmax(rising, axis=-1), axis=-1)
    gone = (share < 1) & (below <= 1 - share) & (jnp.arange(size) < size - 1)
    rows = jnp.arange(logits.shape[0])[:, None]
    return jnp.zeros_like(logits).at[rows, order].set(jnp.where(gone, -jnp.inf, rising))


def _typical(logits: Any, share: Any) -> Any:
    told = nn.log_softmax(logits, axis=-1)
    chances = jnp.exp(told)
    expected = -jnp.sum(jnp.where(chances > 0, chances * told, 0), axis=-1, keepdims=True)
    distance = jnp.abs(-told - expected)
    order = jnp.argsort(distance, axis=-1)
    ordered = jnp.take_along_axis(distance, order, axis=-1)
    together = jnp.cumsum(jnp.take_along_axis(chances, order, axis=-1), axis=-1)
    last = jnp.minimum(jnp.sum(together < share, axis=-1, keepdims=True), logits.shape[-1] - 1)
    gone = (share < 1) & (distance > jnp.take_along_axis(ordered, last, axis=-1))
    return jnp.where(gone, -jnp.inf, logits)


@partial(jit, static_argnums=(2,))
def choose(logits: Any, numbers: Numbers, level: str, seen: Any, bias: Any, steps: Any) -> Any:
    """The next token of each sequence: int32 [sequences] of logits [sequences, vocabulary].

    steps: ints [sequences]: how many tokens each has drawn.
    """
    found = adjusted(logits, numbers, level, seen, bias)
    best = jnp.argmax(found, axis=-1).astype(np.int32)
    if level == "greedy":
        return best
    drawn = vmap(_draw)(numbers.keys, numbers.rows, steps, found)
    return jnp.where(numbers.temperature == 0, best, drawn)


def _draw(words: Any, row: Any, step: Any, logits: Any) -> Any:
    key = random.fold_in(random.fold_in(random.wrap_key_data(words), step), row)
    return random.categorical(key, logits).astype(np.int32)


@partial(jit, static_argnums=(2,))
def likely(logits: Any, chosen: Any, count: int) -> tuple[Any, Any, Any]:
    """The log-probabilities of chosen tokens [sequences], and the `count` likeliest tokens with theirs."""
    told = nn.log_softmax(logits, axis=-1)
    best, tokens = lax.top_k(told, count)
    return jnp.take_along_axis(told, chosen[:, None], axis=-1)[:, 0], tokens, best
