"""Vectors of texts, and how well a model predicts a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import nn
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import OptionError
from rlx.lm.config import DecoderConfig, EncoderConfig
from rlx.lm.decoder import states
from rlx.lm.encoder import Encoder
from rlx.lm.encoder import encode as encoder_states
from rlx.lm.generation import Model, prompts_of

__all__ = ["POOLINGS", "embed_texts", "perplexity"]

POOLINGS = ("mean", "last", "first")


def embed_texts(
    model: Model | Encoder, tokens: Sequence[Sequence[int]], pooling: str = "mean", normalised: bool = True
) -> Any:
    """A vector for each of several sequences of tokens: float32 [sequences, width].

    Args:
      tokens: lists of ids of any lengths.
      pooling: "mean" of the last layer's vectors, or the "last" or the "first" of them.
      normalised: vectors have length one.

    Raises OptionError for another pooling, an empty sequence, and one that is longer than the context.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> lm.embed_texts(lm.Model(config, lm.random_parameters(config)), [[1, 2, 3], [4]]).shape
    (2, 8)
    """
    if pooling not in POOLINGS:
        raise OptionError(f"There is no pooling {pooling!r}.", f"There are: {', '.join(POOLINGS)}.")
    rows = [np.asarray(row) for row in tokens]
    if isinstance(model, Model):
        _, rows = prompts_of(tokens, model.config)
    lengths = np.array([row.size for row in rows], np.int32)
    if not rows or not lengths.all() or lengths.max() > model.config.context:
        raise OptionError(
            f"Sequences of {lengths.min(initial=0)} to {lengths.max(initial=0)} tokens for a context of"
            f" {model.config.context}.",
            "Each has at least one token, and fits.",
        )
    padded = np.zeros((len(rows), min(1 << int(lengths.max() - 1).bit_length(), model.config.context)), np.int32)
    for target, row in zip(padded, rows, strict=True):
        target[: row.size] = row
    found = _pooled(model.parameters, padded, lengths, model.config, pooling)
    return found / jnp.linalg.norm(found, axis=-1, keepdims=True) if normalised else found


def _pooled_by(parameters: Any, tokens: Any, lengths: Any, config: DecoderConfig | EncoderConfig, pooling: str) -> Any:
    there = jnp.arange(tokens.shape[1]) < lengths[:, None]
    if isinstance(config, EncoderConfig):
        x = encoder_states(parameters, tokens, config, there)
    else:
        x = states(parameters, tokens, config)  # later positions do not matter to earlier ones
    if pooling == "mean":
        return jnp.sum(jnp.where(there[..., None], x, 0), axis=1) / lengths[:, None]
    place = lengths - 1 if pooling == "last" else jnp.zeros_like(lengths)
    return jnp.take_along_axis(x, place[:, None, None], axis=1)[:, 0]


_pooled = jit(_pooled_by, static_argnums=(3, 4))


def perplexity(model: Model, tokens: Sequence[int], context: int = 512) -> float:
    """The exponential of the mean negative log-probability of a text's tokens.

    The text is cut into windows of `context` tokens, and the second half of each counts, as in llama.cpp's tool: what
    it counts has at least half of a window before it. A begin token of the model is at the start of each window.

    Raises OptionError for a text that is shorter than a window.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> lm.perplexity(lm.Model(config, lm.random_parameters(config)), [1, 2, 3, 4] * 4, context=8) > 1
    True
    """
    _, (told, *_) = prompts_of(tokens, model.config)
    if context < 4 or context > model.config.context or told.size < context:
        raise OptionError(
            f"A text of {told.size} tokens in windows of {context}, for a context of {model.config.context}.",
            "Give a longer text, or smaller windows of at least 4 tokens.",
        )
    begin = None
    if model.tokenizer is not None and model.tokenizer.special.get("bos") in model.tokenizer.encode(""):
        begin = model.tokenizer.special["bos"]
    half, total, count = context // 2, 0.0, 0
    for start in range(0, told.size - context + 1, context):
        window = told[start : start + context].copy()
        if begin is not None:
            window[0] = begin
        total -= float(_sum_likely(model.logits([window])[0], window, half))
        count += context - half - 1
    return math.exp(total / count)


def _sum_of(logits: Any, tokens: Any, half: int) -> Any:
    told = nn.log_softmax(logits[half:-1], axis=-1)
    return jnp.sum(jnp.take_along_axis(told, tokens[half + 1 :, None], axis=-1))


_sum_likely = jit(_sum_of, static_argnums=2)
