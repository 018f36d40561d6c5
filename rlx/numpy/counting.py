"""Counting: bincount, histograms, and bits of bytes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlx.array import Array, is_array_or_numpy
from rlx.config import config
from rlx.errors import DtypeError, ShapeError, UnsupportedError
from rlx.ir.types import dtype_kind, is_integer
from rlx.numpy.cumulative import diff
from rlx.numpy.elementwise import divide
from rlx.numpy.joining import stack
from rlx.numpy.manipulation import moveaxis, ravel, reshape
from rlx.numpy.placement import check_placement
from rlx.numpy.promotion import (
    canonical_axis,
    canonical_size,
    convert_to,
    fill,
    float_of,
    inexact,
    known_numpy,
    operand,
    promote_inexact,
    scalar_array,
)
from rlx.numpy.ranges import linspace
from rlx.numpy.reductions import max as max_
from rlx.numpy.reductions import min as min_
from rlx.numpy.reductions import sum as sum_
from rlx.numpy.searching import searchsorted
from rlx.ops import arithmetic, comparison
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.trace.flat import as_array

__all__ = ["bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "packbits", "unpackbits"]


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, out_sharding: Any = None
) -> Array:
    """The number of occurrences of each nonnegative integer.

    Args: x: 1-d integers (negative ones count as 0); weights: to add instead of 1; minlength: minimum
    size of the result; length: its size, needed if x is traced (larger numbers are dropped).
    Returns: a 1-d array. Raises: ConcretizationTypeError if x is traced and length is None.

    >>> import rlx.numpy as jnp
    >>> jnp.bincount(jnp.array([0, 2, 2]))
    Array([1, 0, 2], dtype=int32)
    """
    check_placement(None, out_sharding)
    values = as_array(np.asarray(x) if isinstance(x, (list, tuple)) else operand(x))
    if values.dtype.kind == "b":
        values = convert_to(values, config.default_int)
    if values.ndim != 1 or not is_integer(values.dtype):
        raise DtypeError(f"bincount got {values.type!r}.", "Pass a 1-d integer array: use ravel() and astype(int).")
    minimum = operator.index(minlength)
    if length is None:
        known = known_numpy(values, "bincount", "Pass length=, the size of the result.")
        size = max(minimum, max(int(known.max()), 0) + 1 if known.size else 0, 0)
    else:
        size = canonical_size(length, "bincount")
    if weights is None:
        added: Any = scalar_array(1, config.default_int, False)
    else:
        added = as_array(operand(weights))
        if added.shape != values.shape:
            raise ShapeError(f"bincount got weights of shape {added.shape}.", "Pass one weight for each number.")
    if dtype_kind(values.dtype) == "i":
        values = arithmetic.maximum(values, scalar_array(0, values.dtype, True))
    return fill((size,), 0, added.dtype).at[values].add(added)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """Edges of the bins of a histogram.

    Args: a: array; bins: their number, or the edges; range: (low, high) (None: of the values).
    Returns: a 1-d array.

    >>> import rlx.numpy as jnp
    >>> jnp.histogram_bin_edges(jnp.array([0.0, 4.0]), 2)
    Array([0., 2., 4.], dtype=float32)
    """
    if isinstance(bins, str):
        raise UnsupportedError(
            f"histogram got bins={bins!r}.",
            "Pass a number, or the edges: np.histogram_bin_edges(x, bins) computes them.",
        )
    edges = as_array(np.asarray(bins) if isinstance(bins, (list, tuple)) else operand(bins))
    x = inexact(a, "histogram")
    if edges.ndim == 1:
        return convert_to(edges, promote_inexact("histogram", x, edges)[0].dtype)
    count = operator.index(bins)
    if range is None:
        low = min_(x) if x.size else convert_to(0.0, x.dtype)
        high = max_(x) if x.size else convert_to(1.0, x.dtype)
    else:
        low, high = [
            convert_to(operand(v), x.dtype) for v in (range if isinstance(range, (list, tuple)) else list(range))
        ]
    empty = comparison.equal(high, low)
    half = scalar_array(0.5, x.dtype, True)
    low = select(empty, arithmetic.subtract(low, half), low)
    high = select(empty, arithmetic.add(high, half), high)
    return linspace(low, high, count + 1, dtype=x.dtype)


def _bins(x: Any, edges: Any) -> Any:
    """The number of each value's bin; outside: the number of bins. The last bin has its right edge."""
    count = edges.shape[0] - 1
    number = arithmetic.subtract(searchsorted(edges, x, "right"), scalar_array(1, np.dtype("i4"), True))
    end = shapes.reshape(shapes.slice_along(edges, count, count + 1, 0), shape=())
    on_end = comparison.equal(x, end)
    number = select(on_end, scalar_array(count - 1, number.dtype, True), number)
    outside = comparison.less(number, scalar_array(0, number.dtype, True))
    outside = comparison.bitwise_or(outside, comparison.not_equal(x, x))
    return select(outside, scalar_array(count, number.dtype, True), number)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, Array]:
    """The number of values in each bin.

    Args: a: array; bins: their number, or the edges; range: (low, high); weights: to add in place of
    1; density: divide by the total and the widths. Returns: (counts, edges).

    >>> import rlx.numpy as jnp
    >>> jnp.histogram(jnp.array([0.0, 1.0, 4.0]), 2)[0]
    Array([2., 1.], dtype=float32)
    """
    x = ravel(inexact(as_array(np.asarray(a) if isinstance(a, (list, tuple)) else a), "histogram"))
    edges = histogram_bin_edges(x, bins, range)
    x, edges = promote_inexact("histogram", x, edges)
    if weights is None:
        added: Any = fill(x.shape, 1, float_of(x.dtype))
    else:
        added = ravel(operand(weights))
        if added.shape != x.shape:
            raise ShapeError("histogram got weights of another size than a.", "Give one for each value.")
    counts = fill((edges.shape[0] - 1,), 0, added.dtype).at[_bins(x, edges)].add(added)
    if density:
        counts = divide(divide(counts, diff(edges)), sum_(counts))
    return counts, edges


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, list[Array]]:
    """A histogram in several dimensions.

    Args: sample: (points, dimensions); bins: number, or number or edges for each dimension; range:
    (low, high) for each; weights; density. Returns: (counts, list of edges).

    >>> import rlx.numpy as jnp
    >>> jnp.histogramdd(jnp.array([[0.0, 0.0], [1.0, 1.0]]), 2)[0]
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    points = inexact(sample, "histogramdd")
    if points.ndim != 2:
        raise ShapeError(f"histogramdd got an array of shape {points.shape}.", "Pass (points, dimensions).")
    count = points.shape[1]
    each = list(bins) if isinstance(bins, (list, tuple)) else [bins] * count
    limits = [None] * count if range is None else list(range)
    if len(each) != count or len(limits) != count:
        raise ShapeError(f"histogramdd got {len(each)} bins for {count} dimensions.", "Give one each.")
    columns = [shapes.squeeze(c, (1,)) for c in shapes.split(points, (1,) * count, 1)]
    edges = [histogram_bin_edges(x, b, r) for x, b, r in zip(columns, each, limits, strict=True)]
    numbers = tuple(_bins(x, edge) for x, edge in zip(columns, edges, strict=True))
    added: Any = scalar_array(1, config.default_int, False) if weights is None else as_array(operand(weights))
    counts = fill(tuple(e.shape[0] - 1 for e in edges), 0, added.dtype).at[numbers].add(added)
    if density:
        counts = divide(counts, sum_(counts))
        for axis, edge in enumerate(edges):
            shape = tuple(edge.shape[0] - 1 if i == axis else 1 for i in np.arange(count))
            counts = divide(counts, reshape(diff(edge), shape))
    return counts, edges


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, Array, Array]:
    """A histogram in two dimensions.

    Args: x, y: 1-d arrays; bins, range, weights, density: as `histogramdd`; one list of edges serves
    both. Returns: (counts, edges of x, edges of y).

    >>> import rlx.numpy as jnp
    >>> jnp.histogram2d(jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0]), 2)[0].tolist()
    [[1, 0], [0, 1]]
    """
    if is_array_or_numpy(bins) or (isinstance(bins, (list, tuple)) and len(bins) != 2):
        bins = [bins, bins] if np.ndim(bins) == 1 and len(bins) != 1 else bins
    counts, edges = histogramdd(stack(promote_inexact("histogram2d", x, y), 1), bins, range, weights, density)
    return counts, edges[0], edges[1]


# ------------------------------------------------------------------ bits
def _weights(bitorder: str) -> np.ndarray:
    if bitorder not in ("big", "little"):
        raise ValueError(f"There is no bitorder {bitorder!r}: use 'big' or 'little'.")
    bits = np.arange(8, dtype=np.uint8)
    return bits if bitorder == "little" else bits[::-1].copy()


def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Array:
    """Truth values as bits of bytes, eight in each.

    Args: a: integer or bool array; axis: int (None: all elements in a row); bitorder: "big" or "little".
    Returns: a uint8 array. Raises: DtypeError for floats.

    >>> import rlx.numpy as jnp
    >>> jnp.packbits(jnp.array([1, 0, 0, 0, 0, 0, 0, 1]))
    Array([129], dtype=uint8)
    """
    x = as_array(operand(a, "packbits"))
    if dtype_kind(x.dtype) not in "biu":
        raise DtypeError(f"packbits got dtype {x.dtype.name}.", "Pass integers or bools.")
    if axis is None:
        x, axis = ravel(x), 0
    number = canonical_axis(axis, x.ndim, "packbits")
    bits = moveaxis(convert_to(comparison.not_equal(x, scalar_array(0, x.dtype, True)), np.dtype("u1")), number, -1)
    missing = -bits.shape[-1] % 8
    bits = shapes.pad_zeros(bits, (*((0, 0, 0),) * (bits.ndim - 1), (0, missing, 0)))
    bits = reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    packed = sum_(comparison.shift_left(bits, as_array(_weights(bitorder))), axis=-1, dtype=np.dtype("u1"))
    return moveaxis(packed, -1, number)


def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """Bits of bytes as zeros and ones.

    Args: a: uint8 array; axis: int (None: all elements in a row); count: number to keep (negative:
    number to drop at the end); bitorder. Returns: a uint8 array. Raises: DtypeError.

    >>> import rlx.numpy as jnp
    >>> jnp.unpackbits(jnp.array([129], jnp.uint8))
    Array([1, 0, 0, 0, 0, 0, 0, 1], dtype=uint8)
    """
    x = as_array(operand(a, "unpackbits"))
    if x.dtype != np.dtype("u1"):
        raise DtypeError(f"unpackbits got dtype {x.dtype.name}.", "Pass uint8.")
    if axis is None:
        x, axis = ravel(x), 0
    number = canonical_axis(axis, x.ndim, "unpackbits")
    x = moveaxis(x, number, -1)
    bits = comparison.shift_right_logical(reshape(x, (*x.shape, 1)), as_array(_weights(bitorder)))
    bits = comparison.bitwise_and(bits, scalar_array(1, np.dtype("u1"), True))
    bits = reshape(bits, (*x.shape[:-1], x.shape[-1] * 8))
    total = bits.shape[-1]
    if count is not None:
        wanted = total + count if count < 0 else count
        bits = shapes.slice_along(bits, 0, min(wanted, total), bits.ndim - 1)
        if wanted > total:
            bits = shapes.pad_zeros(bits, (*((0, 0, 0),) * (bits.ndim - 1), (0, wanted - total, 0)))
    return moveaxis(bits, -1, number)
