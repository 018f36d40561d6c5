"""Grids and index arithmetic: meshgrid, indices, ix_, mgrid, r_, unravel_index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.config import config
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import dtype_kind, is_integer
from rlx.numpy.creation import array, count_along
from rlx.numpy.index_dtypes import holding
from rlx.numpy.joining import concatenate, stack
from rlx.numpy.lookups import nonzero
from rlx.numpy.manipulation import atleast_1d, reshape, transpose
from rlx.numpy.promotion import (
    broadcast_array,
    canonical_shape,
    canonical_size,
    convert_to,
    known_numpy,
    operand,
    scalar_array,
    to_dtype,
)
from rlx.numpy.ranges import arange, linspace
from rlx.numpy.rounding import remainder
from rlx.ops import arithmetic, comparison
from rlx.ops.arithmetic import select
from rlx.trace.builder import is_traced
from rlx.trace.flat import as_array

__all__ = [
    "c_",
    "index_exp",
    "indices",
    "ix_",
    "mask_indices",
    "meshgrid",
    "mgrid",
    "ogrid",
    "r_",
    "ravel_multi_index",
    "s_",
    "unravel_index",
]

index_exp, s_ = np.index_exp, np.s_


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Array]:
    """Coordinate arrays of a grid from coordinates along its axes.

    Args: xi: 1-d arrays; sparse: leave axes of size 1; indexing: "xy" (first two axes swapped) or "ij".
    Returns: a list of arrays. Raises: ShapeError for arrays of more axes; ValueError for other indexing.

    >>> import rlx.numpy as jnp
    >>> [v.tolist() for v in jnp.meshgrid(jnp.array([1, 2]), jnp.array([3]))]
    [[[1, 2]], [[3, 3]]]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid has no indexing {indexing!r}: use 'xy' or 'ij'.")
    vectors = [as_array(operand(x, "meshgrid")) for x in xi]
    if any(v.ndim > 1 for v in vectors):
        raise ShapeError("meshgrid takes 1-d arrays.", "Use ravel() first.")
    vectors = [atleast_1d(v) for v in vectors]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(vectors)
    for place, v in zip(order, vectors, strict=True):
        shape[place] = v.shape[0]
    grids = []
    for place, v in zip(order, vectors, strict=True):
        v = reshape(v, tuple(n if i == place else 1 for i, n in enumerate(shape)))
        grids.append(v if sparse else broadcast_array(v, tuple(shape)))
    return grids


def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """Arrays of the indices of a grid.

    Args: dimensions: its shape; dtype: of the indices; sparse: leave axes of size 1.
    Returns: an array with one grid for each axis, or a tuple of grids if sparse.

    >>> import rlx.numpy as jnp
    >>> jnp.indices((2, 2)).shape
    (2, 2, 2)
    """
    shape = canonical_shape(dimensions, "indices")
    wanted = config.default_int if dtype is None else to_dtype(dtype)
    if sparse:
        single = [tuple(n if i == axis else 1 for i, n in enumerate(shape)) for axis in range(len(shape))]
        return tuple(count_along(own, axis, wanted) for axis, own in enumerate(single))
    grids = [count_along(shape, axis, wanted) for axis in range(len(shape))]
    return stack(grids) if grids else array([], wanted)


def ix_(*args: Any) -> tuple[Array, ...]:
    """Index arrays that pick the product of several selections.

    Args: args: 1-d integer or bool arrays. Returns: a tuple of arrays that broadcast to a grid.
    Raises: ShapeError unless all are 1-d.

    >>> import rlx.numpy as jnp
    >>> [v.shape for v in jnp.ix_(jnp.array([0, 1]), jnp.array([2, 3, 4]))]
    [(2, 1), (1, 3)]
    """
    result = []
    for place, arg in enumerate(args):
        x = as_array(np.asarray(arg) if isinstance(arg, (list, tuple)) else arg)
        if x.ndim != 1:
            raise ShapeError(f"ix_ got an array of shape {x.shape}.", "Pass 1-d arrays.")
        if x.dtype.kind == "b":
            (x,) = nonzero(x)
        if x.size == 0:
            x = convert_to(x, config.default_int)
        result.append(reshape(x, tuple(x.size if i == place else 1 for i in range(len(args)))))
    return tuple(result)


