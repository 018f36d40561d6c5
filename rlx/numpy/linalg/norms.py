"""Norms of vectors and matrices, condition numbers and ranks."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.ir.types import is_complex
from rlx.numpy.halves import in_single
from rlx.numpy.linalg.common import matrices
from rlx.numpy.linalg.factorisations import eigvalsh, svd
from rlx.numpy.linalg.solves import inv
from rlx.numpy.manipulation import moveaxis, ravel, reshape
from rlx.numpy.promotion import canonical_axes, convert_to, float_of, inexact, operand
from rlx.numpy.reductions import max as max_
from rlx.numpy.reductions import min as min_
from rlx.numpy.reductions import sum as sum_
from rlx.ops.arithmetic import absolute, add, imag, multiply, real, select
from rlx.ops.comparison import greater, not_equal
from rlx.ops.transcendental import sqrt
from rlx.trace.replay import replayed

__all__ = ["cond", "matrix_norm", "matrix_rank", "norm", "vector_norm"]


@replayed
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """A norm of vectors or matrices.

    Args: x: array; ord: for vectors a number, inf or -inf (None: 2); for matrices 1, -1, 2, -2, inf,
    -inf, "fro" or "nuc" (None: "fro"); axis: an int for vectors, two for matrices, None for all of x
    (with ord None: of its elements); keepdims: keep the axes with size 1.
    Returns: an array. Raises: ShapeError for other numbers of axes; ValueError for another ord.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.norm(jnp.array([3.0, 4.0])).item()
    5.0
    """
    value = inexact(x, "norm")
    if axis is None and ord is None:
        return _euclidean(value, None, keepdims)
    axes = canonical_axes(axis, value.ndim, "norm")
    if len(axes) == 1:
        return _vector_norm(value, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(value, "fro" if ord is None else ord, axes, keepdims)
    raise ShapeError(f"norm got {len(axes)} axes of shape {value.shape}.", "Name one for vectors, two for matrices.")


def _euclidean(x: Any, axes: Any, keepdims: bool) -> Any:
    parts = (real(x), imag(x)) if is_complex(x.dtype) else (x,)
    squares = [multiply(part, part) for part in parts]
    total = add(*squares) if len(squares) > 1 else squares[0]
    return sqrt(sum_(total, axis=axes, keepdims=keepdims))


def _vector_norm(x: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(f"Vectors have no norm {ord!r}: pass a number, infinity as float.")
    if ord == 2:
        return _euclidean(x, axes, keepdims)
    if ord == inf:
        return max_(absolute(x), axis=axes, keepdims=keepdims, initial=0)
    if ord == -inf:
        return min_(absolute(x), axis=axes, keepdims=keepdims)
    if ord == 0:
        nonzero = convert_to(not_equal(x, 0), float_of(x.dtype))
        return sum_(nonzero, axis=axes, keepdims=keepdims)
    if ord == 1:
        return sum_(absolute(x), axis=axes, keepdims=keepdims)
    return sum_(absolute(x) ** ord, axis=axes, keepdims=keepdims) ** (1 / ord)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    row, column = axes
    if ord in ("f", "fro"):
        return _euclidean(x, axes, keepdims)
    if ord in (1, -1):
        sums = sum_(absolute(x), axis=row, keepdims=True)
        return _extreme(sums, ord > 0, axes, keepdims)
    if ord in (inf, -inf):
        sums = sum_(absolute(x), axis=column, keepdims=True)
        return _extreme(sums, ord > 0, axes, keepdims)
    if ord not in ("nuc", 2, -2):
        raise ValueError(f"Matrices have no norm {ord!r}.")
    values = svd(moveaxis(x, axes, (-2, -1)), compute_uv=False)
    result = sum_(values, axis=-1) if ord == "nuc" else _extreme(values, ord > 0, (values.ndim - 1,), False)
    if keepdims:
        result = reshape(result, tuple(1 if a in axes else n for a, n in enumerate(x.shape)))
    return result


def _extreme(values: Any, largest: bool, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest or the smallest of magnitudes; the largest of none is 0."""
    if largest:
        return max_(values, axis=axes, keepdims=keepdims, initial=0)
    return min_(values, axis=axes, keepdims=keepdims)


@replayed
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """A norm of vectors, over any axes.

    Args: x: array; axis: int, several, or None for all elements; keepdims; ord: a number, inf or -inf.
    Returns: an array.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.vector_norm(jnp.ones((2, 2))).item()
    2.0
    """
    value = inexact(x, "vector_norm")
    axes = canonical_axes(axis, value.ndim, "vector_norm")
    return _vector_norm(value, 2 if ord is None else ord, axes, keepdims)


@replayed
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """A norm of the matrices in the last two axes.

    Args: x: (..., m, n); keepdims; ord: as `norm`. Returns: (...).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.matrix_norm(jnp.ones((2, 2)), ord=1).item()
    2.0
    """
    value = matrices(x, "matrix_norm")
    return _matrix_norm(value, "fro" if ord is None else ord, (value.ndim - 2, value.ndim - 1), keepdims)


@in_single
def cond(x: Any, p: Any = None) -> Array:
    """The condition number.

    Args: x: (..., m, n), square unless p is None, 2 or -2; p: the norm. Returns: (...), inf where x is
    singular.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.cond(jnp.array([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    value = matrices(x, "cond")
    if 0 in value.shape:
        raise ShapeError(f"cond got shape {value.shape}.", "An empty matrix has no condition number.")
    axes = (value.ndim - 2, value.ndim - 1)
    if p in (None, 2, -2):
        values = svd(value, compute_uv=False)
        first, last = values[..., 0], values[..., -1]
        result = last / first if p == -2 else first / last
    else:
        result = _matrix_norm(value, p, axes, False) * _matrix_norm(inv(value), p, axes, False)
    unexpected = (result != result) & ~(value != value).any(axis=axes)
    return select(unexpected, inf, result)


@in_single
def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Array:
    """The number of singular values that count as nonzero.

    Args: M: (..., m, n) (a 1-d array: whether it is nonzero); rtol: relative to the largest one (None:
    max(m, n) times the machine epsilon); hermitian: use eigenvalues; tol: an older name of rtol.
    Returns: integers, (...).

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.matrix_rank(jnp.ones((3, 3))).item()
    1
    """
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank got rtol and tol: give one of them.")
    value = inexact(operand(M, "matrix_rank"), "matrix_rank")
    if value.ndim < 2:
        return convert_to(not_equal(ravel(value), 0).any(), np.dtype("i4"))
    values = absolute(eigvalsh(value)) if hermitian else svd(value, compute_uv=False)
    relative = tol if rtol is None else rtol
    if relative is None:
        relative = max(value.shape[-2:]) * float(np.finfo(values.dtype).eps)
    if 0 in value.shape[-2:]:
        return sum_(not_equal(values, values), axis=-1)
    factor = inexact(relative, "matrix_rank")
    limit = max_(values, axis=-1, keepdims=True) * reshape(factor, (*factor.shape, 1))
    return sum_(greater(values, limit), axis=-1)
