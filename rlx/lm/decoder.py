"""A decoder: logits of whole sequences, and step by step with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.lm.config import DecoderConfig, Rope
from rlx.lm.layers import Parameters, decoder_layer, embed, linear, normalise
from rlx.lm.rope import angles, frequencies

__all__ = ["Cache", "advance", "forward", "new_cache"]


class Cache(NamedTuple):
    """Keys and values of the positions so far, a pair of arrays for each layer, and how many positions there are.

    Arrays are [batch, key heads, capacity, features]; lengths: int32 [batch].

    >>> from rlx.lm import DecoderConfig, new_cache
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> new_cache(config, batch=1, capacity=4).layers[0][0].shape
    (1, 1, 4, 4)
    """

    layers: list[tuple[Any, Any]]
    lengths: Any

    @property
    def capacity(self) -> int:
        """How many positions have room."""
        return self.layers[0][0].shape[2]

    def truncate(self, lengths: Any) -> Cache:
        """The cache with fewer positions: what lies behind them is not looked at, and written over."""
        return Cache(self.layers, jnp.minimum(self.lengths, jnp.asarray(lengths, np.int32)))

    def fork(self) -> Cache:
        """A copy that can go on by itself."""
        return Cache([(k.copy(), v.copy()) for k, v in self.layers], self.lengths.copy())


def new_cache(config: DecoderConfig, batch: int, capacity: int, dtype: Any = np.float32) -> Cache:
    """An empty cache for sequences of at most `capacity` positions.

    >>> from rlx.lm import DecoderConfig
    >>> new_cache(DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, key_heads=1, inner=8), 1, 4).capacity
    4
    """
    shape = (batch, config.key_heads, capacity, config.head_dim)
    layers = [(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(config.layers)]
    return Cache(layers, jnp.zeros(batch, np.int32))


# ---------------------------------------------------------------- parts
def _ropes(config: DecoderConfig) -> tuple[Rope, ...]:
    return tuple(rope for rope in (config.rope, config.local_rope) if rope is not None)


def _turns(config: DecoderConfig, positions: Any, length: int) -> tuple[Any, ...]:
    """Cosines and sines for each rope of a config."""
    return tuple(angles(positions, *frequencies(rope, length)) for rope in _ropes(config))


def _rope_of(config: DecoderConfig, layer: int) -> tuple[Rope | None, int]:
    """The rope of a layer, and its number among those of the config."""
    local = config.local_rope is not None and config.window(layer) is not None
    return (config.local_rope, 1) if local else (config.rope, 0)


def _begin(tokens: Any, positions: Any, parameters: Parameters, config: DecoderConfig) -> Any:
    x = embed(tokens, parameters["embedding"], config)
    return x + parameters["positions"]["weight"][positions] if config.learned_positions else x


def _logits(x: Any, parameters: Parameters, config: DecoderConfig) -> Any:
    head = parameters["embedding"] if config.tied else parameters["head"]
    found = linear(normalise(x, parameters["norm"], config), head)
    cap = config.logit_softcap
    return found if cap is None else jnp.tanh(found / cap) * cap


def forward(parameters: Parameters, tokens: Any, config: DecoderConfig, lengths: Any = None) -> Any:
    """The logits at every position of sequences, in one pass without a cache.

    Args:
      parameters: of the decoder, as `rlx.lm.load` gives them.
      tokens: ints [batch, time].
      config: a DecoderConfig; static in compiled functions.
      lengths: accepted for sequences of different lengths: what stands behind one's end is not looked at by what is before.

    Returns float32 [batch, time, vocabulary]. It is a pure function, to be differentiated and compiled.

    >>> import numpy as np
    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8, rope=lm.Rope(dims=4))
    >>> lm.forward(lm.random_parameters(config, seed=0), np.array([[1, 2, 3]]), config).shape
    (1, 3, 9)
    """
    tokens = jnp.asarray(tokens)
    b, time = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(time), (b, time))
    turns = _turns(config, positions, time)
    x = _begin(tokens, positions, parameters, config)
    for number, layer in enumerate(parameters["layers"]):
        rope, which = _rope_of(config, number)
        x, _ = decoder_layer(
            x, layer, config, rope, turns[which] if rope else None,
            lambda key, value: (key, value, positions, None), config.window(number),
        )  # fmt: skip
    return _logits(x, parameters, config)


# ---------------------------------------------------------------- step by step
def _head_part(parameters: Parameters) -> dict[str, Any]:
    return {name: part for name, part in parameters.items() if name != "layers"}


@partial(jit, static_argnums=(3, 4))
def _begin_step(tokens: Any, lengths: Any, parameters: Any, config: DecoderConfig, length: int) -> Any:
    positions = lengths[:, None] + jnp.arange(tokens.shape[1])
    x = _begin(tokens, jnp.minimum(positions, config.context - 1), parameters, config)
    return x, positions, _turns(config, positions, length)


@partial(jit, static_argnums=(6, 7, 8), donate_argnums=(4, 5))
def _layer_step(
    x: Any, positions: Any, turns: Any, parameters: Any, keys: Any, values: Any,
    config: DecoderConfig, rope: Rope | None, window: int | None,
) -> Any:  # fmt: skip
    def remember(key: Any, value: Any) -> Any:
        kept = tuple(_write(old, new.astype(old.dtype), positions) for old, new in ((keys, key), (values, value)))
        return *(y.astype(np.float32) for y in kept), positions, kept

    x, kept = decoder_layer(x, parameters, config, rope, turns, remember, window)
    return x, *kept


def _write(cache: Any, new: Any, positions: Any) -> Any:
    """New keys [batch, heads, time, features] at positions of the cache."""
    if cache.shape[0] == 1:
        return lax.dynamic_update_slice(cache, new, (0, 0, positions[0, 0], 0))
    rows = jnp.arange(cache.shape[0])[:, None, None]
    heads = jnp.arange(cache.shape[1])[None, :, None]
    return cache.at[rows, heads, positions[:, None, :]].set(new, mode="drop")


@partial(jit, static_argnums=(3,))
def _finish_step(x: Any, last: Any, parameters: Any, config: DecoderConfig) -> Any:
    chosen = jnp.take_along_axis(x, last[:, None, None], axis=1)
    return _logits(chosen, parameters, config)[:, 0]


@partial(jit, static_argnums=(2,))
def _finish_all(x: Any, parameters: Any, config: DecoderConfig) -> Any:
    return _logits(x, parameters, config)


def advance(
    parameters: Parameters, tokens: Any, cache: Cache, config: DecoderConfig, counts: Any = None, every: bool = False
) -> tuple[Any, Cache]:
    """The logits behind more tokens, and the cache with them. Its programs are compiled once for each number of tokens.

    Args:
      tokens: int32 [batch, time]: the next ones of each sequence.
      cache: whose arrays are given away.
      counts: how many of the tokens of each sequence count, at least 1; None: all.
      every: logits at every position instead of behind the last that counts.

    Returns float32 [batch, vocabulary] (or [batch, time, vocabulary]) and the cache.
    """
    tokens = jnp.asarray(tokens, np.int32)
    time = tokens.shape[1]
    counts = np.full(tokens.shape[0], time, np.int32) if counts is None else np.asarray(counts, np.int32)
    rest = _head_part(parameters)
    x, positions, turns = _begin_step(tokens, cache.lengths, rest, config, _length_class(config, cache.capacity))
    layers: list[tuple[Any, Any]] = []
    for number, (layer, kept) in enumerate(zip(parameters["layers"], cache.layers, strict=True)):
        rope, which = _rope_of(config, number)
        x, *new = _layer_step(
            x, positions, turns[which] if rope else None, layer, *kept, config, rope, config.window(number)
        )
        layers.append((new[0], new[1]))
    found = _finish_all(x, rest, config) if every else _finish_step(x, jnp.asarray(counts - 1), rest, config)
    return found, Cache(layers, cache.lengths + jnp.asarray(counts))


def _length_class(config: DecoderConfig, capacity: int) -> int:
    """What frequencies are computed for: they change with the length for some kinds of scaling only."""
    changing = any(rope.scaling in ("dynamic", "longrope") for rope in _ropes(config))
    return capacity if changing else 0


