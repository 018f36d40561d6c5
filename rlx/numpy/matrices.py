"""Construction of matrices: eye, tri, diag and related functions."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rlx.array import Array, is_array, wrap
from rlx.config import config
from rlx.errors import ShapeError, immutable
from rlx.numpy.creation import count_along
from rlx.numpy.dtypes import shape
from rlx.numpy.index_dtypes import index_dtype
from rlx.numpy.manipulation import moveaxis, ravel, reshape
from rlx.numpy.placement import check_placement, placed, refuse_out
from rlx.numpy.promotion import (
    beside_arrays,
    canonical_axes,
    canonical_size,
    convert_to,
    fill,
    not_made,
    operand,
    scalar_array,
    to_dtype,
)
from rlx.numpy.reductions import sum as sum_
from rlx.ops import arithmetic, comparison
from rlx.ops import shape as shapes
from rlx.ops.arithmetic import select
from rlx.trace.builder import state
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = [
    "diag",
    "diag_indices",
    "diag_indices_from",
    "diagflat",
    "diagonal",
    "eye",
    "fill_diagonal",
    "identity",
    "trace",
    "tri",
    "tril",
    "tril_indices",
    "tril_indices_from",
    "triu",
    "triu_indices",
    "triu_indices_from",
    "vander",
]


def _offset_mask(rows: int, columns: int, compare: Any, k: Any) -> Any:
    """compare(row + k, column) for every position of a matrix."""
    # positions outside of the matrix may not fit the index dtype
    lowest, highest, index = -rows - 1, columns + 1, index_dtype(rows + columns + 1)
    if not is_array(k):
        k = max(lowest, min(operator.index(k), highest))
    elif not np.can_cast(k.dtype, index):
        lowest = 0 if k.dtype.kind == "u" else lowest
        k = arithmetic.clamp(scalar_array(lowest, k.dtype, True), k, scalar_array(highest, k.dtype, True))
    row = count_along((rows, columns), 0, index)
    column = count_along((rows, columns), 1, index)
    return compare(arithmetic.add(row, convert_to(operand(k), index)), column)


def _of_rank(mask: Any, rank: int) -> Any:
    """A mask of one matrix with the axes of a batch, so that nothing is broadcast implicitly."""
    return reshape(mask, (1,) * (rank - 2) + mask.shape)


def eye(N: int, M: int | None = None, k: Any = 0, dtype: Any = None, *, device: Any = None) -> Array:
    """Ones on a diagonal, zeros elsewhere.

    Args: N, M: numbers of rows and columns (M None: N); k: which diagonal, positive above the main
    one; dtype: of the result. Returns: a matrix.

    >>> import rlx.numpy as jnp
    >>> jnp.eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    check_placement(device)
    rows = canonical_size(N, "eye")
    columns = rows if M is None else canonical_size(M, "eye")
    wanted = config.default_float if dtype is None else to_dtype(dtype)
    if state.builder is None and not is_array(k):
        try:
            made = wrap(np.eye(rows, columns, max(-rows, min(operator.index(k), columns))).astype(wanted))
        except (MemoryError, ValueError):  # ValueError: more bytes of float64 than addresses
            raise not_made(MemoryError(), (rows, columns), wanted) from None
    else:
        made = convert_to(_offset_mask(rows, columns, comparison.equal, k), wanted)
    return placed(made, device)


