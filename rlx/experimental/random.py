"""rlx.experimental.random: a random generator with state, as NumPy's."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx import random
from rlx.array import Array
from rlx.errors import ShapeError
from rlx.lax.ref import Ref, new_ref
from rlx.trees import tree

__all__ = ["StatefulPRNG", "stateful_rng"]


@partial(tree.register_dataclass, data_fields=["base_key", "counter"], meta_fields=[])
@dataclass(frozen=True)
class StatefulPRNG:
    """A generator that makes a new key for each draw, from its key and the number of draws so far, in a Ref.

    Functions under jit, scan and other transforms close over one, or take it as an argument; vmap maps over the result
    of `split`.

    >>> from rlx.experimental.random import stateful_rng
    >>> rng = stateful_rng(42)
    >>> rng.uniform().item() == rng.uniform().item()
    False
    """

    base_key: Array
    counter: Ref

    def key(self, shape: int | Sequence[int] = ()) -> Array:
        """A new key, or an array of new keys.

        Raises: ShapeError for a generator that was split and is not mapped over.
        """
        if self.base_key.shape:
            raise ShapeError(
                f"A generator that was split into {self.base_key.shape} draws.", "Map over it with rlx.vmap."
            )
        key = random.fold_in(self.base_key, self.counter[...])
        self.counter[...] += 1
        sizes = _shape(shape)
        return random.split(key, sizes) if sizes else key

    def random(self, size: int | Sequence[int] | None = None, dtype: Any = float) -> Array:
        """Uniform floats from 0 up to but not including 1, of shape `size`."""
        return random.uniform(self.key(), _shape(size), dtype=dtype)

    def uniform(
        self, low: Any = 0, high: Any = 1, size: int | Sequence[int] | None = None, *, dtype: Any = float
    ) -> Array:
        """Uniform floats from `low` up to `high`, of shape `size`, or of the shape of the bounds."""
        return random.uniform(self.key(), _shape(size, low, high), minval=low, maxval=high, dtype=dtype)

    def normal(
        self, loc: Any = 0, scale: Any = 1, size: int | Sequence[int] | None = None, *, dtype: Any = float
    ) -> Array:
        """Normally distributed floats with mean `loc` and standard deviation `scale`."""
        drawn = random.normal(self.key(), _shape(size, loc, scale), dtype)
        return (jnp.asarray(loc) + jnp.asarray(scale) * drawn).astype(drawn.dtype)

    def integers(
        self, low: Any, high: Any = None, size: int | Sequence[int] | None = None, *, dtype: Any = int
    ) -> Array:
        """Integers from `low` up to but not including `high`; from 0 up to `low` if `high` is None."""
        low, high = (0, low) if high is None else (low, high)
        return random.randint(self.key(), _shape(size, low, high), minval=low, maxval=high, dtype=dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Generators in one object, for vmap over their axes.

        >>> import rlx
        >>> from rlx.experimental.random import stateful_rng
        >>> rlx.vmap(lambda rng: rng.uniform())(stateful_rng(0).split(3)).shape
        (3,)
        """
        return StatefulPRNG(self.key(num), new_ref(jnp.zeros(_shape(num), int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """A list of independent generators."""
        return [StatefulPRNG(key, new_ref(0)) for key in self.key(n_children)]


def _shape(size: int | Sequence[int] | None, *others: Any) -> tuple[int, ...]:
    """A size as a shape; by default the shape that the others broadcast to."""
    if size is None:
        return np.broadcast_shapes(*map(np.shape, others))
    return tuple(map(operator.index, size)) if isinstance(size, Sequence) else (operator.index(size),)


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """A random generator with state, as numpy.random.default_rng.

    seed: an integer; by default a new one each time. impl: the generator of bits, as for rlx.random.key.

    >>> import rlx
    >>> from rlx.experimental.random import stateful_rng
    >>> rng = stateful_rng(1701)
    >>> draw = rlx.jit(lambda: rng.integers(100, size=3))
    >>> (draw() == draw()).all().item()
    False
    """
    seed = secrets.randbits(31) if seed is None else seed
    return StatefulPRNG(random.key(seed, impl=impl), new_ref(0))
