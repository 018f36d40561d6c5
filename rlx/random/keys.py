"""Keys: where random numbers come from, and how one key becomes several.

Inside this package a key is a typed one, an array of a KeyDtype; raw ones, arrays of words, are wrapped on the way
in, and the resulting keys are unwrapped on the way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import lax
from rlx.array import Array, is_array, is_array_or_numpy, number_array
from rlx.config import config
from rlx.errors import DtypeError, DtypeOverflowError, InputTypeError, OptionError, ShapeError, warn
from rlx.ir.extended import KEY_DTYPES, KeyDtype
from rlx.ir.types import is_integer, is_key
from rlx.numpy.promotion import canonical_shape
from rlx.ops.random_keys import random_unwrap, random_wrap
from rlx.random.generators import Generator, generator_named
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = [
    "PRNGKey",
    "clone",
    "fold_in",
    "generator_of",
    "key",
    "key_data",
    "key_dtype",
    "key_impl",
    "single_key",
    "split",
    "split_key",
    "wrap_key_data",
]

UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)


# ------------------------------------------------------------- keys as arguments
def _default_dtype() -> KeyDtype:
    return KEY_DTYPES[config.default_prng_impl]


def _is_typed(key: Any) -> bool:
    return is_array(key) and is_key(key.dtype)


def _typed(name: str, key: Any) -> Array:
    """Keys as a typed array; raw ones belong to the default generator."""
    if _is_typed(key):
        return key
    if config.legacy_prng_key != "allow":
        _refuse_raw_key(name)
    return _wrapped(name, key, _default_dtype())


def _refuse_raw_key(name: str) -> None:
    what = f"random.{name} got a key that is an array of uint32, while the switch legacy_prng_key"
    if config.legacy_prng_key == "error":
        raise InputTypeError(f'{what} is "error".', "Make keys with rlx.random.key(seed).")
    warn(f"{what} asks to say so: make keys with rlx.random.key(seed)")


def _wrapped(name: str, words: Any, dtype: KeyDtype) -> Array:
    if not is_array_or_numpy(words):
        raise InputTypeError(
            f"random.{name} takes a key, but got {words!r:.60} ({type(words).__name__}).",
            "Make a key with rlx.random.key(seed).",
        )
    array = as_array(words)
    if array.dtype != UINT32 or array.shape[-1:] != (dtype.words,):
        raise InputTypeError(
            f"random.{name} takes a key, but got an array {array.type!r}.",
            f"Keys are made by rlx.random.key(seed); raw ones of {dtype.generator!r} are uint32 arrays of shape"
            f" (..., {dtype.words}).",
        )
    return random_wrap(array, dtype=dtype)


def single_key(name: str, key: Any) -> Array:
    """A function's argument that is one key, typed or raw, as a typed one."""
    found = _typed(name, key)
    if found.ndim:
        raise ShapeError(
            f"random.{name} takes one key, but got keys of shape {found.shape}.",
            f"Use rlx.vmap over the keys, or pick one: rlx.random.{name}(keys[0], ...).",
        )
    return found


def generator_of(key: Array) -> Generator:
    """The rules of the generator that a typed key belongs to."""
    dtype: Any = key.dtype
    return generator_named(dtype.generator)


@replayed
def split_key(key: Array, shape: Sequence[int] = (2,)) -> Array:
    """Several new keys from a typed one, in an array of the given shape."""
    words = generator_of(key).split(random_unwrap(key), tuple(shape))
    return random_wrap(words, dtype=key.dtype)


def _like(given: Any, key: Array) -> Any:
    """New keys as typed or raw as those they were made of."""
    return key if _is_typed(given) or config.enable_custom_prng else random_unwrap(key)


# ------------------------------------------------------------- seeds and generators
def _seed_words(name: str, seed: Any) -> tuple[Any, Any]:
    """The high and the low word of a seed; the high one is 0 where default integers are 32 bits wide, as in JAX."""
    if _is_typed(seed):
        raise InputTypeError(f"random.{name} takes a seed, but got a key.", "Use the key itself.")
    if isinstance(seed, (int, np.int64)):
        return _words_of_integer(int(seed))
    value = as_array(seed, f"the seed of random.{name}")
    if value.shape != () or not is_integer(value.dtype):
        raise DtypeError(
            f"random.{name} takes an integer as its seed, but got {value.type!r}.",
            "Pass one integer; use rlx.vmap for several seeds.",
        )
    if value.dtype.itemsize < 8 or config.default_int.itemsize < 8:
        return lax.full((), 0, UINT32), lax.convert_element_type(value, UINT32)
    wide = lax.convert_element_type(value, UINT64)
    high = lax.shift_right_logical(wide, lax.full((), 32, UINT64))
    return lax.convert_element_type(high, UINT32), lax.convert_element_type(wide, UINT32)


