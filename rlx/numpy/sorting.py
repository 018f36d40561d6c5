"""Sorting: sort, argsort, lexsort, partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.array import Array
from rlx.config import config
from rlx.errors import ShapeError
from rlx.numpy.creation import count_along
from rlx.numpy.manipulation import flip, ravel
from rlx.numpy.promotion import canonical_axis, complex_dtype, convert_to, inexact_dtype, operand
from rlx.ops import sorting
from rlx.trace.flat import as_array

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort", "sort_complex"]


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
    """The elements in ascending order; NaN come last.

    Args: a: array; axis: int (None: all elements in a row); descending: the other way round.
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
) -> Array:
    """The indices that sort an array, stably.

    Args: as `sort`. Returns: an integer array.

    >>> import rlx.numpy as jnp
    >>> jnp.argsort(jnp.array([3, 1, 2]))
    Array([1, 2, 0], dtype=int32)
    """
    x, number = _flat_or_axis("argsort", a, axis)
    if descending:
        # reversed before and after, so that equal elements keep their order
        numbers = flip(count_along(x.shape, number, config.default_int), number)
        _, result = sorting.sort(flip(x, number), numbers, axis=number, keys=1)
        return flip(result, number)
    return sorting.sort(x, count_along(x.shape, number, config.default_int), axis=number, keys=1)[1]


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
    number = canonical_axis(axis, arrays[0].ndim, "lexsort")
    numbers = count_along(arrays[0].shape, number, config.default_int)
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


def partition(a: Any, kth: int, axis: int = -1) -> Array:
    """Elements rearranged so that the kth is where sorting would put it, smaller ones before it.

    Args: a: array; kth: int; axis. Returns: an array (it is sorted altogether).
    Raises: ShapeError if kth is not on the axis.

    >>> import rlx.numpy as jnp
    >>> jnp.partition(jnp.array([3, 1, 2]), 1)
    Array([1, 2, 3], dtype=int32)
    """
    x, number = _flat_or_axis("partition", a, axis)
    canonical_axis(kth, x.shape[number], "partition")
    return sort(x, number)


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
