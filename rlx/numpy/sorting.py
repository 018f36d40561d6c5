"""Sorting: sort, argsort, lexsort, partition."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from rlx.array import Array
from rlx.config import config
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import is_complex
from rlx.numpy.creation import count_along
from rlx.numpy.index_dtypes import index_dtype, position_dtype
from rlx.numpy.manipulation import flip, ravel
from rlx.numpy.promotion import canonical_axis, complex_dtype, convert_to, fill, inexact_dtype, operand, to_dtype
from rlx.ops import shape as shapes
from rlx.ops import sorting
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort", "sort_complex", "top_k"]


def _flat_or_axis(name: str, a: Any, axis: int | None) -> tuple[Any, int]:
    x = as_array(operand(a, name))
    if axis is None:
        return ravel(x), 0
    return x, canonical_axis(axis, x.ndim, name)


def sort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """The elements in ascending order; NaNs are last.

    Args: a: array; axis: int (None: all elements in a row); descending: in descending order.
    Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.sort(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    x, number = _flat_or_axis("sort", a, axis)
    (result,) = sorting.sort(x, axis=number, keys=1)
    return flip(result, number) if descending else result


def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Array:
    """The indices that sort an array, stably.

    Args: as `sort`, and dtype: of the result (None: the default integer). Returns: an integer array.

    >>> import rlx.numpy as jnp
    >>> jnp.argsort(jnp.array([3, 1, 2]))
    Array([1, 2, 0], dtype=int32)
    """
    x, number = _flat_or_axis("argsort", a, axis)
    wanted = position_dtype(x.shape[number]) if dtype is None else to_dtype(dtype)
    if descending:
        # reversed before and after, so that equal elements keep their order
        numbers = flip(count_along(x.shape, number, wanted), number)
        _, result = sorting.sort(flip(x, number), numbers, axis=number, keys=1)
        return flip(result, number)
    return sorting.sort(x, count_along(x.shape, number, wanted), axis=number, keys=1)[1]


def top_k(a: Any, k: int, /, *, axis: int = -1, mode: str = "largest", sorted: bool = True) -> tuple[Array, Array]:
    """The k largest (or smallest) elements along an axis, and their positions.

    Args: a: real array; k: their number, at most the size of the axis; axis; mode: "largest" or
    "smallest"; sorted: accepted; results are always sorted.
    Returns: (values, integer indices). NaN count as largest; of equal elements the first come first.
    Raises: ShapeError if there are fewer than k; DtypeError for complex numbers; ValueError for
    another mode.

    >>> import rlx.numpy as jnp
    >>> [v.tolist() for v in jnp.top_k(jnp.array([3, 1, 2]), 2)]
    [[3, 2], [0, 2]]
    """
    if mode not in ("largest", "smallest"):
        raise ValueError(f"top_k has no mode {mode!r}: use 'largest' or 'smallest'.")
    x = as_array(operand(a, "top_k"))
    number, count = canonical_axis(axis, x.ndim, "top_k"), operator.index(k)
    if not 0 <= count <= x.shape[number]:
        raise ShapeError(f"top_k got k={count} for an axis of size {x.shape[number]}.", "Use 0 <= k <= size.")
    if is_complex(x.dtype):
        raise DtypeError("top_k does not take complex numbers.", "They have no order.")
    if mode == "largest":
        return sorting.top_k(x, k=count, axis=number)
    ordered = sorting.sort(x, count_along(x.shape, number, index_dtype(x.shape[number])), axis=number, keys=1)
    values, indices = [shapes.slice_along(v, 0, count, number) for v in ordered]
    return values, indices


def lexsort(keys: Sequence[Any] | Any, axis: int = -1) -> Array:
    """The indices that sort by several keys, the last one first.

    Args: keys: arrays of one shape; axis. Returns: an integer array. Raises: ShapeError without keys.

    >>> import rlx.numpy as jnp
    >>> jnp.lexsort((jnp.array([1, 0, 2]), jnp.array([1, 1, 0])))
    Array([2, 1, 0], dtype=int32)
    """
    arrays = [as_array(k) for k in keys]
    if not arrays or any(k.shape != arrays[0].shape for k in arrays):
        raise ShapeError("lexsort needs keys of one shape.", "Pass a sequence of arrays.")
    if not arrays[0].ndim:
        return fill((), 0, config.default_int)  # as NumPy's: a number is in order
    number = canonical_axis(axis, arrays[0].ndim, "lexsort")
    numbers = count_along(arrays[0].shape, number, position_dtype(arrays[0].shape[number]))
    return sorting.sort(*arrays[::-1], numbers, axis=number, keys=len(arrays))[-1]


def sort_complex(a: Any) -> Array:
    """All elements as complex numbers in ascending order along the last axis.

    Args: a: array. Returns: a complex array.

    >>> import rlx.numpy as jnp
    >>> jnp.sort_complex(jnp.array([2, 1]))
    Array([1.+0.j, 2.+0.j], dtype=complex64)
    """
    x = as_array(operand(a, "sort_complex"))
    return sort(convert_to(x, complex_dtype(inexact_dtype(x.dtype))))


@replayed
def partition(a: Any, kth: int, axis: int = -1) -> Array:
    """Elements rearranged so that the kth is at its sorted position, with smaller ones before it.

    Args: a: array; kth: int; axis. Returns: an array (completely sorted).
    Raises: ShapeError if kth is not on the axis.

    >>> import rlx.numpy as jnp
    >>> jnp.partition(jnp.array([3, 1, 2]), 1)
    Array([1, 2, 3], dtype=int32)
    """
    x, number = _flat_or_axis("partition", a, axis)
    canonical_axis(kth, x.shape[number], "partition")
    return sort(x, number)


@replayed
def argpartition(a: Any, kth: int, axis: int = -1) -> Array:
    """The indices of `partition`.

    Args: as `partition`. Returns: an integer array.

    >>> import rlx.numpy as jnp
    >>> jnp.argpartition(jnp.array([3, 1, 2]), 1)
    Array([1, 2, 0], dtype=int32)
    """
    x, number = _flat_or_axis("argpartition", a, axis)
    canonical_axis(kth, x.shape[number], "argpartition")
    return argsort(x, number)
