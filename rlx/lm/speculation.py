"""Speculative decoding: a draft proposes tokens, and the model checks all of them in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx import nn, random
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import OptionError
from rlx.lm.decoder import longest_before_switch
from rlx.lm.generation import GREEDY, Model, prompts_of
from rlx.lm.prompt_cache import PromptCache
from rlx.lm.sampling import Sampling, processed

__all__ = ["lookup_draft", "model_draft", "speculate", "speculative_accept"]

# tokens so far -> tokens that may follow, and the probabilities that they were drawn with (None: they were not drawn)
Draft = Callable[[Sequence[int]], tuple[list[int], np.ndarray | None]]


def speculative_accept(proposed: Sequence[int], drawn_from: Any, wanted: Any, key: Any) -> tuple[int, int]:
    """The number of accepted tokens, and the token after them; all follow the distribution `wanted`.

    Args:
      proposed: n tokens.
      drawn_from: float32 [n, vocabulary]: the draft's probabilities; None: it was sure of each token.
      wanted: float32 [n + 1, vocabulary]: the model's probabilities.
      key: of rlx.random.

    A token is kept if u < wanted / drawn_from; the first that is not is replaced by a draw from
    max(wanted - drawn_from, 0).

    >>> import numpy as np, rlx
    >>> p = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
    >>> speculative_accept([1], p[:1], p, rlx.random.key(0))
    (1, 0)
    """
    u, v = map(np.asarray, _draws(key, len(proposed)))
    p = np.asarray(wanted, np.float64)

    def chance(n: int) -> np.ndarray:
        """The draft's probabilities of its n-th token."""
        if drawn_from is not None:
            return np.asarray(drawn_from[n], np.float64)
        sure = np.zeros(p.shape[1])
        sure[proposed[n]] = 1
        return sure

    kept = next((n for n, t in enumerate(proposed) if not u[n] * chance(n)[t] < p[n, t]), len(proposed))
    rest = np.maximum(p[kept] - chance(kept), 0) if kept < len(proposed) else p[kept]
    rest = rest if rest.sum() > 0 else p[kept]
    at = np.searchsorted(np.cumsum(rest), float(v) * rest.sum(), side="right")
    return kept, int(min(at, np.flatnonzero(rest)[-1]))


@partial(jit, static_argnums=(1,))
def _draws(key: Any, count: int) -> tuple[Any, Any]:
    """Uniform numbers: for each proposed token, and for the one behind those that are kept."""
    for_draws, for_rest = random.split(key)
    return random.uniform(for_draws, (count,)), random.uniform(for_rest)


def lookup_draft(count: int = 4, longest: int = 3) -> Draft:
    """Proposes the tokens that followed an earlier occurrence of the last tokens.

    >>> lookup_draft(2)([5, 6, 7, 8, 5, 6])
    ([7, 8], None)
    """

    def propose(tokens: Sequence[int]) -> tuple[list[int], None]:
        told = list(tokens)
        for size in range(min(longest, len(told) - 1), 0, -1):
            end = told[-size:]
            for start in range(len(told) - size - 1, -1, -1):
                if told[start : start + size] == end:
                    return told[start + size : start + size + count], None
        return [], None

    return propose


def model_draft(model: Model, count: int = 4) -> Draft:
    """Proposes the tokens of a smaller model with the same vocabulary. It computes only tokens that are new to it.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> len(model_draft(lm.Model(config, lm.random_parameters(config)), 3)([1, 2])[0])
    3
    """

    memory = PromptCache()

    def propose(tokens: Sequence[int]) -> tuple[list[int], None]:
        most = min(count, model.config.context - len(tokens))
        return list(model.generate(tokens, most, stop=(), prompt_cache=memory)) if most > 0 else [], None

    return propose


def speculate(
    model: Model,
    tokens: Sequence[int],
    draft: Draft,
    max_tokens: int = 128,
    sampling: Sampling = GREEDY,
    stop: Any = None,
) -> Iterator[int]:
    """The tokens of `model.generate`, several per step if the draft is right.

    Greedily it gives the same tokens; with a temperature, tokens of the same distribution.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> model = lm.Model(config, lm.random_parameters(config))
    >>> list(lm.speculate(model, [1, 2], lm.lookup_draft(), 9)) == list(model.generate([1, 2], 9))
    True
    """
    if sampling.repetition_penalty != 1:
        raise OptionError("speculate has no repetition penalty: it would differ from place to place.", "Leave it out.")
    ends = set(model.config.stop if stop is None else stop)
    room = 8
    _, prompts = prompts_of(tokens, model.config)
    if len(prompts) != 1:
        raise OptionError("speculate continues one prompt.", "Call it for each prompt.")
    logits, cache = model.start(prompts, max_tokens)
    told, known = prompts[0].tolist(), len(prompts[0])  # the cache contains the first `known` tokens
    key = random.key(sampling.seed)
    given = 0
    upcoming = np.asarray(logits)  # [1, vocabulary] after the known tokens
    pending: list[int] = []
    switch = longest_before_switch(model.config)
    while given < max_tokens:
        most = min(room - 1, max_tokens - given - 1)
        if switch is not None and known == switch and pending:  # from here on all keys are turned otherwise
            logits, cache = model.start([told], max_tokens - given)
            upcoming, known, pending = np.asarray(logits), len(told), []
        elif switch is not None and known <= switch:
            most = min(most, switch - len(told))
        proposed, drawn = draft(told)
        proposed = [t for t in proposed[:most] if 0 <= t < model.config.vocabulary]
        row = [*pending, *proposed]
        if row:
            found, cache = model.steps.advance(np.array([row]), cache, every=True, least=[0])  # as one by one
            behind = np.asarray(found)[0]
            places = behind if pending else np.concatenate([upcoming, behind])
        else:
            places = upcoming
        if sampling.greedy:
            choice = np.asarray(jnp.argmax(processed(places, sampling), axis=-1))
            kept = next((n for n, t in enumerate(proposed) if t != choice[n]), len(proposed))
            new = [*proposed[:kept], int(choice[kept])]
        else:
            key, own = random.split(key)
            wanted = np.asarray(nn.softmax(processed(places, sampling), axis=-1))
            kept, behind_kept = speculative_accept(proposed, drawn, wanted, own)
            new = [*proposed[:kept], behind_kept]
        for token in new:
            if token in ends:
                return
            yield token
            given += 1
        told += new
        known = len(told) - 1
        cache = cache.truncate([known])
        pending = new[-1:]
