"""A decoder: logits of whole sequences, and step by step with a cache of keys and values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import OptionError
from rlx.lm.config import DecoderConfig, Rope
from rlx.lm.layers import Parameters, Place, Remembered, decoder_layer, embed, linear, normalise
from rlx.lm.rope import angles, frequencies
from rlx.transforms.checkpoint import checkpoint_name
from rlx.trees import tree
from rlx.trees.structure import TreeDef

__all__ = ["Cache", "Steps", "forward", "new_cache", "readout"]


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
    filled: int = 0  # at most so many positions are written, padding included

    @property
    def capacity(self) -> int:
        """How many positions have room."""
        return self.layers[0][0].shape[2]

    def truncate(self, lengths: Any) -> Cache:
        """The cache with fewer positions: what lies behind them is not looked at, and written over."""
        kept = np.minimum(np.asarray(self.lengths), np.asarray(lengths, np.int32))
        return Cache(self.layers, jnp.asarray(kept), int(kept.max()))

    def fork(self) -> Cache:
        """A copy that can go on by itself."""
        return Cache([(k.copy(), v.copy()) for k, v in self.layers], self.lengths.copy(), self.filled)


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


def readout(parameters: Parameters, x: Any, config: DecoderConfig) -> Any:
    """Logits of what comes out of layers: the last norm and the product with the vocabulary.

    Args: x: floats [..., width], behind the last layer, or behind an earlier one to see what it would say.

    Returns float32 [..., vocabulary].

    >>> import numpy as np
    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> lm.readout(lm.random_parameters(config), np.ones((2, 8), np.float32), config).shape
    (2, 9)
    """
    head = parameters["embedding"] if config.tied else parameters["head"]
    found = linear(normalise(jnp.asarray(x), parameters["norm"], config), head)
    cap = config.logit_softcap
    return found if cap is None else jnp.tanh(found / cap) * cap


def forward(parameters: Parameters, tokens: Any, config: DecoderConfig) -> Any:
    """The logits at every position of sequences, in one pass without a cache; what follows a position does not matter.

    Args:
      parameters: of the decoder, as `rlx.lm.load` gives them.
      tokens: ints [batch, time].
      config: a DecoderConfig; static in compiled functions.

    Returns float32 [batch, time, vocabulary]. It is a pure function, to be differentiated and compiled.

    Values have names that `rlx.quant.taps_of` and policies of `rlx.checkpoint` know: "embedding", what comes out of
    each layer ("layers.0", ...), and the weights of its attention [batch, heads, time, keys] ("layers.0.attention").

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
    x = checkpoint_name(_begin(tokens, positions, parameters, config), "embedding")
    for number, layer in enumerate(parameters["layers"]):
        rope, which = _rope_of(config, number)
        place = Place(rope, turns[which] if rope else None, config.window(number), f"layers.{number}")
        x, _ = decoder_layer(x, layer, config, place, lambda k, v: Remembered(k, v, jnp.arange(time), positions))
    return readout(parameters, x, config)


# ---------------------------------------------------------------- step by step
@lru_cache(maxsize=256)
def _layer_program(config: DecoderConfig, rope: Rope | None, window: int | None, structure: TreeDef) -> Any:
    """A layer's step, compiled; its parameters come as leaves, which takes less time than as a tree."""

    def step(x: Any, positions: Any, turns: Any, leaves: Any, keys: Any, values: Any) -> Any:
        def remember(key: Any, value: Any) -> Any:
            kept = tuple(_write(old, new.astype(old.dtype), positions) for old, new in ((keys, key), (values, value)))
            k, v = (y.astype(np.float32) for y in kept)
            return Remembered(k, v, jnp.arange(k.shape[2]), positions, kept)

        x, kept = decoder_layer(x, tree.unflatten(structure, leaves), config, Place(rope, turns, window), remember)
        return x, *kept

    return jit(step, donate_argnums=(4, 5))


@lru_cache(maxsize=256)
def _begin_program(config: DecoderConfig, length: int, structure: TreeDef) -> Any:
    def step(tokens: Any, lengths: Any, leaves: Any) -> Any:
        positions = lengths[:, None] + jnp.arange(tokens.shape[1], dtype=np.int32)
        bounded = jnp.minimum(positions, config.context - 1)
        x = _begin(tokens, bounded, tree.unflatten(structure, leaves), config)
        return x, positions, _turns(config, positions, length)

    return jit(step)


