"""Random orthogonal matrices, and vectors with a covariance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx import numpy as jnp
from rlx.array import Array
from rlx.errors import ShapeError, UnsupportedError
from rlx.lax.operands import as_dtype
from rlx.numpy import linalg
from rlx.numpy.promotion import canonical_shape, canonical_size
from rlx.random.normal import normal
from rlx.random.placing import placeable
from rlx.random.uniform import float_dtype
from rlx.trace.flat import as_array

__all__ = ["multivariate_normal", "orthogonal"]


@placeable
def orthogonal(key: Any, n: int, shape: Sequence[int] = (), dtype: Any = None, m: int | None = None) -> Array:
    """Orthogonal matrices, uniform in the sense of Haar; unitary ones for a complex dtype.

    Args:
      key: a key.
      n: the number of rows.
      shape: of the array of matrices.
      dtype: a floating or complex dtype; by default the default float.
      m: the number of columns, by default n. With fewer rows than columns the rows are orthonormal, else the columns.

    Returns an array of shape (*shape, n, m).

    Mezzadri, How to generate random matrices from the classical compact groups, Notices of the AMS 54 (2007).

    >>> import numpy as np, rlx
    >>> q = rlx.random.orthogonal(rlx.random.key(0), 3)
    >>> bool(np.allclose(q @ q.T, np.eye(3), atol=1e-5))
    True
    """
    rows = canonical_size(n, "random.orthogonal")
    columns = rows if m is None else canonical_size(m, "random.orthogonal")
    drawn = normal(key, (*canonical_shape(shape, "random.orthogonal"), max(rows, columns), min(rows, columns)), dtype)
    q, r = linalg.qr(drawn)
    signs = jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))
    found = q * jnp.expand_dims(signs, -2)
    return found.mT if rows < columns else found


@placeable
def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Sequence[int] | None = None, dtype: Any = None, method: str = "cholesky"
) -> Array:
    """Normal vectors of a mean and a covariance.

    Args:
      key: a key.
      mean: of shape (..., n).
      cov: of shape (..., n, n), symmetric and positive semidefinite.
      shape: of the array of vectors; by default the broadcast leading axes of mean and cov.
      dtype: a floating dtype; by default the dtype of mean and cov.
      method: the factorisation of cov: "cholesky", or "eigh" or "svd" for singular ones.

    Returns an array of shape (*shape, n). A covariance that is not positive definite makes NaNs with "cholesky".
    Raises ShapeError where the shapes do not fit, UnsupportedError for another method.

    >>> import numpy as np, rlx
    >>> x = rlx.random.multivariate_normal(rlx.random.key(0), np.zeros(2), np.eye(2), (5,))
    >>> x.shape
    (5, 2)
    """
    center, covariance = as_array(mean), as_array(cov)
    if method not in ("cholesky", "eigh", "svd"):
        raise UnsupportedError(
            f"random.multivariate_normal has no method {method!r}.", 'Use "cholesky", "eigh" or "svd".'
        )
    found = float_dtype("multivariate_normal", dtype) if dtype is not None else _common(center, covariance)
    center, covariance = center.astype(found), covariance.astype(found)
    if center.ndim < 1 or covariance.ndim < 2 or covariance.shape[-2:] != (center.shape[-1],) * 2:
        raise ShapeError(
            f"random.multivariate_normal got a mean of shape {center.shape} and a covariance of shape"
            f" {covariance.shape}.",
            "They are of shape (..., n) and (..., n, n).",
        )
    sizes = _sample_shape(center.shape[:-1], covariance.shape[:-2], shape)
    drawn = normal(key, (*sizes, center.shape[-1]), found)
    return center + jnp.einsum("...ij,...j->...i", _factor(covariance, method), drawn)


def _sample_shape(mean: tuple[int, ...], covariance: tuple[int, ...], shape: Any) -> tuple[int, ...]:
    """The shape of the array of vectors; ShapeError where the parameters do not broadcast to it."""
    wanted = None if shape is None else canonical_shape(shape, "random.multivariate_normal")
    try:
        found = np.broadcast_shapes(mean, covariance, () if wanted is None else wanted)
    except ValueError:
        found = None
    if found is None or wanted not in (None, found):
        raise ShapeError(
            f"random.multivariate_normal got shape={wanted} for means of shape {mean} and covariances of {covariance}.",
            "The parameters broadcast to the shape.",
        )
    return found


def _common(mean: Array, covariance: Array) -> np.dtype:
    return as_dtype(jnp.result_type(mean, covariance, float))


def _factor(covariance: Array, method: str) -> Array:
    """A matrix whose product with its own transpose is the covariance."""
    if method == "cholesky":
        return linalg.cholesky(covariance)
    if method == "eigh":
        values, vectors = linalg.eigh(covariance)
    else:
        vectors, values, _ = linalg.svd(covariance)
    return vectors * jnp.sqrt(values[..., None, :])
