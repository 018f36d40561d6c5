"""Keys: where random numbers come from, and how one key becomes several."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx import lax, tree
from rlx.array import Array, ConcreteArray, wrap
from rlx.config import config
from rlx.errors import DtypeError, InputTypeError, ShapeError, UnsupportedError, warn
from rlx.ir.extended import KeyDtype
from rlx.ir.types import is_integer
from rlx.ops.random_bits import threefry2x32
from rlx.trace.builder import state
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = [
    "KeyArray",
    "PRNGKey",
    "clone",
    "fold_in",
    "key",
    "key_data",
    "key_dtype",
    "key_impl",
    "key_words",
    "split",
    "split_words",
    "threefry_counts",
    "wrap_key_data",
]

UINT32 = np.dtype(np.uint32)
IMPLEMENTATION = "threefry2x32"


class KeyArray:
    """Typed keys: an array of keys over uint32 words, whose last axis has size 2.

    A tree node with the words as its leaf, so that keys pass through jit, vmap and scan.

    >>> import rlx
    >>> keys = rlx.random.split(rlx.random.key(0), 3)
    >>> keys.shape, rlx.vmap(rlx.random.uniform)(keys).shape
    ((3,), (3,))
    """

    __slots__ = ("words",)
    dtype = KeyDtype()

    def __init__(self, words: Any) -> None:
        self.words = words

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array of keys; () for one key."""
        return self.words.shape[:-1]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of keys."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("one key has no length: split it into several")
        return self.shape[0]

    def __getitem__(self, index: Any) -> KeyArray:
        parts = index if isinstance(index, tuple) else (index,)
        if Ellipsis not in parts:
            parts = (*parts, Ellipsis)
        found = self.words[(*parts, slice(None))]
        return KeyArray(found)

    def __iter__(self) -> Iterator[KeyArray]:
        return (KeyArray(lax.index_in_dim(self.words, i, keepdims=False)) for i in range(len(self)))

    def __eq__(self, other: object) -> Any:
        """Which keys are equal, as an array of booleans."""
        if not isinstance(other, KeyArray):
            return NotImplemented
        if not isinstance(self.words, (Array, np.ndarray)):  # a tree of something else
            return self.words == other.words
        same = lax.eq(as_array(self.words), as_array(other.words))
        return lax.reduce_and(same, (same.ndim - 1,))

    __hash__ = None  # type: ignore[assignment]

    def reshape(self, *shape: Any) -> KeyArray:
        """The keys in another shape."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        known = [n for n in sizes if n != -1]
        if len(known) < len(sizes):
            missing = self.size // max(math.prod(known), 1)
            sizes = tuple(missing if n == -1 else n for n in sizes)
        return KeyArray(lax.reshape(self.words, (*sizes, 2)))

    def flatten(self) -> KeyArray:
        """The keys along one axis."""
        return self.reshape(self.size)

    def __repr__(self) -> str:
        return f"KeyArray(shape={self.shape}, dtype={self.dtype}, words={self.words!r})"


tree.register_node(KeyArray, lambda keys: ((keys.words,), None), lambda _, children: KeyArray(*children))


# ------------------------------------------------------------- words
def key_words(name: str, key: Any) -> Array:
    """The two words of a single key, typed or raw."""
    words = key.words if isinstance(key, KeyArray) else _raw_words(name, key)
    if config.legacy_prng_key != "allow" and not isinstance(key, KeyArray):
        _refuse_raw_key(name)
    if words.ndim != 1:
        raise ShapeError(
            f"random.{name} takes one key, but got keys of shape {words.shape[:-1]}.",
            f"Use rlx.vmap over the keys, or pick one: rlx.random.{name}(keys[0], ...).",
        )
    return words


def _refuse_raw_key(name: str) -> None:
    what = f"random.{name} got a key that is an array of uint32, while the switch legacy_prng_key"
    if config.legacy_prng_key == "error":
        raise InputTypeError(f'{what} is "error".', "Make keys with rlx.random.key(seed).")
    warn(f"{what} asks to say so: make keys with rlx.random.key(seed)")


def _raw_words(name: str, key: Any) -> Array:
    if not isinstance(key, (Array, np.ndarray)):
        raise InputTypeError(
            f"random.{name} takes a key, but got a {type(key).__name__}: {key!r:.60}.",
            "Make a key with rlx.random.key(seed).",
        )
    words = as_array(key)
    if words.dtype != UINT32 or words.ndim == 0 or words.shape[-1] != 2:
        raise InputTypeError(
            f"random.{name} takes a key, but got an array {words.type!r}.",
            "Keys are made by rlx.random.key(seed); raw ones are uint32 arrays of shape (2,).",
        )
    return words


def threefry_counts(shape: Sequence[int]) -> tuple[Any, Any]:
    """The positions of an array's elements as 64-bit counters: high and low words."""
    size = math.prod(shape)
    if size <= 2**32:
        low = lax.reshape(lax.iota(UINT32, size), shape)
        return np.zeros((), UINT32), low
    # an axis at a time, in 64 bits
    position: Any = lax.full(tuple(shape), 0, np.uint64)
    stride = 1
    for axis in reversed(range(len(shape))):
        along = lax.broadcasted_iota(np.uint64, tuple(shape), axis)
        position = lax.add(position, lax.mul(along, lax.full((), stride, np.uint64)))
        stride *= shape[axis]
    high = lax.shift_right_logical(position, lax.full((), 32, np.uint64))
    low = lax.bitwise_and(position, lax.full((), 0xFFFFFFFF, np.uint64))
    return lax.convert_element_type(high, UINT32), lax.convert_element_type(low, UINT32)


