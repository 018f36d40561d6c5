"""jax.numpy's functions whose result class JAX's libraries check: traced values, and NumPy's arrays."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import is_plain
from rlx.ops.shape import reshape as reshaped
from rlx.trace.builder import state

__all__ = ["array", "reshape"]


@wraps(jnp.array)
def array(object: Any, *options: Any, **more: Any) -> Any:
    """As rlx.numpy.array; traced inside of a traced function, where rlx leaves a number untraced (optimistix)."""
    found = jnp.array(object, *options, **more)
    if state.builder is None or found.ndim or not is_plain(found):
        return found
    return state.builder.emit(reshaped, (found,), {"shape": ()})


@wraps(jnp.reshape)
def reshape(a: Any, shape: Any, order: str = "C", **more: Any) -> Any:
    """As rlx.numpy.reshape; a NumPy array stays one (numpyro)."""
    if isinstance(a, np.ndarray) and not more:
        return a.reshape(shape, order=order)
    return jnp.reshape(a, shape, order, **more)
