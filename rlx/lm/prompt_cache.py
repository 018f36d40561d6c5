"""Caches that survive a call: what a conversation has computed is not computed again in its next turn, or process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.errors import FileFormatError, UnsupportedError
from rlx.lm.caches import Cache, rows_of
from rlx.lm.config import DecoderConfig
from rlx.quant.arrays import QuantizedArray
from rlx.quant.schemes import scheme_of
from rlx.serialization import load, save
from rlx.trees import tree

__all__ = ["PromptCache"]


class PromptCache:
    """The keys and values of one sequence, to be continued by later calls of `generate`, `stream` and `chat`.

    A call computes only the tokens of its prompt behind those that the cache already has. It grows as needed.

    >>> from rlx import lm
    >>> config = lm.DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8, rope=lm.Rope(dims=4))
    >>> model, memory = lm.Model(config, lm.random_parameters(config)), lm.PromptCache()
    >>> tokens = list(model.generate([1, 2, 3], 4, prompt_cache=memory))
    >>> memory.tokens == [1, 2, 3, *tokens[:3]]
    True
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._cache: Cache | None = None

    def take(
        self, prompt: np.ndarray, needed: Callable[[int], int], config: DecoderConfig, limit: int | None
    ) -> Cache | None:
        """The cache with the tokens that a prompt begins with, and with room; None if there are none.

        It is given away until `put`. needed: the number of known tokens -> positions; limit: sequences that become
        longer than this are computed from their start.
        """
        cache, told = self._cache, np.array(self.tokens, np.int64)
        self._cache, self.tokens = None, []
        if cache is None or (limit is not None and needed(0) > limit):
            return None
        if rows_of(cache.layers[0][0]).shape[1] != config.key_heads or len(cache.layers) != config.layers:
            raise UnsupportedError("The cache belongs to another model.", "Make one for each: rlx.lm.PromptCache().")
        size = min(len(told), len(prompt) - 1)  # the last token is always computed: its logits are wanted
        differs = np.flatnonzero(told[:size] != prompt[:size])
        known = int(differs[0]) if differs.size else size
        capacity = needed(known)
        rings = cache.pool is None and any(rows_of(k).shape[2] != cache.capacity for k, _ in cache.layers)
        if known == 0 or (rings and (known < len(told) or capacity > cache.capacity)):
            cache.release()
            return None
        if capacity > cache.capacity:
            if cache.pool is not None:
                cache.release()
                return None
            cache = grown(cache, max(capacity, min(2 * cache.capacity, config.context)))
        return cache.truncate([known])

    def put(self, tokens: list[int], cache: Cache) -> None:
        """Keep the cache that contains these tokens."""
        self.tokens, self._cache = tokens, cache

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache to a file. Raises UnsupportedError for a cache of pages or rings.

        >>> import tempfile, pathlib
        >>> from rlx import lm
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lm.PromptCache().save(pathlib.Path(folder) / "empty.safetensors")
        """
        layers: list[Any] = []
        if self._cache is not None:
            cache, used = self._cache, len(self.tokens)
            if cache.pool is not None or any(rows_of(k).shape[2] != cache.capacity for k, _ in cache.layers):
                raise UnsupportedError(
                    "Pages and rings cannot be saved.", "Use a contiguous cache, which is the default."
                )
            layers = [[np.asarray(rows_of(store))[:, :, :used] for store in pair] for pair in cache.layers]
        scheme = self._scheme()
        save(path, {"tokens": np.array(self.tokens, np.int64), "layers": layers, "scheme": _bytes(scheme)})

    def _scheme(self) -> str:
        first = None if self._cache is None else self._cache.layers[0][0]
        return first.scheme.name if isinstance(first, QuantizedArray) else ""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PromptCache:
        """The cache in a file that `save` wrote. Raises FileFormatError for another file."""
        found, given = cls(), load(path)
        if not isinstance(given, dict) or not {"tokens", "scheme"} <= given.keys():
            raise FileFormatError(f"{os.fspath(path)} is not a cache.", "Write it with PromptCache.save.")
        tokens = np.asarray(given["tokens"]).astype(int).tolist()
        pairs = given.get("layers") or []
        if not tokens:
            return found
        scheme = bytes(np.asarray(given["scheme"])).decode()
        shapes = {np.shape(store)[2] for pair in pairs for store in pair if np.ndim(store) == 4}
        if shapes != {len(tokens)}:
            raise FileFormatError(f"{os.fspath(path)} is not a cache.", "Write it with PromptCache.save.")

        def store_of(rows: Any) -> Any:
            rows = jnp.asarray(rows)
            return QuantizedArray(rows, None, None, None, scheme_of(scheme)) if scheme else rows

        layers = [(store_of(k), store_of(v)) for k, v in pairs]
        size = len(tokens)
        found.put(tokens, Cache(layers, jnp.asarray(np.array([size], np.int32)), size, size))
        return found


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def grown(cache: Cache, capacity: int) -> Cache:
    """A contiguous cache with room for more positions."""
    more = -(-capacity // 128) * 128 - cache.capacity

    def padded(rows: Any) -> Any:
        return jnp.concatenate([rows, jnp.zeros((*rows.shape[:2], more, rows.shape[3]), rows.dtype)], axis=2)

    layers = [(tree.map(padded, k), tree.map(padded, v)) for k, v in cache.layers]
    return cache._replace(layers=layers, capacity=cache.capacity + more)
