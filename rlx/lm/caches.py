"""Keys and values of the positions so far: in one piece, in rings for windows, in pages; as floats or in few bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.call.jit import jit
from rlx.errors import OptionError, ShapeError
from rlx.lm.config import DecoderConfig
from rlx.quant.arrays import QuantizedArray, dequantize, quantize
from rlx.trees import tree

__all__ = ["Cache", "PagePool", "key_positions", "new_cache", "read", "rows_of", "written"]

KINDS = ("contiguous", "ring", "paged")
_PACKED = ("q8_0", "q4_0")


class PagePool:
    """Pages that sequences share: which are free, and the arrays of each layer [pages, key heads, page, features].

    Args: layers: pairs of such arrays, replaced when pages are written; page: positions per page.

    >>> from rlx.lm import DecoderConfig, new_cache
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> new_cache(config, batch=1, capacity=32, kind="paged", page=16).pool.free
    2
    """

    def __init__(self, layers: list[tuple[Any, Any]], page: int) -> None:
        self.layers, self.page = layers, page
        self.uses = np.zeros(rows_of(layers[0][0]).shape[0], np.int64)  # how many sequences have each

    @property
    def free(self) -> int:
        """The number of free pages."""
        return int((self.uses == 0).sum())

    def take(self) -> int:
        """Allocate a page. Raises OptionError if no page is free."""
        if not self.free:
            raise OptionError(
                f"All {len(self.uses)} pages of the cache are in use.",
                "Release sequences that are over, or make more: rlx.lm.new_cache(..., kind='paged', pages=...).",
            )
        found = int(np.argmin(self.uses != 0))
        self.uses[found] = 1
        return found

    def own(self, number: int) -> int:
        """The page if it has one owner; otherwise a copy."""
        if self.uses[number] == 1:
            return number
        found = self.take()
        self.uses[number] -= 1
        old, new = np.int32(number), np.int32(found)
        self.layers[:] = [(_copy_page(k, old, new), _copy_page(v, old, new)) for k, v in self.layers]
        return found


class Cache(NamedTuple):
    """Keys and values of the positions so far, a pair for each layer, and how many positions there are.

    They are [batch, key heads, slots, features], arrays or QuantizedArrays; lengths: int32 [batch]; capacity: of
    positions. `rlx.lm.new_cache` makes one.

    >>> from rlx.lm import DecoderConfig, new_cache
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, key_heads=1, inner=8)
    >>> new_cache(config, batch=1, capacity=4).layers[0][0].shape
    (1, 1, 4, 4)
    """

    layers: list[tuple[Any, Any]]
    lengths: Any
    capacity: int
    filled: int = 0  # the length of the longest sequence
    ahead: int = 0  # the maximum number of positions written after the end of a sequence
    pool: PagePool | None = None
    table: np.ndarray | None = None  # of pages: int32 [batch, pages of a sequence], -1 where there is none

    @property
    def nbytes(self) -> int:
        """The bytes of all keys and values."""
        return sum(rows_of(store).nbytes for pair in self.layers for store in pair)

    def truncate(self, lengths: Any) -> Cache:
        """The cache with fewer positions: later positions are ignored and overwritten."""
        old = np.asarray(self.lengths)
        kept = np.minimum(old, np.asarray(lengths, np.int32))
        ahead = self.ahead + int((old - kept).max())
        found = self._replace(lengths=jnp.asarray(kept), filled=int(kept.max()), ahead=ahead)
        return found if self.pool is None else found._without_pages_behind(kept)

    def fork(self) -> Cache:
        """An independent copy; pages are shared until one of the caches writes to them."""
        if self.pool is None or self.table is None:
            layers = [(tree.map(lambda x: x.copy(), k), tree.map(lambda x: x.copy(), v)) for k, v in self.layers]
            return self._replace(layers=layers, lengths=self.lengths.copy())
        np.add.at(self.pool.uses, self.table[self.table >= 0], 1)
        return self._replace(lengths=self.lengths.copy(), table=self.table.copy())

    def release(self) -> None:
        """Give the pages back; a cache without pages is let go as any object."""
        if self.pool is not None:
            self._without_pages_behind(np.zeros(len(self.lengths), np.int32))

    def with_room(self, time: int) -> Cache:
        """The cache with separate pages for `time` more positions of each sequence."""
        if self.pool is None or self.table is None:
            return self
        table, page = self.table.copy(), self.pool.page
        for row, length in enumerate(np.asarray(self.lengths)):
            for number in range(length // page, -(-(length + time) // page)):
                there = int(table[row, number])
                table[row, number] = self.pool.take() if there < 0 else self.pool.own(there)
                self.table[row, number] = table[row, number]  # were there no page for another one, this one is not lost
        return self._replace(table=table)

    def _without_pages_behind(self, lengths: np.ndarray) -> Cache:
        if self.pool is None or self.table is None:
            return self
        table = self.table.copy()
        behind = (np.arange(table.shape[1]) >= -(-lengths[:, None] // self.pool.page)) & (table >= 0)
        np.subtract.at(self.pool.uses, table[behind], 1)
        table[behind] = -1
        self.table[behind] = -1
        return self._replace(table=table)


def new_cache(
    config: DecoderConfig,
    batch: int,
    capacity: int,
    dtype: Any = np.float32,
    kind: str = "contiguous",
    chunk: int = 512,
    page: int = 16,
    pages: int | None = None,
) -> Cache:
    """An empty cache for sequences of at most `capacity` positions.

    Args:
      dtype: of keys and values: float32, bfloat16, float16; "q8_0" or "q4_0" for blocks of 32 features in few bits.
      kind: "contiguous"; "ring": layers with a window keep its positions only; "paged": sequences have pages of a pool.
      chunk: of "ring": how many tokens may come at once.
      page, pages: of "paged": positions of a page, and how many there are; None: enough for all sequences.

    Raises OptionError for another kind, ShapeError if the head size is not a multiple of 32.

    >>> from rlx.lm import DecoderConfig
    >>> config = DecoderConfig(vocabulary=9, width=64, layers=2, heads=2, key_heads=1, inner=8)
    >>> new_cache(config, 1, 128).nbytes, new_cache(config, 1, 128, "q8_0").nbytes
    (65536, 17408)
    """
    if kind not in KINDS:
        raise OptionError(f"There is no kind of cache {kind!r}.", f"There are: {', '.join(KINDS)}.")
    if min(batch, capacity, chunk, page) < 1:
        raise OptionError(
            f"new_cache got batch={batch}, capacity={capacity}, chunk={chunk}, page={page}.", "Each is 1 or more."
        )
    lengths = jnp.zeros(batch, np.int32)
    if kind == "paged":
        of_each = -(-capacity // page)
        shape = (batch * of_each if pages is None else pages, config.key_heads, page, config.head_dim)
        layers = [(_empty(shape, dtype), _empty(shape, dtype)) for _ in range(config.layers)]
        table = np.full((batch, of_each), -1, np.int32)
        return Cache(layers, lengths, capacity, pool=PagePool(layers, page), table=table)
    layers = []
    for layer in range(config.layers):
        window = config.window(layer)
        slots = capacity if kind != "ring" or window is None else min(capacity, window + chunk - 1)
        shape = (batch, config.key_heads, slots, config.head_dim)
        layers.append((_empty(shape, dtype), _empty(shape, dtype)))
    return Cache(layers, lengths, capacity)


def _empty(shape: tuple[int, ...], dtype: Any) -> Any:
    if dtype not in _PACKED:
        return jnp.zeros(shape, dtype)
    if shape[-1] % 32:
        raise ShapeError(
            f"{dtype} needs a head size that is a multiple of 32, got {shape[-1]}.",
            "Keep keys and values in bfloat16.",
        )
    packed = quantize(np.zeros((1, shape[-1]), np.float32), f"gguf_{dtype}")
    return QuantizedArray(
        jnp.zeros((*shape[:-1], packed.elements.shape[-1]), np.uint8), None, None, None, packed.scheme
    )


def rows_of(store: Any) -> Any:
    """The array of keys or values, packed or not."""
    return store.elements if isinstance(store, QuantizedArray) else store


# ---------------------------------------------------------------- in programs
def written(store: Any, new: Any, positions: Any, table: Any = None, ring: bool = False) -> Any:
    """The store with new keys or values [batch, heads, time, features] at positions [batch, time].

    Args: table: of pages [batch, pages of a sequence], or None; ring: positions go around.
    """
    packed = isinstance(store, QuantizedArray)
    old, rows = rows_of(store), rows_of(quantize(new, store.scheme)) if packed else new.astype(store.dtype)
    if table is None and not ring and rows.shape[0] == 1:
        found = lax.dynamic_update_slice(old, rows, (0, 0, positions[0, 0], 0))
    else:
        sequences = jnp.arange(rows.shape[0])[:, None, None]
        heads = jnp.arange(old.shape[1])[None, :, None]
        places = positions[:, None, :]
        if table is not None:
            page = old.shape[2]
            sequences, places = jnp.take_along_axis(table, positions // page, axis=1)[:, None, :], places % page
        elif ring:
            places = places % old.shape[2]
        found = old.at[sequences, heads, places].set(rows, mode="drop")
    return QuantizedArray(found, None, None, None, store.scheme) if packed else found


def read(store: Any, table: Any = None) -> Any:
    """All keys or values as float32 [batch, heads, slots, features]."""
    rows = rows_of(store)
    if table is not None:
        pages = jnp.swapaxes(rows[jnp.maximum(table, 0)], 1, 2)  # [batch, heads, pages, page, features]
        rows = pages.reshape(*pages.shape[:2], pages.shape[2] * pages.shape[3], pages.shape[4])
    if isinstance(store, QuantizedArray):
        return dequantize(QuantizedArray(rows, None, None, None, store.scheme))
    return rows.astype(np.float32)


def key_positions(slots: int, positions: Any, ring: bool) -> Any:
    """The position in each slot: ints [slots], or [batch, slots] for rings; negative if empty."""
    places = jnp.arange(slots, dtype=np.int32)
    if not ring:
        return places
    last = positions[:, -1:]
    return last - (last - places) % slots


@jit
def _copied(rows: Any, old: Any, new: Any) -> Any:
    return rows.at[new].set(rows[old])


def _copy_page(store: Any, old: Any, new: Any) -> Any:
    return tree.map(lambda rows: _copied(rows, old, new), store)
