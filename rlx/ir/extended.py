"""Dtypes of arrays that are not numbers: random keys."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["KEY_DTYPES", "KeyDtype", "extended", "key_dtype_of", "prng_key"]

UINT32 = np.dtype(np.uint32)


class extended(np.generic):
    """The category of dtypes whose elements are not numbers.

    >>> import rlx
    >>> import rlx.numpy as jnp
    >>> jnp.issubdtype(rlx.random.key(0).dtype, rlx.dtypes.extended)
    True
    >>> jnp.issubdtype(jnp.float32, rlx.dtypes.extended)
    False
    """


class prng_key(extended):
    """The category of the dtypes of random keys.

    >>> import rlx
    >>> rlx.numpy.issubdtype(rlx.random.key(0).dtype, rlx.dtypes.prng_key)
    True
    """


class KeyDtype:
    """The dtype of an array of keys of one generator: `words` uint32 words per key; its `str` is key<tag>.

    There is one object for each generator. In memory a key is a record of its words: `record`, a NumPy dtype.
    """

    type = prng_key
    kind = "k"  # none of NumPy's

    def __init__(self, generator: str, tag: str, words: int) -> None:
        self.generator = generator
        self.tag = tag
        self.name = f"key<{tag}>"
        self.words = words
        self.itemsize = words * UINT32.itemsize
        self.record = np.dtype([(tag, UINT32, (words,))])

    def __reduce__(self) -> tuple[Any, ...]:
        return key_dtype_of, (self.generator,)

    def __copy__(self) -> KeyDtype:
        return self

    def __deepcopy__(self, memo: Any) -> KeyDtype:
        return self

    def __repr__(self) -> str:
        return self.name

    def words_of(self, records: np.ndarray) -> np.ndarray:
        """The words of an array of records, along a new last axis."""
        return records[self.tag]

    def records_of(self, words: np.ndarray) -> np.ndarray:
        """An array of records whose words are along the last axis of `words`."""
        dense = np.ascontiguousarray(words).reshape(words.shape)
        return np.ndarray(words.shape[:-1], self.record, dense)


KEY_DTYPES = {
    dtype.generator: dtype
    for dtype in (
        KeyDtype("threefry2x32", "fry", 2),
        KeyDtype("threefry4x32", "fry4", 4),
        KeyDtype("philox2x32", "phx2", 1),
        KeyDtype("philox4x32", "phx4", 2),
        KeyDtype("rbg", "rbg", 4),
        KeyDtype("unsafe_rbg", "urbg", 4),
    )
}
_BY_RECORD = {dtype.record: dtype for dtype in KEY_DTYPES.values()}


def key_dtype_of(description: Any) -> KeyDtype | None:
    """The dtype of keys for a generator's name, a record dtype or the dtype itself; None for anything else."""
    if isinstance(description, KeyDtype):
        return description
    if isinstance(description, str):
        return KEY_DTYPES.get(description)
    return _BY_RECORD.get(description) if isinstance(description, np.dtype) else None