@lru_cache(maxsize=256)
def _finish_program(config: DecoderConfig, structure: TreeDef) -> Any:
    def step(x: Any, last: Any, leaves: Any) -> Any:
        """Logits behind the last token of each sequence; at all of them where last is None."""
        chosen = x if last is None else jnp.take_along_axis(x, last[:, None, None], axis=1)
        found = readout(tree.unflatten(structure, leaves), chosen, config)
        return found if last is None else found[:, 0]

    return jit(step)


def _write(cache: Any, new: Any, positions: Any) -> Any:
    """New keys [batch, heads, time, features] at positions of the cache."""
    if cache.shape[0] == 1:
        return lax.dynamic_update_slice(cache, new, (0, 0, positions[0, 0], 0))
    rows = jnp.arange(cache.shape[0])[:, None, None]
    heads = jnp.arange(cache.shape[1])[None, :, None]
    return cache.at[rows, heads, positions[:, None, :]].set(new, mode="drop")


class Steps:
    """A decoder that goes on token by token: its compiled parts, and its parameters as leaves.

    A program is made for each kind of layer, not for each layer, and for each number of tokens that come at once.

    >>> import numpy as np
    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8, rope=lm.Rope(dims=4))
    >>> steps = lm.Steps(lm.random_parameters(config), config)
    >>> logits, cache = steps.advance(np.array([[1, 2]]), lm.new_cache(config, batch=1, capacity=8))
    >>> logits.shape, cache.lengths.tolist()
    ((1, 9), [2])
    """

    def __init__(self, parameters: Parameters, config: DecoderConfig) -> None:
        self.config = config
        outer = {name: part for name, part in parameters.items() if name != "layers"}
        self._outer, self._structure = tree.flatten(outer)
        self._layers = []
        for number, layer in enumerate(parameters["layers"]):
            leaves, structure = tree.flatten(layer)
            rope, which = _rope_of(config, number)
            program = _layer_program(config, rope, config.window(number), structure)
            self._layers.append((program, None if rope is None else which, leaves))

    def advance(self, tokens: Any, cache: Cache, counts: Any = None, every: bool = False) -> tuple[Any, Cache]:
        """The logits behind more tokens, and the cache with them.

        Args:
          tokens: int32 [batch, time]: the next ones of each sequence.
          cache: whose arrays are given away.
          counts: ints [batch]: how many of the tokens of each sequence count, at least 1; None: all.
          every: logits at every position instead of behind the last that counts.

        Returns float32 [batch, vocabulary] (or [batch, time, vocabulary]) and the cache.

        Raises OptionError where the cache has no room for so many tokens.
        """
        tokens = jnp.asarray(tokens, np.int32)
        time = tokens.shape[1]
        if cache.filled + time > cache.capacity:
            raise OptionError(
                f"The cache has room for {cache.capacity} positions; {cache.filled} are there and {time} come.",
                "Make it larger: rlx.lm.new_cache(config, batch, capacity).",
            )
        length = cache.capacity if _changes_with_length(self.config) else 0
        begin = _begin_program(self.config, length, self._structure)
        x, positions, turns = begin(tokens, cache.lengths, self._outer)
        layers: list[tuple[Any, Any]] = []
        for (program, which, leaves), kept in zip(self._layers, cache.layers, strict=True):
            x, *new = program(x, positions, None if which is None else turns[which], leaves, *kept)
            layers.append((new[0], new[1]))
        if counts is None:
            counts = np.full(tokens.shape[0], time, np.int32)
        counts = jnp.asarray(counts, np.int32)
        finish = _finish_program(self.config, self._structure)
        found = finish(x, None if every else counts - 1, self._outer)
        return found, Cache(layers, cache.lengths + counts, cache.filled + time)


def _changes_with_length(config: DecoderConfig) -> bool:
    """Whether frequencies depend on how long sequences may become."""
    return any(rope.scaling in ("dynamic", "longrope") for rope in _ropes(config))