def identity(n: int, dtype: Any = None) -> Array:
    """The identity matrix.

    Args: n: its size; dtype: of the result. Returns: a matrix.

    >>> import rlx.numpy as jnp
    >>> jnp.identity(1)
    Array([[1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Array:
    """Ones on and below a diagonal, zeros above.

    Args: as `eye`. Returns: a matrix.

    >>> import rlx.numpy as jnp
    >>> jnp.tri(2, dtype=int)
    Array([[1, 0],
           [1, 1]], dtype=int32)
    """
    wanted = config.default_float if dtype is None else to_dtype(dtype)
    rows = canonical_size(N, "tri")
    columns = rows if M is None else canonical_size(M, "tri")
    return convert_to(_offset_mask(rows, columns, comparison.greater_equal, k), wanted)


def _matrix(m: Any, name: str) -> Any:
    x = as_array(operand(m, name))
    if x.ndim < 2:
        raise ShapeError(f"{name} got an array of shape {x.shape}.", "It needs two axes or more.")
    return x


@replayed
def tril(m: Any, k: int = 0) -> Array:
    """Zeros above a diagonal.

    Args: m: array of two or more axes; k: the last diagonal to keep. Returns: an array.
    Raises: ShapeError for fewer axes.

    >>> import rlx.numpy as jnp
    >>> jnp.tril(jnp.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    x = _matrix(m, "tril")
    mask = _offset_mask(*x.shape[-2:], comparison.greater_equal, k)
    return select(_of_rank(mask, x.ndim), x, scalar_array(0, x.dtype, True))


@replayed
def triu(m: Any, k: int = 0) -> Array:
    """Zeros below a diagonal.

    Args: m: array of two or more axes; k: the first diagonal to keep. Returns: an array.
    Raises: ShapeError for fewer axes.

    >>> import rlx.numpy as jnp
    >>> jnp.triu(jnp.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    x = _matrix(m, "triu")
    mask = _offset_mask(*x.shape[-2:], comparison.less_equal, k)
    return select(_of_rank(mask, x.ndim), x, scalar_array(0, x.dtype, True))


# ------------------------------------------------------------------ diagonals
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonals of the matrices in two axes, as the last axis.

    Args: a: array of two or more axes; offset: which diagonal; axis1, axis2. Returns: an array.
    Raises: ShapeError for fewer axes.

    >>> import rlx.numpy as jnp
    >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    x = _matrix(a, "diagonal")
    x = moveaxis(x, canonical_axes((axis1, axis2), x.ndim, "diagonal"), (-2, -1))
    rows, columns = x.shape[-2:]
    start = offset if offset >= 0 else -offset * columns
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    # the distance between diagonal elements is a row and a column: a strided slice of the flat matrix
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    if count == 0:
        return shapes.slice_along(flat, 0, 0, x.ndim - 2)
    stop = start + (count - 1) * (columns + 1) + 1
    return shapes.slice_along(flat, start, stop, x.ndim - 2, columns + 1)


def diag(v: Any, k: int = 0) -> Array:
    """A matrix with a given diagonal, or the diagonal of a matrix.

    Args: v: 1-d or 2-d array; k: which diagonal. Returns: a 2-d or 1-d array.
    Raises: ShapeError for other ranks.

    >>> import rlx.numpy as jnp
    >>> jnp.diag(jnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    x = as_array(operand(v, "diag"))
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag got an array of shape {x.shape}.", "Pass a 1-d or 2-d array.")
    n = x.shape[0] + abs(k)
    before = (0, max(k, 0)) if k >= 0 else (-k, 0)
    padded = shapes.pad_zeros(x, ((before[1], n - x.shape[0] - before[1], 0),))
    mask = _offset_mask(n, n, comparison.equal, k)
    return select(mask, reshape(padded, (1, n)), scalar_array(0, x.dtype, True))


@replayed
def diagflat(v: Any, k: int = 0) -> Array:
    """A matrix with all elements of an array on a diagonal.

    Args: v: array; k: which diagonal. Returns: a matrix.

    >>> import rlx.numpy as jnp
    >>> jnp.diagflat(jnp.array([[1], [2]])).shape
    (2, 2)
    """
    return diag(ravel(v), k)


@replayed
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Array:
    """The sum of a diagonal.

    Args: as `diagonal`; dtype: of the sum. Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.trace(jnp.array([[1, 2], [3, 4]])).item()
    5
    """
    refuse_out("trace", out)
    return sum_(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Array:
    """An array with its main diagonal replaced.

    Args: a: array of two or more axes; val: number or 1-d array; wrap: go on in tall matrices;
    inplace: must be False, arrays are immutable. Returns: an array.
    Raises: ImmutableArrayError for inplace=True; ShapeError for fewer axes.

    >>> import rlx.numpy as jnp
    >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 1.0, inplace=False)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if inplace:
        raise immutable("fill_diagonal")
    x = _matrix(a, "fill_diagonal")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ShapeError(f"fill_diagonal got shape {x.shape}.", "All axes must have one size.")
    step = x.shape[1] + 1 if x.ndim == 2 else int(np.sum([x.shape[0] ** i for i in range(x.ndim)]))
    end = x.size if x.ndim > 2 or wrap else min(x.size, x.shape[1] ** 2)
    flat = ravel(x)
    values = ravel(operand(beside_arrays(x, val)[1], "fill_diagonal"))
    count = len(range(0, end, step))
    if values.size != 1:
        values = reshape(values, (values.size,))[np.arange(count) % max(values.size, 1)]
    return reshape(flat.at[:end:step].set(values), x.shape)


# ------------------------------------------------------------------ positions
def _positions(pair: Any) -> tuple[Array, Array]:
    rows, columns = (placed(wrap(part.astype(config.default_int))) for part in pair)
    return rows, columns


def _corner(name: str, n: int, k: int, m: int | None) -> tuple[int, int, int]:
    rows = canonical_size(n, name)
    return rows, operator.index(k), rows if m is None else canonical_size(m, name)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Row and column numbers on and below a diagonal.

    Args: n, m: numbers of rows and columns; k: the last diagonal. Returns: two index arrays.

    >>> import rlx.numpy as jnp
    >>> [v.tolist() for v in jnp.tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _positions(np.tril_indices(*_corner("tril_indices", n, k, m)))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Row and column numbers on and above a diagonal.

    Args: n, m: numbers of rows and columns; k: the first diagonal. Returns: two index arrays.

    >>> import rlx.numpy as jnp
    >>> [v.tolist() for v in jnp.triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return _positions(np.triu_indices(*_corner("triu_indices", n, k, m)))


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, Array]:
    """`tril_indices` for the shape of a matrix.

    Args: arr: 2-d array; k. Returns: two index arrays.

    >>> import rlx.numpy as jnp
    >>> len(jnp.tril_indices_from(jnp.ones((2, 2))))
    2
    """
    rows, columns = shape(arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, Array]:
    """`triu_indices` for the shape of a matrix.

    Args: arr: 2-d array; k. Returns: two index arrays.

    >>> import rlx.numpy as jnp
    >>> len(jnp.triu_indices_from(jnp.ones((2, 2))))
    2
    """
    rows, columns = shape(arr)
    return triu_indices(rows, k, columns)


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Index arrays of the main diagonal.

    Args: n: its length; ndim: number of axes. Returns: a tuple of index arrays.

    >>> import rlx.numpy as jnp
    >>> [v.tolist() for v in jnp.diag_indices(2)]
    [[0, 1], [0, 1]]
    """
    return (count_along((canonical_size(n, "diag_indices"),), 0, config.default_int),) * ndim


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    """`diag_indices` for the shape of an array.

    Args: arr: array of equal sizes. Returns: a tuple of index arrays. Raises: ShapeError otherwise.

    >>> import rlx.numpy as jnp
    >>> len(jnp.diag_indices_from(jnp.ones((2, 2, 2))))
    3
    """
    x = _matrix(arr, "diag_indices_from")
    if len(set(x.shape)) > 1:
        raise ShapeError(f"diag_indices_from got shape {x.shape}.", "All axes must have one size.")
    return diag_indices(x.shape[0], x.ndim)


@replayed
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """Powers of the elements as columns.

    Args: x: 1-d array; N: number of columns (None: its size); increasing: the order of the powers.
    Returns: a matrix. Raises: ShapeError unless x is 1-d.

    >>> import rlx.numpy as jnp
    >>> jnp.vander(jnp.array([1, 2]), 3)
    Array([[1, 1, 1],
           [4, 2, 1]], dtype=int32)
    """
    array = as_array(operand(x, "vander"))
    if array.ndim != 1:
        raise ShapeError(f"vander got an array of shape {array.shape}.", "Pass a 1-d array.")
    columns = array.shape[0] if N is None else canonical_size(N, "vander")
    if columns == 0:
        return fill((array.shape[0], 0), 0, array.dtype)
    powers = [reshape(arithmetic.integer_power(array, exponent=i), (-1, 1)) for i in range(columns)]
    return shapes.concatenate(*(powers if increasing else powers[::-1]), axis=1)
