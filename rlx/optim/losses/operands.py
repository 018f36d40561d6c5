"""Operands of losses: dtypes are checked, and 16-bit floats are computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import ml_dtypes
import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import is_float, is_integer
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed
from rlx.trees import tree

__all__ = ["Axis", "float_array", "integer_array", "loss", "same_shapes", "where_mask"]

Axis = int | tuple[int, ...] | None
F = TypeVar("F", bound=Callable[..., Any])
_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def loss(function: F) -> F:
    """Decorator: 16-bit floats are computed in float32, and each result is rounded once. Calls are replayed."""

    @wraps(function)
    def computed(*args: Any, **kwargs: Any) -> Any:
        floats = [x.dtype for x in (*args, *kwargs.values()) if _is_float_array(x)]
        if not any(d in _HALVES for d in floats):
            return function(*args, **kwargs)
        results = function(*map(_widened, args), **{name: _widened(x) for name, x in kwargs.items()})
        dtype = jnp.result_type(*floats)
        return tree.map(lambda x: lax.convert_element_type(x, dtype), results)

    return cast(F, replayed(computed))


def _is_float_array(x: Any) -> bool:
    return is_float(getattr(x, "dtype", None))  # ty: ignore[invalid-argument-type]


def _widened(x: Any) -> Any:
    is_half = _is_float_array(x) and x.dtype in _HALVES
    return lax.convert_element_type(x, np.float32) if is_half else x


def float_array(function: str, name: str, x: Any) -> Array:
    """The operand as an array; DtypeError if its elements are not floats."""
    value = as_array(x)
    if not is_float(value.dtype):
        raise DtypeError(f"optim.{function} got {name} of dtype {value.dtype}.", f"Pass floats: {name}.astype(float).")
    return value


def integer_array(function: str, name: str, x: Any) -> Array:
    """The operand as an array; DtypeError if its elements are not integers."""
    value = as_array(x)
    if not is_integer(value.dtype):
        raise DtypeError(
            f"optim.{function} got {name} of dtype {value.dtype}.", "They are the numbers of classes: pass integers."
        )
    return value


def same_shapes(function: str, **operands: Any) -> None:
    """ShapeError if the shapes differ."""
    shapes = {name: jnp.shape(x) for name, x in operands.items()}
    if len(set(shapes.values())) > 1:
        found = " and ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
        raise ShapeError(
            f"optim.{function} got {found}.", "The shapes must be equal: use reshape or rlx.numpy.broadcast_to."
        )


def where_mask(where: Any, like: Array, axis: Axis) -> Any:
    """`where` with the reduced axes; it may be given without them."""
    if where is None:
        return None
    mask = as_array(where)
    return mask if mask.ndim == like.ndim or axis is None else jnp.expand_dims(mask, axis)
