"""Moments of several variables: cov, corrcoef."""

from __future__ import annotations

from typing import Any

from rlx.array import Array
from rlx.errors import DtypeError, ShapeError
from rlx.ir.types import is_complex, is_inexact
from rlx.numpy.elementwise import divide, multiply
from rlx.numpy.floats import conj, real
from rlx.numpy.joining import concatenate
from rlx.numpy.manipulation import atleast_2d, reshape, transpose
from rlx.numpy.matrices import diagonal
from rlx.numpy.products import matmul
from rlx.numpy.promotion import convert_to, fill, inexact, operand, promote_inexact, scalar_array, to_dtype
from rlx.numpy.reductions import average
from rlx.numpy.reductions import sum as sum_
from rlx.ops import arithmetic, transcendental
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["corrcoef", "cov"]


@replayed
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, dtype: Any = None,
) -> Array:  # fmt: skip
    """The covariance matrix.

    Args: m: observations of variables, 1-d or 2-d; y: more observations; rowvar: whether rows are
    variables; bias, ddof: the divisor is n - ddof (1 unless bias); fweights: how often each
    observation counts; aweights: its weight; dtype: to compute in (None: the promoted one).
    Returns: a matrix (0-d for one variable). Raises: ShapeError for more axes or wrong weights.

    >>> import rlx.numpy as jnp
    >>> float(jnp.cov(jnp.array([1.0, 3.0])))
    2.0
    """
    if y is None:
        x = inexact(m, "cov")
    else:
        x, y = promote_inexact("cov", m, y)
    if x.ndim > 2 or (y is not None and y.ndim > 2):
        raise ShapeError(f"cov got an array of shape {x.shape}.", "Pass 1-d or 2-d arrays.")
    rows = _variables(x, rowvar)
    if y is not None:
        rows = concatenate([rows, _variables(y, rowvar)], 0)
    if dtype is not None:
        wanted = to_dtype(dtype)
        if not is_inexact(wanted):
            raise DtypeError(f"cov got dtype={wanted.name}.", "Pass a floating or complex dtype.")
        rows = convert_to(rows, wanted)
    if rows.shape[0] == 0:
        return fill((0, 0), 0, rows.dtype)
    freedom = (0 if bias else 1) if ddof is None else ddof
    weights = _weights(rows, fweights, aweights)
    if weights is None:
        center = arithmetic.divide(sum_(rows, axis=1), scalar_array(rows.shape[1], rows.dtype, True))
        divisor: Any = scalar_array(max(rows.shape[1] - freedom, 0), rows.dtype, True)
        scaled = None
    else:
        center, total = average(rows, axis=1, weights=weights, returned=True)
        total = total[0]
        divisor = arithmetic.subtract(total, scalar_array(freedom, total.dtype, True))
        if freedom and aweights is not None:
            w = convert_to(as_array(operand(aweights)), weights.dtype)
            share = divide(sum_(multiply(weights, w)), total)
            divisor = arithmetic.subtract(total, multiply(scalar_array(freedom, total.dtype, True), share))
        scaled = weights
    deviation = arithmetic.subtract(rows, reshape(center, (-1, 1)))
    other = deviation if scaled is None else multiply(deviation, scaled)
    product = divide(matmul(deviation, transpose(conj(other))), divisor)
    return reshape(product, ()) if product.size == 1 else product


def _variables(x: Any, rowvar: bool) -> Any:
    rows = atleast_2d(x)
    return transpose(rows) if not rowvar and rows.shape[0] != 1 else rows


def _weights(rows: Any, fweights: Any, aweights: Any) -> Any:
    weights = None
    for given in (fweights, aweights):
        if given is None:
            continue
        w = as_array(operand(given, "cov"))
        if w.shape != (rows.shape[1],):
            raise ShapeError(f"cov got weights of shape {w.shape}.", "Give one for each observation.")
        w = convert_to(w, rows.dtype if not is_complex(rows.dtype) else real(rows).dtype)
        weights = w if weights is None else multiply(weights, w)
    return weights


@replayed
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Array:
    """The matrix of correlation coefficients.

    Args: as `cov`. Returns: a matrix with values between -1 and 1.

    >>> import rlx.numpy as jnp
    >>> jnp.corrcoef(jnp.array([[1.0, 2.0], [2.0, 1.0]])).round(3).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    covariance = cov(x, y, rowvar, dtype=dtype)
    if covariance.ndim == 0:
        return divide(covariance, covariance)
    deviation = transcendental.sqrt(real(diagonal(covariance)))
    result = divide(divide(covariance, reshape(deviation, (-1, 1))), reshape(deviation, (1, -1)))
    one = 1.0
    if not is_complex(result.dtype):
        return arithmetic.clamp(scalar_array(-one, result.dtype, True), result, scalar_array(one, result.dtype, True))
    parts = [
        arithmetic.clamp(scalar_array(-one, p.dtype, True), p, scalar_array(one, p.dtype, True))
        for p in (arithmetic.real(result), arithmetic.imag(result))
    ]
    return arithmetic.complex(*parts)
