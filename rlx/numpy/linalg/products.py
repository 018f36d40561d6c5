"""Products and views of matrices, under the names of the array API."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.numpy import manipulation, products
from rlx.numpy import matrices as constructions
from rlx.numpy.halves import in_single
from rlx.numpy.linalg.common import square
from rlx.numpy.linalg.solves import inv
from rlx.numpy.manipulation import matrix_transpose
from rlx.numpy.products import matmul, tensordot, vecdot
from rlx.numpy.promotion import broadcast_array, canonical_axis, inexact, operand, promote
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_power",
    "matrix_transpose",
    "multi_dot",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
]


@replayed
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The vector product of vectors of three components.

    Args: x1, x2: arrays; axis: of the components. Returns: an array.
    Raises: ShapeError for another number of components.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    x, y = as_array(operand(x1, "cross")), as_array(operand(x2, "cross"))
    if any(v.shape[canonical_axis(axis, v.ndim, "cross")] != 3 for v in (x, y)):
        raise ShapeError(f"cross got shapes {x.shape} and {y.shape}.", "It needs vectors of 3 components.")
    return products.cross(x, y, axis=axis)


@replayed
def outer(x1: Any, x2: Any, /) -> Array:
    """The products of all pairs of elements of two vectors.

    Args: x1, x2: 1-d arrays. Returns: a matrix. Raises: ShapeError unless both are 1-d.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.outer(jnp.array([1, 2]), jnp.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    x, y = promote("outer", x1, x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"outer got shapes {x.shape} and {y.shape}.", "Both must be 1-d.")
    return products.outer(x, y)


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """The diagonals of the matrices in the last two axes.

    Args: x: (..., m, n); offset: which diagonal. Returns: (..., k).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.diagonal(jnp.eye(2))
    Array([1., 1.], dtype=float32)
    """
    return constructions.diagonal(x, offset, -2, -1)


@replayed
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of the matrices in the last two axes.

    Args: x: (..., m, n); offset: which diagonal; dtype: of the sum. Returns: (...).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.trace(jnp.eye(2)).item()
    2.0
    """
    return constructions.trace(x, offset, -2, -1, dtype)


@in_single
def matrix_power(a: Any, n: int) -> Array:
    """A square matrix times itself, n times in all; powers of the inverse for negative n.

    Args: a: (..., m, m); n: int. Returns: (..., m, m).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.matrix_power(jnp.array([[1, 1], [0, 1]]), 3)
    Array([[1, 3],
           [0, 1]], dtype=int32)
    """
    exponent = operator.index(n)
    x = as_array(operand(a, "matrix_power"))
    square(inexact(x) if x.dtype.kind == "b" else x, "matrix_power")
    if exponent == 0:
        return broadcast_array(constructions.eye(x.shape[-1], dtype=x.dtype), x.shape)
    base = inv(x) if exponent < 0 else x
    exponent = abs(exponent)
    result: Any = None
    while exponent:
        if exponent & 1:
            result = base if result is None else matmul(result, base, precision="highest")
        exponent >>= 1
        base = matmul(base, base, precision="highest") if exponent else base
    return result


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Array:
    """The product of several matrices, in the order of multiplication that costs least.

    Args: arrays: two or more; the first and the last may be vectors. Returns: their product.
    Raises: ShapeError if the shapes are incompatible.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.multi_dot([jnp.ones((2, 3)), jnp.ones((3, 1)), jnp.ones((1, 4))]).shape
    (2, 4)
    """
    factors = promote("multi_dot", *arrays)
    if len(factors) < 2:
        raise ShapeError(f"multi_dot got {len(factors)} arrays.", "Pass two or more.")
    row, column = factors[0].ndim == 1, factors[-1].ndim == 1
    if row:
        factors[0] = manipulation.reshape(factors[0], (1, -1))
    if column:
        factors[-1] = manipulation.reshape(factors[-1], (-1, 1))
    if any(x.ndim != 2 for x in factors):
        raise ShapeError("multi_dot got an array that is not a matrix.", "Only the first and last may be vectors.")
    if any(x.shape[1] != y.shape[0] for x, y in zip(factors, factors[1:], strict=False)):
        raise ShapeError(
            f"multi_dot got shapes {', '.join(str(x.shape) for x in factors)}.", "Neighbouring sizes must be equal."
        )
    cuts = _best_cuts([factors[0].shape[0], *[x.shape[1] for x in factors]])
    out = _chain(factors, cuts, 0, len(factors) - 1, precision)
    shape = out.shape[row : 2 - column]
    return manipulation.reshape(out, shape)


def _best_cuts(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to cut each stretch of the chain, by dynamic programming over its length."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            options = [
                (cost[first, k] + cost[k + 1, last] + sizes[first] * sizes[k + 1] * sizes[last + 1], k)
                for k in range(first, last)
            ]
            cost[first, last], cuts[first, last] = min(options)
    return cuts


def _chain(factors: Sequence[Any], cuts: dict[tuple[int, int], int], first: int, last: int, precision: Any) -> Any:
    if first == last:
        return factors[first]
    cut = cuts[first, last]
    parts = _chain(factors, cuts, first, cut, precision), _chain(factors, cuts, cut + 1, last, precision)
    return matmul(*parts, precision=precision)
