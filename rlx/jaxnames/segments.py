"""Reductions of an array's slices by segment, as in jax.ops. They are also available as rlx.ops.segment_sum etc."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array, narrowed
from rlx.errors import DtypeError, ShapeError
from rlx.ir.scalar import neutral
from rlx.ir.types import is_complex, is_integer
from rlx.numpy.placement import placed
from rlx.offered_names import offer_names
from rlx.trace.flat import as_array

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]

offer_names(globals())


_POSITIONS = np.dtype(np.int64)


def _count(name: str, ids: Array, num_segments: Any) -> int:
    if num_segments is None:
        return int(ids.max()) + 1 if ids.size else 0
    count = int(num_segments)
    if count < 0:
        raise ShapeError(f"{name} got num_segments={count}.", "It must be the length of the result: at least 0.")
    return count


def _segments(name: str, data: Any, segment_ids: Any, num_segments: Any, start: Any, mode: Any) -> Any:
    """The values, the segments of the result, and each slice's segment; an index out of bounds drops the slice."""
    values, ids = as_array(data), as_array(segment_ids)
    if not is_integer(ids.dtype):
        raise DtypeError(f"{name} got segment_ids of dtype {ids.dtype}.", "They must be integers.")
    if values.ndim == 0:
        values = jnp.broadcast_to(values, ids.shape)
    if values.shape[: ids.ndim] != ids.shape:
        raise ShapeError(
            f"{name} got segment_ids of shape {ids.shape} for data of shape {values.shape}.",
            "Each slice of data along its leading axes must have one id. A scalar counts for every id.",
        )
    count = _count(name, ids, num_segments)
    places = ids.astype(narrowed(_POSITIONS))
    places = jnp.where((places < 0) | (places >= count), count, places) if mode != "clip" else places.clip(0, count - 1)
    empty = jnp.full((count, *values.shape[ids.ndim :]), start(values.dtype), values.dtype)
    return values, empty, places


def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Sums of the slices of an array that belong to the same segment.

    Args:
      data: the array, or a scalar that counts for every id.
      segment_ids: integers, of the leading axes of `data`: the segment of each slice. Ids outside of
        [0, num_segments) are dropped; with mode="clip" they count as the nearest segment.
      num_segments: the length of the result; by default one more than the largest id, which must then be known.
      indices_are_sorted, unique_indices, bucket_size: accepted for JAX compatibility and ignored.
      out_sharding: the sharding of the result.

    >>> import numpy as np, rlx
    >>> rlx.ops.segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0])).tolist()
    [5.0, 2.0]
    """
    values, empty, places = _segments("segment_sum", data, segment_ids, num_segments, lambda _: 0, mode)
    return placed(empty.at[places].add(values, mode="drop"), None, out_sharding, values)


def segment_prod(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Products of the slices of each segment; 1 for an empty segment. The arguments are the same as for segment_sum.

    >>> import numpy as np, rlx
    >>> rlx.ops.segment_prod(np.array([3, 2, 4]), np.array([0, 2, 0])).tolist()
    [12, 1, 2]
    """
    values, empty, places = _segments("segment_prod", data, segment_ids, num_segments, lambda _: 1, mode)
    return placed(empty.at[places].multiply(values, mode="drop"), None, out_sharding, values)


def segment_max(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The largest of the slices of each segment; the dtype's smallest value (-inf) for an empty segment.

    The arguments are the same as for segment_sum. Raises DtypeError for complex data.

    >>> import numpy as np, rlx
    >>> rlx.ops.segment_max(np.array([3, 2, 4]), np.array([0, 1, 0])).tolist()
    [4, 2]
    """
    start = lambda dtype: neutral("max", _ordered("segment_max", dtype))  # noqa: E731
    values, empty, places = _segments("segment_max", data, segment_ids, num_segments, start, mode)
    return placed(empty.at[places].max(values, mode="drop"), None, out_sharding, values)


def segment_min(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The smallest of the slices of each segment; the dtype's largest value (inf) for an empty segment.

    The arguments are the same as for segment_sum. Raises DtypeError for complex data.

    >>> import numpy as np, rlx
    >>> rlx.ops.segment_min(np.array([3, 2, 4]), np.array([0, 1, 0])).tolist()
    [3, 2]
    """
    start = lambda dtype: neutral("min", _ordered("segment_min", dtype))  # noqa: E731
    values, empty, places = _segments("segment_min", data, segment_ids, num_segments, start, mode)
    return placed(empty.at[places].min(values, mode="drop"), None, out_sharding, values)


def _ordered(name: str, dtype: np.dtype) -> np.dtype:
    if is_complex(dtype):
        raise DtypeError(f"{name} got data of dtype {dtype}.", "Complex numbers have no order.")
    return dtype
