"""A decoder: logits of whole sequences, and step by step with a cache of keys and values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import OptionError
from rlx.lm.caches import Cache, key_positions, read, rows_of, written
from rlx.lm.config import DecoderConfig, Rope
from rlx.lm.layers import Parameters, Place, Remembered, decoder_layer, embed, linear, normalise
from rlx.lm.rope import Turns, angles, changes_with_length, frequencies, switch_length
from rlx.transforms.checkpoint import checkpoint_name
from rlx.trees import tree
from rlx.trees.structure import TreeDef

__all__ = ["Steps", "forward", "longest_before_switch", "readout", "states"]


# ---------------------------------------------------------------- parts
def _ropes(config: DecoderConfig) -> tuple[Rope, ...]:
    return tuple(rope for rope in (config.rope, config.local_rope) if rope is not None)


def _tables(config: DecoderConfig, positions: Any, length: Any) -> tuple[Any, ...]:
    """Cosines and sines for each rope of a config; length: of the sequences, an int or as positions."""
    return tuple(
        angles(positions, *frequencies(rope, length if changes_with_length(rope) else 0)) for rope in _ropes(config)
    )


def _turns(rope: Rope | None, tables: Any, positions: Any, length: int | None) -> Turns | None:
    """A rope's tables with their inputs; length: the length for its frequencies, None if unknown."""
    if rope is None:
        return None
    if length is None:
        return Turns(*tables)
    return Turns(*tables, positions[:, 0], *frequencies(rope, length))


def _rope_of(config: DecoderConfig, layer: int) -> tuple[Rope | None, int]:
    """The rope of a layer, and its index in the config."""
    if layer in config.ropeless:
        return None, 0
    local = config.local_rope is not None and config.window(layer) is not None
    return (config.local_rope, 1) if local else (config.rope, 0)


def _begin(tokens: Any, positions: Any, parameters: Parameters, config: DecoderConfig) -> Any:
    x = embed(tokens, parameters["embedding"], config)
    return x + parameters["positions"]["weight"][positions] if config.learned_positions else x


def readout(parameters: Parameters, x: Any, config: DecoderConfig) -> Any:
    """Logits of a layer's output: the last norm and the product with the vocabulary.

    Args: x: floats [..., width], the output of the last layer, or of an earlier one for its prediction.

    Returns float32 [..., vocabulary].

    >>> import numpy as np
    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> lm.readout(lm.random_parameters(config), np.ones((2, 8), np.float32), config).shape
    (2, 9)
    """
    return _logits(parameters, normalise(jnp.asarray(x), parameters["norm"], config), config)


def _logits(parameters: Parameters, x: Any, config: DecoderConfig) -> Any:
    """The product of normalised states with the vocabulary."""
    found = linear(x, parameters["embedding"] if config.tied else parameters["head"])
    found = found if config.logit_scale == 1 else found * np.float32(config.logit_scale)
    cap = config.logit_softcap
    return found if cap is None else jnp.tanh(found / cap) * cap


def forward(parameters: Parameters, tokens: Any, config: DecoderConfig) -> Any:
    """The logits at every position of sequences, in one pass without a cache; later positions do not matter.

    Args:
      parameters: of the decoder, as `rlx.lm.load` gives them.
      tokens: ints [batch, time].
      config: a DecoderConfig; static in compiled functions.

    Returns float32 [batch, time, vocabulary]. It is a pure function, to be differentiated and compiled.

    Values have names that `rlx.quant.taps_of` and policies of `rlx.checkpoint` know: "embedding", the output of
    each layer ("layers.0", ...), and the weights of its attention [batch, heads, time, keys] ("layers.0.attention").

    >>> import numpy as np
    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8, rope=lm.Rope(dims=4))
    >>> lm.forward(lm.random_parameters(config, seed=0), np.array([[1, 2, 3]]), config).shape
    (1, 3, 9)
    """
    return _logits(parameters, states(parameters, tokens, config), config)