def _word(words: Array, index: int) -> Array:
    return lax.index_in_dim(words, index, words.ndim - 1, keepdims=False)


def random_words(words: Array, shape: Sequence[int]) -> tuple[Array, Array]:
    """Two random words for each element of an array of the given shape."""
    if state.builder is None and isinstance(words, ConcreteArray):
        return _random_words_now(words.numpy(), tuple(shape))
    return threefry2x32(_word(words, 0), _word(words, 1), *threefry_counts(shape))


def _random_words_now(words: np.ndarray, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """random_words of a known key, without a step for each of its parts."""
    counts = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    high, low = (counts >> np.uint64(32)).astype(UINT32), counts.astype(UINT32)
    first, second = threefry2x32.reference(words[0, ...], words[1, ...], high, low)
    return wrap(first), wrap(second)


@replayed
def split_words(words: Array, shape: Sequence[int] = (2,)) -> Array:
    """The words of several new keys, in an array of shape (*shape, 2)."""
    return lax.stack(random_words(words, shape), axis=len(shape))


def _like(key: Any, words: Array) -> Any:
    """Keys from words: typed if `key` is."""
    return KeyArray(words) if isinstance(key, KeyArray) else words


# ------------------------------------------------------------- the public functions
def _seed_words(name: str, seed: Any) -> Array:
    if isinstance(seed, KeyArray):
        raise InputTypeError(f"random.{name} takes a seed, but got a key.", "Use the key itself.")
    if isinstance(seed, (int, np.int64)) and not isinstance(seed, bool):
        return _words_of_integer(int(seed))
    value = as_array(seed)
    if value.shape != () or not is_integer(value.dtype):
        raise DtypeError(
            f"random.{name} takes an integer as its seed, but got {value.type!r}.",
            "Pass one integer; use rlx.vmap for several seeds.",
        )
    low = lax.convert_element_type(value, UINT32)
    if value.dtype.itemsize < 8:
        return lax.stack([lax.full((), 0, UINT32), low])
    word = np.dtype(np.uint64)
    wide = lax.convert_element_type(value, word)
    high = lax.shift_right_logical(wide, lax.full((), 32, word))
    masked = lax.bitwise_and(wide, lax.full((), 0xFFFFFFFF, word))
    return lax.stack([lax.convert_element_type(x, UINT32) for x in (high, masked)])


def _words_of_integer(seed: int) -> Array:
    """The seed's bits; only the low 32 where the default integers are 32 bits wide, as in JAX."""
    if not -(2**63) <= seed < 2**64:
        raise DtypeError(f"The seed {seed} does not fit 64 bits.", "Use a smaller seed.")
    high = (seed >> 32) & 0xFFFFFFFF if config.default_int.itemsize == 8 else 0
    return wrap(np.array([high, seed & 0xFFFFFFFF], UINT32))


def _check_implementation(impl: Any, dtype: Any = None) -> None:
    if impl is not None and dtype is not None:
        raise UnsupportedError(f"Keys got impl={impl!r} and dtype={dtype!r}.", "One of them says which generator.")
    if dtype is not None and not isinstance(dtype, KeyDtype):
        raise DtypeError(f"Keys got dtype={dtype!r}, which is not of keys.", "Use random.key_dtype().")
    if isinstance(impl, KeyDtype):
        return
    if impl not in (None, IMPLEMENTATION):
        raise UnsupportedError(f"There is no random number generator {impl!r}.", f"rlx has {IMPLEMENTATION!r}.")


def key_dtype(impl: Any = None) -> KeyDtype:
    """The dtype of typed keys. Raises UnsupportedError for another generator than "threefry2x32".

    >>> import rlx
    >>> rlx.random.key_dtype() == rlx.random.key(0).dtype
    True
    """
    _check_implementation(impl)
    return KeyDtype()


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> KeyArray:
    """A typed key from an integer seed; impl or dtype may say of which generator: "threefry2x32".

    >>> import rlx
    >>> rlx.random.key(0).shape
    ()
    """
    _check_implementation(impl, dtype)
    return KeyArray(_seed_words("key", seed))


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """A raw key (a uint32 array of shape (2,)) from an integer seed.

    >>> import rlx
    >>> rlx.random.PRNGKey(42).tolist()
    [0, 42]
    """
    _check_implementation(impl)
    return _seed_words("PRNGKey", seed)


def split(key: Any, num: int | tuple[int, ...] | list[int] = 2) -> Any:
    """Several new keys from one, which should not be used again.

    Args:
      key: a key.
      num: how many, or the shape of the array of them.

    >>> import rlx
    >>> first, second = rlx.random.split(rlx.random.key(0))
    >>> first.shape
    ()
    """
    shape = tuple(num) if isinstance(num, (tuple, list)) else (operator.index(num),)
    return _like(key, split_words(key_words("split", key), shape))


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer, such as a step's number.

    >>> import rlx
    >>> a, b = (rlx.random.fold_in(rlx.random.key(0), i) for i in (1, 2))
    >>> bool((rlx.random.key_data(a) == rlx.random.key_data(b)).all())
    False
    """
    words = key_words("fold_in", key)
    if isinstance(data, (int, np.int64)):
        number: Any = np.asarray(int(data) & 0xFFFFFFFF, UINT32)
    else:
        value = as_array(data)
        if value.shape != () or not is_integer(value.dtype):
            raise DtypeError(
                f"random.fold_in takes one integer, but got {value.type!r}.",
                "Use rlx.vmap for several.",
            )
        number = lax.convert_element_type(value, UINT32)
    folded = threefry2x32(_word(words, 0), _word(words, 1), np.zeros((), UINT32), number)
    return _like(key, lax.stack(folded))


def key_data(keys: Any) -> Array:
    """The uint32 words of keys; the last axis has size 2.

    >>> import rlx
    >>> rlx.random.key_data(rlx.random.key(7)).tolist()
    [0, 7]
    """
    return keys.words if isinstance(keys, KeyArray) else _raw_words("key_data", keys)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> KeyArray:
    """Typed keys from their uint32 words.

    >>> import rlx
    >>> rlx.random.wrap_key_data(rlx.random.PRNGKey(0)).shape
    ()
    """
    _check_implementation(impl, dtype)
    return KeyArray(_raw_words("wrap_key_data", key_bits_array))


def key_impl(keys: Any) -> str:
    """The name of the generator that keys belong to.

    >>> import rlx
    >>> rlx.random.key_impl(rlx.random.key(0))
    'threefry2x32'
    """
    key_data(keys)
    return IMPLEMENTATION


def clone(key: Any) -> Any:
    """The key itself, for deliberate reuse.

    >>> import rlx
    >>> key = rlx.random.key(0)
    >>> rlx.random.bits(rlx.random.clone(key)) == rlx.random.bits(key)
    Array(True, dtype=bool)
    """
    return key