def _words_of_integer(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The seed's bits; as above, only the low 32 where default integers are as wide."""
    if not -(2**63) <= seed < 2**63:
        raise DtypeOverflowError(f"The seed {seed} does not fit int64.", "Pass a smaller one.")
    high = (seed >> 32) & 0xFFFFFFFF if config.default_int.itemsize == 8 else 0
    return np.array(high, UINT32), np.array(seed & 0xFFFFFFFF, UINT32)


def _dtype_named(implementation: Any) -> KeyDtype:
    """The dtype of keys of a generator, which is given by its name or such a dtype; None means the default."""
    if implementation is None:
        return _default_dtype()
    if isinstance(implementation, KeyDtype):
        return implementation
    known = ", ".join(map(repr, KEY_DTYPES))
    if not isinstance(implementation, str):
        raise InputTypeError(
            f"A random number generator was given as a {type(implementation).__name__}: {implementation!r:.60}.",
            f"Name one of {known}, or pass the dtype of a key.",
        )
    if implementation not in KEY_DTYPES:
        raise OptionError(f"There is no random number generator {implementation!r}.", f"rlx has {known}.")
    return KEY_DTYPES[implementation]


def _chosen(impl: Any, dtype: Any) -> KeyDtype:
    if impl is not None and dtype is not None:
        raise OptionError(f"Keys got impl={impl!r} and dtype={dtype!r}.", "One of them says which generator.")
    return _dtype_named(dtype if impl is None else impl)


def key_dtype(impl_spec: Any = None) -> KeyDtype:
    """The dtype of typed keys of a generator: see `key`.

    >>> import rlx
    >>> rlx.random.key_dtype(), rlx.random.key_dtype("rbg")
    (key<fry>, key<rbg>)
    """
    return _dtype_named(impl_spec)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """A typed random key: a 0-d array whose dtype names its generator.

    Key arrays are leaves of trees and go wherever arrays go; they are indexed, reshaped, joined, selected and
    compared, but nothing else is computed with them.

    Args:
      seed: an integer. Its low 32 bits are used if default integers have 32 bits, otherwise its low 64 bits.
      impl: the generator: "threefry2x32" (unless rlx.config.default_prng_impl says otherwise), "threefry4x32",
        "philox2x32", "philox4x32", "rbg" or "unsafe_rbg"; or the dtype of a key.
      dtype: the same, as another name.

    Raises OptionError for an unknown generator, DtypeOverflowError for a seed beyond 64 bits, and TypeError if the seed
    is not an integer. The bits of each generator equal jax.random's on a CPU. Under vmap, each key of "rbg" or
    "unsafe_rbg" draws the same bits as alone; in JAX this is true only for the other generators.

    >>> import rlx
    >>> rlx.random.key(0)
    Array((), dtype=key<fry>) overlaying:
    [0 0]
    """
    chosen = _chosen(impl, dtype)
    words = generator_named(chosen.generator).seed(*_seed_words("key", seed))
    return random_wrap(words, dtype=chosen)


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """A raw random key: an array of uint32 words, of shape (2,) for the default generator. `key` makes typed keys.

    >>> import rlx
    >>> rlx.random.PRNGKey(42).tolist()
    [0, 42]
    """
    chosen = _dtype_named(impl)
    words = generator_named(chosen.generator).seed(*_seed_words("PRNGKey", seed))
    return random_wrap(words, dtype=chosen) if config.enable_custom_prng else words


# ------------------------------------------------------------- keys from keys
def split(key: Any, num: int | tuple[int, ...] | list[int] = 2) -> Array:
    """Several new keys from one, which should not be used again.

    Args:
      key: a key.
      num: the number of keys, or the shape of the result.

    >>> import rlx
    >>> first, second = rlx.random.split(rlx.random.key(0))
    >>> first.shape
    ()
    """
    return _like(key, split_key(single_key("split", key), canonical_shape(num, "random.split")))


def fold_in(key: Any, data: Any) -> Array:
    """A new key from a key and an integer of 32 bits, such as a step's number.

    Raises DtypeOverflowError for a Python integer that does not fit uint32, DtypeError for other numbers.

    >>> import rlx
    >>> a, b = (rlx.random.fold_in(rlx.random.key(0), i) for i in (1, 2))
    >>> bool(a == b)
    False
    """
    found = single_key("fold_in", key)
    if isinstance(data, int):
        number: Any = number_array(data, UINT32)
    else:
        value = as_array(data, "the number for random.fold_in")
        if not is_integer(value.dtype) and value.dtype.kind != "b":
            raise DtypeError(f"random.fold_in takes an integer, but got {value.type!r}.", "Convert it with int(...).")
        if value.shape != ():
            raise InputTypeError(
                f"random.fold_in takes one integer, but got {value.type!r}.", "Use rlx.vmap for several."
            )
        number = lax.convert_element_type(value, UINT32)
    folded = generator_of(found).fold_in(random_unwrap(found), number)
    return _like(key, random_wrap(folded, dtype=found.dtype))


def key_data(keys: Any) -> Array:
    """The uint32 words of keys, along a new last axis.

    >>> import rlx
    >>> rlx.random.key_data(rlx.random.key(7)).tolist()
    [0, 7]
    """
    return random_unwrap(_typed("key_data", keys))


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """Typed keys from their uint32 words, along the last axis; impl and dtype as in `key`.

    >>> import rlx
    >>> rlx.random.wrap_key_data(rlx.random.PRNGKey(0)).shape
    ()
    """
    return _wrapped("wrap_key_data", key_bits_array, _chosen(impl, dtype))


def key_impl(keys: Any) -> str:
    """The name of the generator that keys belong to.

    >>> import rlx
    >>> rlx.random.key_impl(rlx.random.key(0))
    'threefry2x32'
    """
    dtype: Any = _typed("key_impl", keys).dtype
    return dtype.generator


def clone(key: Any) -> Array:
    """The key itself, for deliberate reuse.

    >>> import rlx
    >>> key = rlx.random.key(0)
    >>> rlx.random.bits(rlx.random.clone(key)) == rlx.random.bits(key)
    Array(True, dtype=bool)
    """
    return key
