"""Norms of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.ir.types import is_complex
from rlx.numpy import reductions
from rlx.numpy.floats import absolute
from rlx.numpy.manipulation import expand_dims, ravel
from rlx.numpy.promotion import canonical_axes, inexact, scalar_array
from rlx.ops import arithmetic, comparison, transcendental

__all__ = ["matrix_norm", "norm", "vector_norm"]


def _squares(x: Any) -> Any:
    """|x|**2, real."""
    if not is_complex(x.dtype):
        return arithmetic.square(x)
    return arithmetic.add(*[arithmetic.square(p) for p in (arithmetic.real(x), arithmetic.imag(x))])


def _euclidean(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    return transcendental.sqrt(reductions.sum(_squares(x), axes, keepdims=keepdims))


def _of_vectors(x: Any, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if order is None or order == 2:
        return _euclidean(x, axes, keepdims)
    size = absolute(x)
    if order == np.inf:
        return reductions.max(size, axes, keepdims=keepdims)
    if order == -np.inf:
        return reductions.min(size, axes, keepdims=keepdims)
    if order == 0:
        nonzero = comparison.not_equal(x, scalar_array(0, x.dtype, True))
        return reductions.sum(nonzero, axes, size.dtype, keepdims=keepdims)
    if order == 1:
        return reductions.sum(size, axes, keepdims=keepdims)
    if isinstance(order, str):
        raise ValueError(f"There is no norm {order!r} of vectors.")
    power = scalar_array(order, size.dtype, True)
    total = reductions.sum(arithmetic.power(size, power), axes, keepdims=keepdims)
    return arithmetic.power(total, scalar_array(1 / order, size.dtype, True))


def _of_matrices(x: Any, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if order is None or order in ("f", "fro"):
        return _euclidean(x, axes, keepdims)
    if order in (1, -1, np.inf, -np.inf):
        row, column = axes
        summed, kept = (row, column) if abs(order) == 1 else (column, row)
        sums = reductions.sum(absolute(x), summed, keepdims=True)
        extreme = reductions.max if order > 0 else reductions.min
        result = extreme(sums, kept, keepdims=True)
        return result if keepdims else result.squeeze(axes)
    if order in (2, -2, "nuc"):
        raise UnsupportedError(
            f"The matrix norm of order {order!r} needs singular values, which rlx does not compute yet.",
            "Use the Frobenius norm (ord='fro'), 1 or inf.",
        )
    raise ValueError(f"There is no norm {order!r} of matrices.")


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of vectors or matrices.

    Args: x: array; ord: for vectors any number, inf or -inf, 0 (count of nonzeros); for matrices
    "fro", 1, -1, inf, -inf (None: the Euclidean or Frobenius norm); axis: int for vectors, two ints
    for matrices (None: all elements if ord is None, else x must be 1-d or 2-d); keepdims.
    Returns: a floating array. Raises: ShapeError for axes that do not fit; UnsupportedError for
    norms by singular values.

    >>> import rlx.numpy as jnp
    >>> float(jnp.linalg.norm(jnp.array([3.0, 4.0])))
    5.0
    """
    array = inexact(x, "norm")
    if axis is None:
        if ord is None:
            result = _euclidean(ravel(array), (0,), False)
            return expand_dims(result, tuple(range(array.ndim))) if keepdims else result
        if array.ndim not in (1, 2):
            raise ShapeError(f"norm got an array of shape {array.shape} and no axis.", "Name one or two axes.")
    axes = canonical_axes(axis, array.ndim, "norm")
    if len(axes) == 1:
        return _of_vectors(array, ord, axes, keepdims)
    if len(axes) == 2:
        return _of_matrices(array, ord, axes, keepdims)
    raise ShapeError(f"norm got {len(axes)} axes.", "Name one axis for vectors, two for matrices.")


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """The norm of vectors, by the array API standard.

    Args: x: array; axis: int or ints (None: all elements); keepdims; ord: as `norm`.
    Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.linalg.vector_norm(jnp.array([[3.0], [4.0]])))
    5.0
    """
    array = inexact(x, "vector_norm")
    return _of_vectors(array, ord, canonical_axes(axis, array.ndim, "vector_norm"), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of the matrices in the last two axes, by the array API standard.

    Args: x: array; keepdims; ord: as `norm`. Returns: a floating array.

    >>> import rlx.numpy as jnp
    >>> float(jnp.linalg.matrix_norm(jnp.array([[3.0, 4.0]])))
    5.0
    """
    return norm(x, ord, (-2, -1), keepdims)
