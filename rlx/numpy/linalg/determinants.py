"""Determinants: closed forms for small matrices, LU factors for others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx.array import Array
from rlx.ir.types import is_complex
from rlx.numpy.halves import in_single
from rlx.numpy.linalg.common import square
from rlx.numpy.promotion import convert_to, fill
from rlx.numpy.reductions import prod
from rlx.numpy.reductions import sum as sum_
from rlx.ops.arithmetic import absolute, multiply, select, sign, subtract
from rlx.ops.comparison import bitwise_and, not_equal
from rlx.ops.contract import cast
from rlx.ops.factorisations import lu
from rlx.ops.matrices import diagonal_of, identity_like, product, real_dtype, real_part, take_rows
from rlx.ops.rounding import is_finite
from rlx.ops.shape import concatenate, iota, reshape, slice_along
from rlx.ops.solves import lu_solve, triangular_solve
from rlx.ops.transcendental import log
from rlx.trace.primitive import type_of
from rlx.transforms.custom import custom_jvp

__all__ = ["SlogdetResult", "det", "slogdet"]


class SlogdetResult(NamedTuple):
    """The sign (phase) of a determinant and the logarithm of its magnitude.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.slogdet(-jnp.eye(3)).sign.item()
    -1.0
    """

    sign: Array
    logabsdet: Array


def _parity(pivots: Any, dtype: np.dtype) -> Any:
    """1 for an even number of interchanges, -1 for an odd one."""
    t = type_of(pivots)
    moved = not_equal(pivots, iota(type=t, axis=t.ndim - 1))
    odd = bitwise_and(sum_(convert_to(moved, np.dtype("i4")), axis=-1), 1)
    return subtract(fill((), 1, dtype), multiply(convert_to(odd, dtype), fill((), 2, dtype)))


# ------------------------------------------------------------- det
@in_single
def det(a: Any) -> Array:
    """The determinant.

    Args: a: (..., n, n). Returns: (...). The derivative is also finite for matrices of rank n - 1.

    >>> import rlx.numpy as jnp
    >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 5.0]])).item()
    -1.0
    """
    x = square(a, "det")
    size = x.shape[-1]
    if size > 3:
        return _det(x)
    if size == 0:
        return fill(x.shape[:-2], 1, x.dtype)
    entries = [[_entry(x, i, j) for j in range(size)] for i in range(size)]
    return _expanded(entries)


def _entry(x: Any, row: int, column: int) -> Any:
    return x[..., row, column]


def _expanded(entries: list[list[Any]]) -> Any:
    """Laplace's expansion along the first row."""
    if len(entries) == 1:
        return entries[0][0]
    total = None
    for column, factor in enumerate(entries[0]):
        minor = [row[:column] + row[column + 1 :] for row in entries[1:]]
        term = factor * _expanded(minor)
        total = term if total is None else total - term if column % 2 else total + term
    return total


@custom_jvp
def _det(x: Any) -> Any:
    factors, pivots, _ = lu(x)
    return multiply(prod(diagonal_of(factors), axis=-1), _parity(pivots, x.dtype))


def _det_tangent(primals: Any, tangents: Any) -> Any:
    (x,), (tangent,) = primals, tangents
    factors, pivots, permutation = lu(x)
    diagonal = diagonal_of(factors)
    size = x.shape[-1]
    leading = multiply(prod(diagonal[..., :-1], axis=-1), _parity(pivots, x.dtype))
    last = diagonal[..., -1]
    adjugate = _adjugate_product(factors, permutation, leading, last, tangent, size)
    return multiply(leading, last), sum_(diagonal_of(adjugate), axis=-1)


def _adjugate_product(factors: Any, permutation: Any, leading: Any, last: Any, x: Any, size: int) -> Any:
    """det(a) a^-1 x without a division by a's last pivot; 0 where another pivot is 0."""
    batch = x.shape[:-2]
    usable = bitwise_and(not_equal(leading, 0), is_finite(absolute(leading)))
    usable = reshape(usable, shape=(*batch, 1, 1))
    safe = select(usable, factors, identity_like(type_of(factors)))
    solved = triangular_solve(safe, take_rows(x, permutation), left_side=True, unit_diagonal=True)
    above = slice_along(solved, 0, size - 1, x.ndim - 2)
    bottom = slice_along(solved, size - 1, size, x.ndim - 2)
    block = slice_along(slice_along(safe, 0, size - 1, x.ndim - 2), 0, size - 1, x.ndim - 1)
    edge = slice_along(slice_along(safe, 0, size - 1, x.ndim - 2), size - 1, size, x.ndim - 1)
    scaled = subtract(multiply(above, reshape(last, shape=(*batch, 1, 1))), product(edge, bottom))
    inner = triangular_solve(block, scaled, left_side=True, lower=False)
    whole = multiply(concatenate(inner, bottom, axis=x.ndim - 2), reshape(leading, shape=(*batch, 1, 1)))
    return select(usable, whole, 0)


_det.defjvp(_det_tangent)


# ------------------------------------------------------------- slogdet
@in_single
def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """The sign and the logarithm of the magnitude of the determinant.

    Args: a: (..., n, n); method: "lu" or "qr", JAX's names of ways to compute it; both mean LU here.
    Returns: SlogdetResult(sign, logabsdet); sign 0 and logabsdet -inf for a singular matrix.

    >>> import rlx.numpy as jnp
    >>> [v.item() for v in jnp.linalg.slogdet(jnp.eye(2))]
    [1.0, 0.0]
    """
    if method not in (None, "lu", "qr"):
        raise ValueError(f'slogdet has no method {method!r}: use "lu" or "qr".')
    x = square(a, "slogdet")
    if x.shape[-1] == 0:
        return SlogdetResult(fill(x.shape[:-2], 1, x.dtype), fill(x.shape[:-2], 0, real_dtype(x.dtype)))
    return SlogdetResult(*_slogdet(x))


def _sign_and_logarithm(factors: Any, pivots: Any) -> tuple[Any, Any]:
    diagonal = diagonal_of(factors)
    phase = multiply(prod(sign(diagonal), axis=-1), _parity(pivots, diagonal.dtype))
    return phase, sum_(log(absolute(diagonal)), axis=-1)


@custom_jvp
def _slogdet(x: Any) -> Any:
    factors, pivots, _ = lu(x)
    return _sign_and_logarithm(factors, pivots)


def _slogdet_tangent(primals: Any, tangents: Any) -> Any:
    (x,), (tangent,) = primals, tangents
    factors, pivots, permutation = lu(x)
    # a complex phase has a derivative, which the factors do not know
    phase, logarithm = _slogdet(x) if is_complex(x.dtype) else _sign_and_logarithm(factors, pivots)
    solved = lu_solve(x, factors, permutation, tangent, transpose_a=False, conjugate_a=False)
    change = sum_(diagonal_of(solved), axis=-1)
    growth = real_part(change)
    turn = multiply(subtract(change, cast(growth, change.dtype)), phase)
    return (phase, logarithm), (turn, growth)


_slogdet.defjvp(_slogdet_tangent)
