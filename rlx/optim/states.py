"""Parts of optimisers' states: counts, running means, and the choice between two states."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.trace.flat import as_array
from rlx.trees import tree

__all__ = ["as_before", "chosen", "incremented", "mixed", "new_count", "unbiased", "zeros_of"]

Tree = Any

_LARGEST_COUNT = int(np.iinfo(np.int32).max)


def new_count() -> Array:
    """An int32 zero."""
    return lax.full((), 0, np.int32)


def incremented(count: Any) -> Array:
    """count + 1, which stays at the largest int32 rather than wrapping."""
    return jnp.where(count < _LARGEST_COUNT, count + 1, _LARGEST_COUNT)


def zeros_of(params: Tree, dtype: Any = None) -> Tree:
    """Zeros of the shapes of the parameters."""
    return tree.map(lambda p: jnp.zeros_like(as_array(p), dtype=dtype), params)


def as_before(values: Tree, state: Tree) -> Tree:
    """The next state in the dtypes of the previous one, so that it can be the carry of a scan."""
    return tree.map(lambda x, old: lax.convert_element_type(x, as_array(old).dtype), values, state)


def chosen(condition: Any, values: Tree, state: Tree) -> Tree:
    """`values` where the condition holds, else `state`, in the dtypes of `state`."""
    return as_before(tree.map(lambda new, old: jnp.where(condition, new, old), values, state), state)


def mixed(old: Any, new: Any, decay: Any) -> Any:
    """The running mean of a moment."""
    return (1 - decay) * new + decay * old


def unbiased(moment: Tree, decay: Any, count: Any) -> Tree:
    """A running mean that began at zero, corrected for it."""
    correction = 1 - jnp.power(decay, count)
    return tree.map(lambda m: m / lax.convert_element_type(correction, m.dtype), moment)
