"""Sorting, and the largest or smallest elements."""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import is_complex, is_inexact
from rlx.lax.operands import as_array, canonical_axis
from rlx.ops import sorting
from rlx.ops.arithmetic import negative

__all__ = ["approx_max_k", "approx_min_k", "sort", "sort_key_val", "top_k"]


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """The array sorted along an axis; several arrays are sorted together by the first num_keys.

    Sorting is always stable; NaNs are last.

    >>> import numpy as np
    >>> from rlx import lax
    >>> lax.sort(np.array([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    several = isinstance(operand, (tuple, list))
    arrays = [as_array(x) for x in (operand if several else (operand,))]
    if not arrays or not 1 <= num_keys <= len(arrays):
        raise ShapeError(
            f"lax.sort got {len(arrays)} arrays and num_keys={num_keys}.",
            "num_keys must be at least 1 and at most the number of arrays.",
        )
    axis = canonical_axis("sort", dimension, arrays[0].ndim)
    if any(x.shape != arrays[0].shape for x in arrays):
        raise ShapeError(
            f"lax.sort got arrays of shapes {', '.join(str(x.shape) for x in arrays)}.", "Their shapes must be equal."
        )
    outs = sorting.sort(*arrays, axis=axis, keys=num_keys)
    return tuple(outs) if several else outs[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Array, Array]:
    """Keys sorted along an axis, and values in the same order.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> keys, values = lax.sort_key_val(jnp.array([3, 1, 2]), jnp.array([30, 10, 20]))
    >>> values.tolist()
    [10, 20, 30]
    """
    return sort((keys, values), dimension, is_stable)


def top_k(operand: Any, k: int, *, axis: int = -1, is_stable: bool = True) -> tuple[Array, Array]:
    """The k largest elements along an axis in descending order, and their positions, which are int32.

    Args: operand: real numbers; k: number of elements; axis. is_stable: accepted for JAX compatibility: equal elements
      always keep their order.

    Raises ShapeError if the axis has fewer elements, or too many for int32.

    >>> import numpy as np
    >>> from rlx import lax
    >>> values, positions = lax.top_k(np.array([3, 1, 2]), 2)
    >>> values.tolist(), positions.tolist()
    ([3, 2], [0, 2])
    """
    x = as_array(operand)
    axis = canonical_axis("top_k", axis, x.ndim)
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(
            f"lax.top_k got k={k} for an axis of size {x.shape[axis]}.",
            "k must be at most the axis's size.",
        )
    if x.shape[axis] >= 2**31:
        raise ShapeError(
            f"lax.top_k got an axis of size {x.shape[axis]}: its int32 positions would overflow.", "Split the axis."
        )
    return tuple(sorting.top_k(x, k=int(k), axis=axis))


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """The k largest elements along an axis in descending order, and their positions.

    rlx computes the exact result, so that recall_target, reduction_input_size_override and aggregate_to_topk
    make no difference.

    >>> import numpy as np
    >>> from rlx import lax
    >>> lax.approx_max_k(np.array([3.0, 1.0, 2.0]), 2)[1].tolist()
    [0, 2]
    """
    return top_k(_inexact("approx_max_k", operand), k, axis=reduction_dimension)


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """The k smallest elements along an axis in ascending order, and their positions; see approx_max_k.

    >>> import numpy as np
    >>> from rlx import lax
    >>> lax.approx_min_k(np.array([3.0, 1.0, 2.0]), 2)[0].tolist()
    [1.0, 2.0]
    """
    values, positions = top_k(negative(_inexact("approx_min_k", operand)), k, axis=reduction_dimension)
    return negative(values), positions


def _inexact(name: str, operand: Any) -> Array:
    x = as_array(operand)
    if not is_inexact(x.dtype) or is_complex(x.dtype):
        raise DtypeError(f"lax.{name} got {x.dtype.name}.", "It takes floating arrays: convert, or use lax.top_k.")
    return x
