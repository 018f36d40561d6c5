"""Linear systems: solve, inverses, pseudo-inverses, least squares, tensor equations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rlx.array import Array
from rlx.errors import ShapeError
from rlx.numpy.halves import in_single
from rlx.numpy.linalg.common import aligned, hermitian, matrices, square
from rlx.numpy.linalg.determinants import SlogdetResult, det, slogdet
from rlx.numpy.manipulation import moveaxis, reshape
from rlx.numpy.promotion import broadcast_array, convert_to, fill, inexact, operand, promote_inexact
from rlx.numpy.reductions import max as max_
from rlx.numpy.reductions import sum as sum_
from rlx.ops import spectral
from rlx.ops.arithmetic import absolute, add, divide, multiply, negative, select, subtract
from rlx.ops.comparison import bitwise_and, greater, greater_equal
from rlx.ops.contract import cast
from rlx.ops.matrices import adjoint, identity_like, product
from rlx.ops.shape import expand_dims
from rlx.trace.flat import as_array
from rlx.trace.primitive import type_of
from rlx.transforms.custom import custom_jvp

__all__ = ["SlogdetResult", "det", "inv", "lstsq", "pinv", "slogdet", "solve", "tensorinv", "tensorsolve"]


@in_single
def solve(a: Any, b: Any) -> Array:
    """The solutions of linear systems a x = b.

    Args: a: (..., n, n); b: (n,), one right side for all systems, or (..., n, k), columns of right sides.
    Returns: x, shaped as b over the common batch. Infinite or NaN if a is singular.
    Raises: ShapeError if the shapes are incompatible.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 2.0]))
    Array([1. , 0.5], dtype=float32)
    """
    system, right = promote_inexact("solve", a, b)
    system = square(system, "solve")
    if right.ndim == 0:
        raise ShapeError("solve got a 0-d right side.", "Pass a vector or a matrix of columns.")
    vector = right.ndim == 1
    if right.shape[0 if vector else -2] != system.shape[-1]:
        raise ShapeError(
            f"solve got shapes {system.shape} and {right.shape}.", "The right side needs as many rows as the system."
        )
    if vector:
        right = reshape(right, (right.shape[0], 1))
    if system.ndim == 2 and right.ndim > 2:
        return _solve_shared(system, right)
    x = spectral.solve(*aligned("solve", system, right))
    return reshape(x, x.shape[:-1]) if vector else x


def _solve_shared(system: Any, right: Any) -> Any:
    """One system for many right sides is factored once."""
    system, right = promote_inexact("solve", system, right)
    columns = moveaxis(right, -2, 0)
    x = spectral.solve(system, reshape(columns, (columns.shape[0], prod(columns.shape[1:]))))
    return moveaxis(reshape(x, columns.shape), 0, -2)


@in_single
def inv(a: Any) -> Array:
    """The inverse.

    Args: a: (..., n, n). Returns: (..., n, n), infinite or NaN where a is singular.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    x = square(a, "inv")
    return spectral.solve(x, broadcast_array(identity_like(type_of(x)), x.shape))


# ------------------------------------------------------------- pseudo-inverses
def _default_rtol(shape: Sequence[int], dtype: np.dtype) -> float:
    return 10.0 * max(shape[-2:], default=1) * float(np.finfo(dtype).eps)


@in_single
def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Array:
    """The Moore-Penrose pseudo-inverse.

    Args: a: (..., m, n); rtol: singular values up to rtol times the largest count as 0 (None: 10 max(m, n)
    times the machine epsilon); hermitian: a is Hermitian; rcond: another name of rtol.
    Returns: (..., n, m). The derivative holds the rank constant.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.pinv(jnp.array([[2.0, 0.0], [0.0, 0.0]]))
    Array([[0.5, 0. ],
           [0. , 0. ]], dtype=float32)
    """
    if rtol is not None and rcond is not None:
        raise ValueError("pinv got rtol and rcond: give one of them.")
    x = matrices(a, "pinv")
    if 0 in x.shape:
        return fill((*x.shape[:-2], x.shape[-1], x.shape[-2]), 0, x.dtype)
    relative = rcond if rtol is None else rtol
    if relative is None:
        relative = _default_rtol(x.shape, x.dtype)
    limit = convert_to(operand(relative), np.finfo(x.dtype).dtype)
    return _hermitian_pinv(x, limit) if hermitian else _pinv(x, limit)


def _inverted(values: Any, limit: Any) -> Any:
    """1 / values where they count, else 0."""
    largest = max_(values, axis=-1, keepdims=True)
    kept = greater(values, multiply(expand_dims(limit, (limit.ndim,)), largest))
    return select(kept, divide(fill((), 1, values.dtype), select(kept, values, 1)), 0)


@custom_jvp
def _pinv(x: Any, limit: Any) -> Any:
    u, s, vh = spectral.svd(x, full_matrices=False, compute_uv=True)
    inverted = cast(expand_dims(_inverted(s, limit), (s.ndim - 1,)), x.dtype)
    return product(multiply(adjoint(vh), inverted), adjoint(u))


