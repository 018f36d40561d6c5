"""Functions that move elements: broadcast, reshape, transpose, slice, pad, join.

`sharding` and `out_sharding` are accepted for JAX compatibility: an array is on one device.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array, wrap
from rlx.errors import DtypeError, IndexBoundsError, ShapeError
from rlx.ir.dims import is_sized
from rlx.ir.types import TensorType, bits_of, broadcast_sizes
from rlx.lax.operands import (
    as_array,
    as_dtype,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    fits,
    new_shape,
    scalar_of,
)
from rlx.lax.operands import operands as of_one_dtype
from rlx.numpy.bits import cast_bits
from rlx.numpy.dtypes import result_type
from rlx.numpy.placement import divided_like, made_like, placed
from rlx.numpy.promotion import yielding
from rlx.ops import conversion, shape
from rlx.ops.families import broadcast_to
from rlx.trace.builder import is_traced
from rlx.trace.flat import shared_array
from rlx.trace.primitive import registry

__all__ = [
    "bitcast_convert_type",
    "broadcast",
    "broadcast_in_dim",
    "broadcast_like",
    "broadcast_shapes",
    "broadcast_to_rank",
    "broadcasted_iota",
    "collapse",
    "concatenate",
    "convert_element_type",
    "dtype",
    "empty",
    "expand_dims",
    "full",
    "full_like",
    "index_in_dim",
    "iota",
    "pad",
    "reshape",
    "rev",
    "shape_as_value",
    "slice",
    "slice_in_dim",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unstack",
    "zeros_like_array",
]


# ------------------------------------------------------------- dtypes
def dtype(x: Any) -> np.dtype:
    """The dtype of an array, a Python number, or a dtype argument.

    >>> from rlx import lax
    >>> lax.dtype(1.0), lax.dtype("int32")
    (dtype('float32'), dtype('int32'))
    """
    return result_type(x)


def convert_element_type(operand: Any, new_dtype: Any) -> Array:
    """The array in another dtype. Floats become integers by truncation.

    >>> from rlx import lax
    >>> lax.convert_element_type(2.75, "int32").item()
    2
    """
    dtype = as_dtype(new_dtype)
    if isinstance(operand, (float, complex)) and fits(operand, dtype):
        return scalar_of(operand, dtype)  # not by way of the default dtype
    x = as_array(operand)
    if x.dtype == dtype and not x.weak_type:
        return x
    return conversion.convert(x, dtype=dtype, weak=False)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Array:
    """The same bits read as another dtype.

    To a narrower dtype each element becomes a row along a new last axis; to a wider one the last axis
    disappears; its elements together must make one element of the wider dtype.

    >>> from rlx import lax
    >>> hex(lax.bitcast_convert_type(1.0, "uint32").item())
    '0x3f800000'
    """
    x, dtype = as_array(operand), as_dtype(new_dtype)
    x = conversion.convert(x, dtype=x.dtype, weak=False) if x.weak_type else x
    if bits_of(x.dtype) < bits_of(dtype) and x.shape[-1:] != (bits_of(dtype) // bits_of(x.dtype),):
        raise ShapeError(
            f"lax.bitcast_convert_type cannot join {x.type!r} to {dtype.name}.",
            f"The last axis must have size {bits_of(dtype) // bits_of(x.dtype)}.",
        )
    return cast_bits(x, dtype)


# ------------------------------------------------------------- new arrays
def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Array:
    """An array of the given shape filled with one value.

    >>> from rlx import lax
    >>> lax.full((2,), 7).tolist()
    [7, 7]
    """
    value = as_array(fill_value)
    if value.shape != ():
        raise ShapeError(f"lax.full got a fill value of shape {value.shape}.", "Pass a scalar; broadcast arrays.")
    weak = dtype is None and value.weak_type
    dtype = value.dtype if dtype is None else as_dtype(dtype)
    value = scalar_of(fill_value, dtype)
    filled = broadcast_in_dim(value, new_shape("full", shape), ())
    return placed(conversion.convert(filled, dtype=dtype, weak=True) if weak else filled, sharding)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Any = None) -> Array:
    """An array of x's shape and dtype, unless others are given, filled with one value.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.full_like(jnp.arange(3), 7).tolist()
    [7, 7, 7]
    """
    like = shared_array(x)
    weak = dtype is None and like.weak_type
    dtype = like.dtype if dtype is None else as_dtype(dtype)
    value = scalar_of(fill_value, dtype)

    def make(part: tuple[int, ...]) -> Array:
        filled = full(part, value)
        return conversion.convert(filled, dtype=dtype, weak=True) if weak else filled

    sizes = like.shape if shape is None else new_shape("full_like", shape)
    if is_traced(value):  # its derivative is summed over processes
        return placed(make(sizes), divided_like(like, sizes) if sharding is None else sharding, like=like)
    return made_like(make, sizes, like, sharding)


def zeros_like_array(x: Any) -> Array:
    """Zeros of x's shape and dtype.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.zeros_like_array(jnp.ones(2)).tolist()
    [0.0, 0.0]
    """
    return full_like(x, 0)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Array:
    """An array of zeros: rlx has no uninitialised memory.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.empty((2,), jnp.float32).tolist()
    [0.0, 0.0]
    """
    return full(shape, 0, dtype)


def iota(dtype: Any, size: int) -> Array:
    """0, 1, 2, ... as a vector.

    >>> from rlx import lax
    >>> lax.iota("float32", 3).tolist()
    [0.0, 1.0, 2.0]
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int, *, out_sharding: Any = None) -> Array:
    """An array whose elements are their own positions along one axis.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.broadcasted_iota(jnp.int32, (2, 3), 1).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    shape = new_shape("broadcasted_iota", shape)
    axis = canonical_axis("broadcasted_iota", dimension, len(shape))
    return registry["iota"](type=TensorType(shape, as_dtype(dtype)), axis=axis)


# ------------------------------------------------------------- broadcasting and reshaping
def broadcast(operand: Any, sizes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """The array repeated along new leading axes of the given sizes.

    >>> from rlx import lax
    >>> lax.broadcast(lax.iota("int32", 2), (3,)).shape
    (3, 2)
    """
    x, lead = as_array(operand), new_shape("broadcast", sizes)
    if not lead:
        return x
    return broadcast_in_dim(x, (*lead, *x.shape), range(len(lead), len(lead) + x.ndim))


def broadcast_in_dim(
    operand: Any, shape: Any, broadcast_dimensions: Sequence[int], *, out_sharding: Any = None
) -> Array:
    """The array broadcast to `shape`: its axis i becomes axis broadcast_dimensions[i] of the result.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.broadcast_in_dim(jnp.array([1, 2]), (2, 3), (0,)).tolist()
    [[1, 1, 1], [2, 2, 2]]
    """
    x, shape, dims = as_array(operand), new_shape("broadcast_in_dim", shape), tuple(broadcast_dimensions)
    if x.shape == shape and dims == tuple(range(len(shape))):
        return x
    if len(set(dims)) == x.ndim and list(dims) != sorted(dims):
        x = transpose(x, sorted(range(x.ndim), key=lambda axis: dims[axis]))
        dims = tuple(sorted(dims))
    return registry["broadcast_in_dim"](x, shape=shape, dims=dims)


def broadcast_like(arr: Any, like_arr: Any) -> Array:
    """The array broadcast to the shape of another.

    >>> from rlx import lax
    >>> lax.broadcast_like(1.0, lax.iota("int32", 3)).tolist()
    [1.0, 1.0, 1.0]
    """
    return broadcast_to(as_array(arr), shared_array(like_arr).shape)


def shape_as_value(shape: Any) -> Array:
    """A shape as a vector of int32.

    >>> from rlx import lax
    >>> lax.shape_as_value((2, 3)).tolist()
    [2, 3]
    """
    return placed(wrap(np.asarray(canonical_shape(shape), np.int32)))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that arrays of the given shapes broadcast to.

    >>> from rlx import lax
    >>> lax.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    try:
        sized = any(is_sized(n) for shape in shapes if isinstance(shape, tuple) for n in shape)
        return broadcast_sizes(*shapes) if sized else tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError(
            f"Incompatible shapes for broadcasting: {', '.join(map(str, shapes))}.",
            "Axes are aligned from the last one and must be equal or 1.",
        ) from None


def broadcast_to_rank(x: Any, rank: int) -> Array:
    """The array with leading axes of size 1, so that it has `rank` axes.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.broadcast_to_rank(jnp.ones((2, 3)), 4).shape
    (1, 1, 2, 3)
    """
    value = as_array(x)
    return reshape(value, (1,) * (rank - value.ndim) + value.shape) if value.ndim < rank else value


def reshape(
    operand: Any, new_sizes: Any, dimensions: Sequence[int] | None = None, *, out_sharding: Any = None
) -> Array:
    """The elements in row-major order in another shape; `dimensions`: an order of the axes to take first.

    >>> from rlx import lax
    >>> lax.reshape(lax.iota("int32", 4), (2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    x, sizes = as_array(operand), canonical_shape(new_sizes)
    if dimensions is not None:
        x = transpose(x, dimensions)
    return x if x.shape == sizes else registry["reshape"](x, shape=sizes)


def transpose(operand: Any, permutation: Sequence[int]) -> Array:
    """The axes in another order: axis permutation[i] becomes axis i.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.transpose(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x, order = as_array(operand), tuple(operator.index(p) for p in permutation)
    return x if order == tuple(range(x.ndim)) else registry["transpose"](x, permutation=order)


def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """The elements in opposite order along the given axes.

    >>> from rlx import lax
    >>> lax.rev(lax.iota("int32", 3), (0,)).tolist()
    [2, 1, 0]
    """
    x = as_array(operand)
    axes = canonical_axes("rev", dimensions, x.ndim)
    return registry["reverse"](x, axes=axes) if axes else x


def squeeze(array: Any, dimensions: Sequence[int]) -> Array:
    """The array without the given axes, which have size 1.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.squeeze(jnp.ones((1, 3, 1)), (0,)).shape
    (3, 1)
    """
    x = as_array(array)
    return shape.squeeze(x, canonical_axes("squeeze", dimensions, x.ndim))


def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """The array with axes of size 1 at the given positions of the result.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.expand_dims(jnp.ones((2, 3)), (0, 3)).shape
    (1, 2, 3, 1)
    """
    x, axes = as_array(array), tuple(dimensions)
    return shape.expand_dims(x, canonical_axes("expand_dims", axes, x.ndim + len(axes)))


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Axes start_dimension to stop_dimension (exclusive) merged into one.

    >>> from rlx import lax
    >>> lax.collapse(lax.full((2, 3, 4), 0.0), 1).shape
    (2, 12)
    """
    x = as_array(operand)
    stop = x.ndim if stop_dimension is None else stop_dimension
    low, high = (canonical_axis("collapse", i, x.ndim) if i < 0 else operator.index(i) for i in (start_dimension, stop))
    if not low <= high <= x.ndim:
        raise ShapeError(
            f"lax.collapse got axes {start_dimension} to {stop_dimension} of an array of {x.ndim}.",
            f"start_dimension must be at most stop_dimension, which is at most {x.ndim}.",
        )
    merged = int(np.prod(x.shape[low:high], dtype=np.int64))
    return reshape(x, (*x.shape[:low], merged, *x.shape[high:]))


def tile(operand: Any, reps: Sequence[int]) -> Array:
    """The array repeated reps[i] times along axis i.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.tile(jnp.array([1, 2]), (2,)).tolist()
    [1, 2, 1, 2]
    """
    x, counts = as_array(operand), tuple(reps)
    if len(counts) != x.ndim:
        raise ShapeError(
            f"lax.tile got reps={counts} for an array of {x.ndim} dimensions.",
            "Give one count for each axis; rlx.numpy.tile pads the counts.",
        )
    spread = tuple(itertools.chain(*zip(counts, x.shape, strict=True)))
    repeated = broadcast_in_dim(x, spread, range(1, 2 * x.ndim, 2))
    return reshape(repeated, tuple(n * d for n, d in zip(counts, x.shape, strict=True)))


# ------------------------------------------------------------- cutting
def slice(
    operand: Any,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """operand[start:limit:stride] along every axis, with constants that are in bounds.

    >>> from rlx import lax
    >>> lax.slice(lax.iota("int32", 6), (1,), (6,), (2,)).tolist()
    [1, 3, 5]
    """
    x = as_array(operand)
    starts, limits = canonical_shape(start_indices), canonical_shape(limit_indices)
    steps = (1,) * x.ndim if strides is None else canonical_shape(strides)
    cut = registry["slice"]
    cut.type(x.type, starts=starts, limits=limits, strides=steps)  # NumPy would clip positions out of bounds
    return cut(x, starts=starts, limits=limits, strides=steps)


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """operand[start:limit:stride] along one axis; negative positions count from its end.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.slice_in_dim(jnp.arange(6), 1, None, stride=2).tolist()
    [1, 3, 5]
    """
    x = as_array(operand)
    axis = canonical_axis("slice_in_dim", axis, x.ndim)
    size = x.shape[axis]
    start = 0 if start_index is None else int(start_index)
    limit = size if limit_index is None else int(limit_index)
    start, limit = start + size * (start < 0), limit + size * (limit < 0)
    if not (0 <= start <= limit <= size and stride > 0):
        raise ShapeError(
            f"lax.slice_in_dim got {start_index}:{limit_index}:{stride} for axis {axis} of size {size}.",
            "Needed: 0 <= start <= limit <= size and stride > 0.",
        )
    return shape.slice_along(x, start, limit, axis, int(stride))


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """operand[index] along one axis, for a constant index.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.index_in_dim(jnp.array([[1, 2], [3, 4]]), -1, axis=0, keepdims=False).tolist()
    [3, 4]
    """
    x = as_array(operand)
    axis = canonical_axis("index_in_dim", axis, x.ndim)
    size, at = x.shape[axis], int(index)
    at += size * (at < 0)
    if not 0 <= at < size:
        raise IndexBoundsError(
            f"lax.index_in_dim got index {index} for axis {axis} of size {size}.",
            "The index must be in bounds.",
        )
    row = shape.slice_along(x, at, at + 1, axis)
    return row if keepdims else shape.squeeze(row, (axis,))


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """The array cut along one axis into pieces of the given sizes.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> [part.tolist() for part in lax.split(jnp.arange(5), (2, 3))]
    [[0, 1], [2, 3, 4]]
    """
    x = as_array(operand)
    return list(shape.split(x, new_shape("split", sizes), canonical_axis("split", axis, x.ndim)))


def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    """The array's slices along one axis, each without it.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> [row.tolist() for row in lax.unstack(jnp.array([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    value = as_array(x)
    number = canonical_axis("unstack", axis, value.ndim)
    return tuple(index_in_dim(value, i, number, keepdims=False) for i in range(value.shape[number]))


# ------------------------------------------------------------- joining and padding
def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """The arrays one after another along an axis.

    >>> from rlx import lax
    >>> lax.concatenate([lax.iota("int32", 2), lax.iota("int32", 1)], 0).tolist()
    [0, 1, 0]
    """
    arrays = of_one_dtype("concatenate", *map(as_array, operands))
    if not arrays:
        raise ShapeError("lax.concatenate got no arrays.", "Pass at least one.")
    axis = canonical_axis("concatenate", dimension, arrays[0].ndim)
    return arrays[0] if len(arrays) == 1 else registry["concatenate"](*arrays, axis=axis)


def stack(operands: Sequence[Any], axis: int = 0) -> Array:
    """The arrays along a new axis.

    >>> from rlx import lax
    >>> import rlx.numpy as jnp
    >>> lax.stack([jnp.zeros(3), jnp.ones(3)], axis=1).shape
    (3, 2)
    """
    arrays = [as_array(x) for x in operands]
    return concatenate([expand_dims(x, (axis,)) for x in arrays], axis)


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """The array with a value around it and between its elements.

    padding_config has (low, high, interior) for each axis; negative low and high remove elements.

    >>> from rlx import lax
    >>> lax.pad(lax.iota("int32", 3), 9, [(1, 0, 1)]).tolist()
    [9, 0, 9, 1, 9, 2]
    """
    x = as_array(operand)
    value = as_array(yielding(padding_value))
    if value.dtype != x.dtype and not value.weak_type:
        raise DtypeError(
            f"lax.pad got {x.type!r} and a padding value of dtype {value.dtype.name}.",
            "Convert the padding value with .astype(...) first.",
        )
    if value.shape != () or len(padding_config) != x.ndim:
        raise ShapeError(
            f"lax.pad got {x.type!r}, a padding value of shape {value.shape} and padding_config={padding_config!r}.",
            "The value must be a scalar, with a triple (low, high, interior) for each axis.",
        )
    config = tuple((int(low), int(high), int(inner)) for low, high, inner in padding_config)
    for size, (low, high, inner) in zip(x.shape, config, strict=True):
        if inner < 0 or low + size + max(size - 1, 0) * inner + high < 0:
            raise ShapeError(
                f"lax.pad got {(low, high, inner)} for an axis of size {size}.",
                "Negative low and high may remove at most the whole axis, and interior must be 0 or more.",
            )
    return registry["pad"](x, scalar_of(padding_value, x.dtype), config=config)
