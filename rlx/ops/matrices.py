"""Matrices in the last two axes, for derivative rules: products, triangles, diagonals, rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import TensorType, is_complex
from rlx.ops.arithmetic import add, subtract
from rlx.ops.comparison import equal, greater, greater_equal
from rlx.ops.contract import cast, dot_general
from rlx.ops.conversion import conj, float_dtype_of, real, select
from rlx.ops.families import full_like
from rlx.ops.shape import broadcast_in_dim, iota, reshape, slice_along
from rlx.ops.shape import transpose as transpose_axes
from rlx.ops.sorting import take_along
from rlx.trace.primitive import type_of

__all__ = [
    "adjoint",
    "check_matrices",
    "check_square",
    "conjugate",
    "diagonal_of",
    "difference",
    "hermitian_from_lower",
    "identity_like",
    "lower_triangle",
    "product",
    "real_dtype",
    "real_part",
    "take_rows",
    "turned",
    "upper_triangle",
]

INT32 = np.dtype(np.int32)
_LAPACK = tuple(map(np.dtype, ("f4", "f8", "c8", "c16")))


# ------------------------------------------------------------- checks
def check_matrices(name: str, *types: TensorType, ndim: int = 2) -> None:
    """Raise unless the operands have matrices in their last axes, of one dtype that LAPACK supports."""
    for t in types:
        if t.dtype not in _LAPACK:
            raise DtypeError(
                f"{name} does not take {t.dtype.name}.", "Convert to float32, float64, complex64 or complex128."
            )
        if t.dtype != types[0].dtype:
            raise DtypeError(
                f"{name} got operands of dtypes {', '.join(x.dtype.name for x in types)}.",
                "Convert them to one dtype with .astype(...).",
            )
        if t.ndim < ndim:
            raise ShapeError(f"{name} got {t!r}.", f"It needs {ndim} axes or more; the others are batch axes.")


def check_square(name: str, *types: TensorType) -> None:
    """Raise unless the operands are square matrices."""
    check_matrices(name, *types)
    for t in types:
        if t.shape[-1] != t.shape[-2]:
            raise ShapeError(f"{name} got {t!r}.", "The last two axes must have one size: a square matrix.")


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of magnitudes."""
    return float_dtype_of(dtype) if is_complex(dtype) else dtype


# ------------------------------------------------------------- parts and products
def conjugate(x: Any) -> Any:
    """The complex conjugate; a real value unchanged."""
    return conj(x) if is_complex(type_of(x).dtype) else x


def real_part(x: Any) -> Any:
    """The real part; a real value unchanged."""
    return real(x) if is_complex(type_of(x).dtype) else x


def turned(x: Any) -> Any:
    """The matrices transposed."""
    ndim = type_of(x).ndim
    return transpose_axes(x, permutation=(*range(ndim - 2), ndim - 1, ndim - 2))


def adjoint(x: Any) -> Any:
    """The matrices transposed and conjugated."""
    return turned(conjugate(x))


def product(*factors: Any) -> Any:
    """The matrix product, from left to right, batch by batch."""
    result = factors[0]
    for factor in factors[1:]:
        ndim = type_of(result).ndim
        batch = tuple(range(ndim - 2))
        numbers = (((ndim - 1,), (ndim - 2,)), (batch, batch))
        result = dot_general(result, factor, dimension_numbers=numbers, preferred_dtype=None)
    return result


def difference(x: Any) -> Any:
    """x[..., i, j] = x[..., j] - x[..., i]."""
    t = type_of(x)
    n = t.shape[-1]
    rows = reshape(x, shape=(*t.shape[:-1], 1, n))
    columns = reshape(x, shape=(*t.shape[:-1], n, 1))
    return subtract(rows, columns)


# ------------------------------------------------------------- triangles and diagonals
def _mask(t: TensorType, compare: Any, offset: int = 0) -> Any:
    """compare(row, column + offset) for one matrix, with as many axes as the type."""
    shape = _of_one(t)
    rows = iota(type=TensorType(shape, INT32), axis=t.ndim - 2)
    columns = iota(type=TensorType(shape, INT32), axis=t.ndim - 1)
    if offset:
        columns = add(columns, full_like(TensorType((), INT32), offset))
    return compare(rows, columns)


def _of_one(t: TensorType) -> tuple[int, ...]:
    """The shape of one matrix of a batch, with the axes of the batch."""
    return (1,) * (t.ndim - 2) + t.shape[-2:]


def lower_triangle(x: Any, offset: int = 0) -> Any:
    """x on and below a diagonal, 0 above."""
    return select(_mask(type_of(x), greater_equal, -offset), x, 0)


def upper_triangle(x: Any, offset: int = 0) -> Any:
    """x on and above a diagonal, 0 below."""
    return select(_mask(type_of(x), greater, -offset), 0, x)


def identity_like(t: TensorType) -> Any:
    """Identity matrices (ones on the diagonal of a rectangle) of a type, to be broadcast."""
    one = full_like(TensorType((), t.dtype), 1)
    return select(_mask(t, equal), broadcast_in_dim(one, shape=_of_one(t), dims=()), 0)


def diagonal_of(x: Any) -> Any:
    """The main diagonals of square matrices, as the last axis."""
    t = type_of(x)
    n = t.shape[-1]
    if n == 0:
        return reshape(x, shape=t.shape[:-1])
    flat = reshape(x, shape=(*t.shape[:-2], n * n))
    return slice_along(flat, 0, n * n, t.ndim - 2, n + 1)


def hermitian_from_lower(x: Any) -> Any:
    """The Hermitian matrices with the lower triangle of x (without the imaginary part of the diagonal)."""
    t = type_of(x)
    if is_complex(t.dtype):
        strict = lower_triangle(x, -1)
        diagonal = select(_mask(t, equal), cast(real_part(x), t.dtype), 0)
        return add(diagonal, add(strict, adjoint(strict)))
    return select(_mask(t, greater_equal), x, turned(x))


def take_rows(x: Any, rows: Any) -> Any:
    """x[..., rows, :] batch by batch."""
    shape = type_of(x).shape
    dims = tuple(range(len(shape) - 1))
    indices = broadcast_in_dim(rows, shape=(*shape[:-2], type_of(rows).shape[-1], shape[-1]), dims=dims)
    return take_along(x, indices, len(shape) - 2)