def _pinv_tangent(primals: Any, tangents: Any) -> Any:
    """Golub and Pereyra's formula, in an order in which no product has the longer side twice."""
    x, limit = primals
    tangent = tangents[0]
    p = _pinv(x, limit)
    turned, moved = adjoint(p), adjoint(tangent)
    tall = x.shape[-2] >= x.shape[-1]
    right = product(product(p, turned), moved) if tall else product(p, product(turned, moved))
    left = product(product(moved, turned), p) if tall else product(moved, product(turned, p))
    along_rows = product(product(right, x), p) if tall else product(right, product(x, p))
    along_columns = product(product(p, x), left) if tall else product(p, product(x, left))
    change = negative(product(product(p, tangent), p) if tall else product(p, product(tangent, p)))
    return p, add(change, add(subtract(right, along_rows), subtract(left, along_columns)))


_pinv.defjvp(_pinv_tangent)


def _hermitian_pinv(x: Any, limit: Any) -> Any:
    """As _pinv: the derivative of the Hermitian part."""
    return _pinv(hermitian(x), limit)


# ------------------------------------------------------------- least squares
@in_single
def lstsq(
    a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """The shortest x that minimises the distance of a x from b.

    Args: a: (m, n); b: (m,) or (m, k); rcond: singular values up to rcond times the largest count as 0
    (None: max(m, n) times the machine epsilon); numpy_resid: no residuals where NumPy gives none.
    Returns: (x, squared residuals, rank, singular values). Raises: ShapeError if the shapes are incompatible.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.lstsq(2 * jnp.eye(2), jnp.ones(2))[0]
    Array([0.5, 0.5], dtype=float32)
    """
    system, right = promote_inexact("lstsq", a, b)
    if system.ndim != 2 or right.ndim not in (1, 2) or system.shape[0] != right.shape[0]:
        raise ShapeError(f"lstsq got shapes {system.shape} and {right.shape}.", "Pass (m, n) and (m,) or (m, k).")
    vector = right.ndim == 1
    columns = reshape(right, (right.shape[0], 1)) if vector else right
    m, n = system.shape
    u, s, vh = spectral.svd(system, full_matrices=False, compute_uv=True)
    if s.size == 0:
        x, rank = fill((n, columns.shape[1]), 0, system.dtype), fill((), 0, np.dtype("i4"))
    else:
        relative = float(np.finfo(s.dtype).eps) * max(m, n) if rcond is None else rcond
        kept = bitwise_and(greater(s, 0), greater_equal(s, multiply(relative, s[:1])))
        inverted = select(kept, divide(fill((), 1, s.dtype), select(kept, s, 1)), 0)
        moved = multiply(cast(reshape(inverted, (-1, 1)), system.dtype), product(adjoint(u), columns))
        x, rank = product(adjoint(vh), moved), sum_(kept)
    residual = _residual(system, x, columns)
    if numpy_resid and (m <= n or int(rank) < n):
        residual = fill((0,), 0, residual.dtype)
    return (reshape(x, (n,)) if vector else x), residual, rank, s


def _residual(system: Any, x: Any, columns: Any) -> Any:
    missed = absolute(subtract(columns, product(system, x)))
    return sum_(multiply(missed, missed), axis=0)


# ------------------------------------------------------------- tensor equations
@in_single
def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse of an array as a map from its last axes to its first `ind`.

    Args: a: array; ind: positive. Returns: an array: last axes of a, then the first.
    Raises: ShapeError if the sizes of both groups differ.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.tensorinv(jnp.eye(4).reshape(2, 2, 4), ind=2).shape
    (4, 2, 2)
    """
    x = inexact(a, "tensorinv")
    if ind <= 0:
        raise ValueError(f"tensorinv needs a positive ind, not {ind}.")
    rows, columns = x.shape[:ind], x.shape[ind:]
    if prod(rows) != prod(columns):
        raise ShapeError(f"tensorinv got shape {x.shape} with ind={ind}.", "Both groups of axes need one size.")
    return reshape(inv(reshape(x, (prod(rows), prod(columns)))), columns + rows)


@in_single
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Array:
    """The solution of tensordot(a, x, x.ndim) = b.

    Args: a: array whose first axes are b's; b: array; axes: axes of a to be moved to the end first.
    Returns: x, with the last axes of a. Raises: ShapeError if the sizes are incompatible.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.tensorsolve(2 * jnp.eye(4).reshape(2, 2, 4), jnp.ones((2, 2)))
    Array([0.5, 0.5, 0.5, 0.5], dtype=float32)
    """
    x, right = inexact(a, "tensorsolve"), as_array(operand(b, "tensorsolve"))
    if axes is not None:
        x = moveaxis(x, tuple(axes), tuple(range(x.ndim - len(axes), x.ndim)))
    shape = x.shape[right.ndim :]
    if prod(shape) != right.size or prod(shape) ** 2 != x.size:
        raise ShapeError(f"tensorsolve got shapes {x.shape} and {right.shape}.", "a must be a square map onto b.")
    flat = reshape(x, (right.size, prod(shape)))
    return reshape(solve(flat, reshape(right, (right.size,))), shape)