def mask_indices(n: int, mask_func: Any, k: int = 0, *, size: int | None = None) -> tuple[Array, ...]:
    """The positions that a mask function such as triu keeps in an n by n matrix.

    Args: n; mask_func: called with (matrix of ones, k); k; size: see `nonzero`.
    Returns: two index arrays.

    >>> import rlx.numpy as jnp
    >>> [v.tolist() for v in jnp.mask_indices(2, jnp.triu)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return nonzero(mask_func(array(np.ones((canonical_size(n, "mask_indices"),) * 2, np.float32)), k), size=size)


# ------------------------------------------------------------------ index arithmetic
def unravel_index(indices: Any, shape: Any) -> tuple[Array, ...]:
    """Flat indices as one index for each axis; indices out of bounds are clipped.

    Args: indices: integers; shape: of the array. Returns: a tuple of integer arrays.
    Raises: DtypeError for other indices.

    >>> import rlx.numpy as jnp
    >>> [v.item() for v in jnp.unravel_index(5, (2, 3))]
    [1, 2]
    """
    index = as_array(np.asarray(indices) if isinstance(indices, (list, tuple)) else indices)
    if not is_integer(index.dtype):
        raise DtypeError(f"unravel_index got dtype {index.dtype.name}.", "Pass integers.")
    if isinstance(shape, (list, tuple)) and any(is_traced(n) and n.known() is None for n in shape):
        return _unraveled(index, shape)
    sizes = canonical_shape(shape, "unravel_index")
    total = math.prod(sizes)
    index = holding(index, total)
    zero = scalar_array(0, index.dtype, True)
    if dtype_kind(index.dtype) == "i":
        wrapped = arithmetic.add(index, scalar_array(total, index.dtype, True))
        index = select(comparison.less(index, zero), wrapped, index)
    last = scalar_array(max(total - 1, 0), index.dtype, True)
    index = arithmetic.minimum(arithmetic.maximum(index, zero), last)
    result = []
    for axis, size in enumerate(sizes):
        stride = scalar_array(max(math.prod(sizes[axis + 1 :]), 1), index.dtype, True)
        quotient = arithmetic.divide(index, stride)
        position = arithmetic.remainder(quotient, scalar_array(max(size, 1), index.dtype, True))
        result.append(position)
    return tuple(result)


def _unraveled(index: Any, sizes: Sequence[Any]) -> tuple[Array, ...]:
    """unravel_index for traced sizes."""
    sizes = [convert_to(operand(n), index.dtype) for n in sizes]
    one, zero = [scalar_array(v, index.dtype, True) for v in (1, 0)]
    total: Any = one
    for size in sizes:
        total = arithmetic.multiply(total, size)
    if dtype_kind(index.dtype) == "i":
        index = select(comparison.less(index, zero), arithmetic.add(index, total), index)
    index = arithmetic.clamp(zero, index, arithmetic.subtract(total, one))
    result = []
    for size in reversed(sizes):
        size = arithmetic.maximum(size, one)
        result.append(arithmetic.remainder(index, size))
        index = arithmetic.divide(index, size)
    return tuple(reversed(result))


def ravel_multi_index(
    multi_index: Any, dims: Any, mode: str = "raise", order: str = "C", *, dtype: Any = None
) -> Array:
    """One index for each axis as flat indices.

    Args: multi_index: sequence of integer arrays; dims: the shape; mode: "raise" (needs known
    indices), "wrap", "clip" or "ignore" (all are in bounds); order: "C" or "F"; dtype: of the result.
    Returns: an integer array.
    Raises: ValueError for an index out of bounds with mode "raise".

    >>> import rlx.numpy as jnp
    >>> jnp.ravel_multi_index((jnp.array([1]), jnp.array([2])), (2, 3))
    Array([5], dtype=int32)
    """
    sizes = canonical_shape(dims, "ravel_multi_index")
    parts = [as_array(np.asarray(i) if isinstance(i, (list, tuple)) else i) for i in multi_index]
    if len(parts) != len(sizes) or any(not is_integer(p.dtype) for p in parts):
        raise ShapeError(
            f"ravel_multi_index got {len(parts)} index arrays for {len(sizes)} axes.",
            "Pass one integer array for each axis.",
        )
    for place, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if mode == "raise":
            values = known_numpy(part, "ravel_multi_index with mode='raise'", 'Pass mode="clip" or "wrap".')
            if values.size and (values.min() < 0 or values.max() >= size):
                raise ValueError(f"invalid entry in coordinates array: axis {place} has size {size}")
        elif mode == "clip":
            low, high = [scalar_array(v, part.dtype, True) for v in (0, size - 1)]
            parts[place] = arithmetic.minimum(arithmetic.maximum(part, low), high)
        elif mode == "wrap":
            parts[place] = remainder(part, size)
        elif mode != "ignore":
            raise ValueError(f"ravel_multi_index has no mode {mode!r}.")
    places = range(len(sizes)) if order == "C" else range(len(sizes))[::-1]
    total: Any = None
    for place in places:
        total = parts[place] if total is None else total * sizes[place] + parts[place]
    total = array(0) if total is None else total
    return total if dtype is None else convert_to(total, to_dtype(dtype))


# ------------------------------------------------------------------ index tricks
def _from_slice(piece: slice) -> Array:
    start = 0 if piece.start is None else piece.start
    step = 1 if piece.step is None else piece.step
    if isinstance(step, complex):  # NumPy's notation for a number of samples
        return linspace(start, piece.stop, int(abs(step)))
    return arange(start, piece.stop, step)


class _Grid:
    """`mgrid[0:2, 0:3]`: grids from slices; sparse ones for `ogrid`."""

    def __init__(self, name: str, sparse: bool) -> None:
        self.name = name
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _from_slice(key)
        if not key:
            return [] if self.sparse else array([], config.default_int)
        grids = meshgrid(*map(_from_slice, key), indexing="ij", sparse=self.sparse)
        return grids if self.sparse else stack(grids)

    def __repr__(self) -> str:
        return f"rlx.numpy.{self.name}"


class _Joiner:
    """`r_[1:3, 7]`: values and slices joined along an axis."""

    def __init__(self, name: str, axis: int, least_ndim: int, shift: int) -> None:
        self.name, self.axis, self.least_ndim, self.shift = name, axis, least_ndim, shift

    def __getitem__(self, key: Any) -> Array:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, least, shift = self.axis, self.least_ndim, self.shift
        directive = items.pop(0) if items and isinstance(items[0], str) else ""
        if directive and directive not in ("r", "c"):
            numbers = self._numbers(directive)
            axis, least, shift = (numbers + [least, shift][len(numbers) - 1 :])[:3]
        joined = concatenate([self._part(item, least, shift) for item in items], axis)
        if directive in ("r", "c") and joined.ndim == 1:
            joined = reshape(joined, (1, -1) if directive == "r" else (-1, 1))
        return joined

    def _numbers(self, directive: str) -> list[int]:
        try:
            numbers = [int(v) for v in directive.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2, 3):
            raise ValueError(f"{self.name} got the directive {directive!r}: use 'r', 'c' or one to three integers.")
        return numbers

    @staticmethod
    def _part(item: Any, least: int, shift: int) -> Array:
        x = _from_slice(item) if isinstance(item, slice) else as_array(array(item))
        own = x.ndim
        if own < least:
            new = least - own
            before = shift + new + 1 if shift < 0 else shift
            order = (*range(before), *range(new, least), *range(before, new))
            x = transpose(reshape(x, (1,) * new + x.shape), order)
        return atleast_1d(x)

    def __repr__(self) -> str:
        return f"rlx.numpy.{self.name}"


mgrid, ogrid = _Grid("mgrid", False), _Grid("ogrid", True)
r_, c_ = _Joiner("r_", 0, 1, -1), _Joiner("c_", -1, 2, 0)