def states(parameters: Parameters, tokens: Any, config: DecoderConfig) -> Any:
    """The normalised output of the last layer, float32 [batch, time, width]; arguments and names as `forward`.

    >>> import numpy as np
    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8, rope=lm.Rope(dims=4))
    >>> lm.states(lm.random_parameters(config), np.array([[1, 2, 3]]), config).shape
    (1, 3, 8)
    """
    tokens = jnp.asarray(tokens)
    b, time = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(time), (b, time))
    tables = _tables(config, positions, time)
    x = checkpoint_name(_begin(tokens, positions, parameters, config), "embedding")
    for number, layer in enumerate(parameters["layers"]):
        rope, which = _rope_of(config, number)
        turns = _turns(rope, tables[which] if rope else None, positions, time)
        place = Place(rope, turns, config.window(number), f"layers.{number}")
        x, _ = decoder_layer(x, layer, config, place, lambda k, v: Remembered(k, v, jnp.arange(time), positions))
    return normalise(x, parameters["norm"], config)


# ---------------------------------------------------------------- step by step
@lru_cache(maxsize=256)
def _layer_program(config: DecoderConfig, rope: Rope | None, window: int | None, structure: TreeDef, ring: bool) -> Any:
    """A layer's step, compiled; its parameters come as leaves, which takes less time than as a tree."""

    length = None if _changes_with_length(config) else 0

    def step(x: Any, positions: Any, tables: Any, leaves: Any, keys: Any, values: Any, table: Any) -> Any:
        def remember(key: Any, value: Any) -> Remembered:
            kept = tuple(written(old, new, positions, table, ring) for old, new in ((keys, key), (values, value)))
            k, v = (read(store, table) for store in kept)
            return Remembered(k, v, key_positions(k.shape[2], positions, ring), positions, kept)

        place = Place(rope, _turns(rope, tables, positions, length), window)
        x, kept = decoder_layer(x, tree.unflatten(structure, leaves), config, place, remember)
        return x, *kept

    return jit(step, donate_argnums=(4, 5))


@lru_cache(maxsize=256)
def _begin_program(config: DecoderConfig, structure: TreeDef) -> Any:
    def step(tokens: Any, lengths: Any, least: Any, leaves: Any) -> Any:
        positions = lengths[:, None] + jnp.arange(tokens.shape[1], dtype=np.int32)
        bounded = jnp.minimum(positions, config.context - 1)
        x = _begin(tokens, bounded, tree.unflatten(structure, leaves), config)
        seen = 0 if least is None else jnp.maximum(positions + 1, least[:, None])
        return x, positions, _tables(config, positions, seen)

    return jit(step)


@lru_cache(maxsize=256)
def _finish_program(config: DecoderConfig, structure: TreeDef) -> Any:
    def step(x: Any, last: Any, leaves: Any) -> Any:
        """Logits after the last token of each sequence; at all tokens if last is None."""
        chosen = x if last is None else jnp.take_along_axis(x, last[:, None, None], axis=1)
        found = readout(tree.unflatten(structure, leaves), chosen, config)
        return found if last is None else found[:, 0]

    return jit(step)


