"""jax.extend.random: the key generators as values, and the hash function of the default one."""

from __future__ import annotations

from typing import Any

from rlx import lax, random
from rlx.array import Array
from rlx.jaxnames.named_primitives import PRIMITIVES
from rlx.random.counters import hashed_counts
from rlx.trace.flat import as_array

__all__ = [
    "random_seed",
    "rbg_prng_impl",
    "seed_with_impl",
    "threefry2x32_p",
    "threefry_2x32",
    "threefry_prng_impl",
    "unsafe_rbg_prng_impl",
]

threefry_prng_impl = random.key_dtype("threefry2x32")
rbg_prng_impl = random.key_dtype("rbg")
unsafe_rbg_prng_impl = random.key_dtype("unsafe_rbg")
threefry2x32_p = PRIMITIVES["threefry2x32_p"]


def random_seed(seeds: Any, impl: Any) -> Array:
    """Typed keys of a generator.

    >>> from rlx.jaxnames.extend_random import random_seed, threefry_prng_impl
    >>> random_seed(0, threefry_prng_impl).dtype
    key<fry>
    """
    return random.key(seeds, impl=impl)


def seed_with_impl(impl: Any, seed: Any) -> Array:
    """A typed key of a generator."""
    return random_seed(seed, impl)


def threefry_2x32(keypair: Any, count: Any) -> Array:
    """The hashes of an array of uint32 counters, in JAX's former order; `keypair`: the two words of a key.

    >>> import numpy as np
    >>> from rlx.jaxnames.extend_random import threefry_2x32
    >>> threefry_2x32(np.zeros(2, np.uint32), np.arange(2, dtype=np.uint32)).shape
    (2,)
    """
    first, second = keypair
    return hashed_counts(lax.stack([as_array(first), as_array(second)]), as_array(count))
