"""Dtypes of arrays that are not numbers: random keys."""

from __future__ import annotations

import numpy as np

__all__ = ["KeyDtype", "extended", "prng_key"]


class extended(np.generic):
    """The category of dtypes whose elements are no numbers.

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
    """The dtype of an array of typed keys; `str` of it is key<fry>."""

    type = prng_key
    name = "key<fry>"
    itemsize = 8

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyDtype)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name