class Steps:
    """A decoder that runs token by token: its compiled parts, and its parameters as leaves.

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
            window = config.window(number)
            programs = [_layer_program(config, rope, window, structure, ring) for ring in (False, True)]
            self._layers.append((programs, None if rope is None else which, leaves, window))

    def advance(
        self, tokens: Any, cache: Cache, counts: Any = None, every: bool = False, least: Any = None
    ) -> tuple[Any, Cache]:
        """The logits behind more tokens, and the cache with them.

        Args:
          tokens: int32 [batch, time]: the next ones of each sequence.
          cache: whose arrays are given away.
          counts: ints [batch]: the number of valid tokens of each sequence, at least 1; None: all.
          every: logits at every position instead of only after the last valid token.
          least: ints [batch], for rotary positions whose angles depend on the length of a sequence ("dynamic",
            "longrope"): a token's angles use the length of the sequence up to it, or `least` if that is
            longer. None: the length of the sequences with these tokens.

        Returns float32 [batch, vocabulary] (or [batch, time, vocabulary]) and the cache.

        Raises OptionError if the tokens do not fit into the cache, or if sequences become so long that all
        their tokens have other angles ("longrope"): start these again.
        """
        tokens = jnp.asarray(tokens, np.int32)
        time = tokens.shape[1]
        if cache.filled + time > cache.capacity:
            raise OptionError(
                f"The cache has {cache.capacity} positions; {cache.filled} are used and {time} are added.",
                "Make it larger: rlx.lm.new_cache(config, batch, capacity).",
            )
        cache = cache.with_room(time)
        if counts is None:
            counts = np.full(tokens.shape[0], time, np.int32)
        seen = _seen(self.config, cache, np.asarray(counts), least) if _changes_with_length(self.config) else None
        begin = _begin_program(self.config, self._structure)
        x, positions, tables = begin(tokens, cache.lengths, seen, self._outer)
        layers: list[tuple[Any, Any]] = []
        table = None if cache.table is None else jnp.asarray(cache.table)
        for (programs, which, leaves, window), kept in zip(self._layers, cache.layers, strict=True):
            ring = window is not None and table is None and _goes_around(kept[0], window, cache, time)
            turned = None if which is None else tables[which]
            x, *new = programs[ring](x, positions, turned, leaves, *kept, table)
            layers.append((new[0], new[1]))
        shortest = int(np.min(counts))
        counts = jnp.asarray(counts, np.int32)
        finish = _finish_program(self.config, self._structure)
        found = finish(x, None if every else counts - 1, self._outer)
        if cache.pool is not None:  # others that share its pages find them there
            cache.pool.layers[:] = layers
            layers = cache.pool.layers
        ahead = max(cache.ahead, time) - shortest
        lengths = cache.lengths + counts
        return found, cache._replace(layers=layers, lengths=lengths, filled=cache.filled + time, ahead=ahead)


def _goes_around(store: Any, window: int, cache: Cache, time: int) -> bool:
    """Whether a layer's cache is a ring. Raises OptionError if the ring would overwrite positions in its window."""
    slots = rows_of(store).shape[2]
    if slots == cache.capacity:
        return False
    if max(time, cache.ahead) > slots - window + 1:
        raise OptionError(
            f"A ring of {slots} positions for a window of {window} takes {slots - window + 1} tokens per call and can"
            f" drop as many; got {max(time, cache.ahead)}.",
            "Pass a larger chunk= to new_cache, or fewer tokens per call.",
        )
    return True


def _changes_with_length(config: DecoderConfig) -> bool:
    """Whether frequencies depend on how long sequences may become."""
    return any(map(changes_with_length, _ropes(config)))


def longest_before_switch(config: DecoderConfig) -> int | None:
    """How long a sequence may become with the rotary angles that its first tokens have; None: as long as it may."""
    return min(filter(None, map(switch_length, _ropes(config))), default=None)


def _seen(config: DecoderConfig, cache: Cache, counts: np.ndarray, least: Any) -> np.ndarray:
    """`least` of `Steps.advance`. Raises OptionError where keys in the cache have the angles of short sequences."""
    before = np.asarray(cache.lengths)
    after = before + counts
    limit = longest_before_switch(config)
    if limit is not None:
        crosses = (before > 0) & (before <= limit) & (after > limit)
        if (crosses if least is None else crosses & (np.asarray(least) <= limit)).any():
            raise OptionError(
                f"A sequence goes from {int(before[crosses][0])} tokens to more than {limit}, from where on all of them"
                f" have other rotary angles ({config.family}, longrope).",
                "Start again with all its tokens: model.start(tokens, room).",
            )
    return (after if least is None else np.asarray(least)).astype(np.int32)
