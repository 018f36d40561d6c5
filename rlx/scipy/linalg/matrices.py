"""Special matrices: hilbert, toeplitz, block_diag and others."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx.numpy as jnp
from rlx.array import Array, wrap
from rlx.config import config
from rlx.errors import ShapeError
from rlx.numpy.placement import placed
from rlx.numpy.promotion import canonical_size, promote, to_dtype

__all__ = [
    "block_diag",
    "circulant",
    "companion",
    "convolution_matrix",
    "dft",
    "fiedler",
    "fiedler_companion",
    "hadamard",
    "hankel",
    "helmert",
    "hilbert",
    "invhilbert",
    "invpascal",
    "leslie",
    "pascal",
    "toeplitz",
]


def _constant(values: np.ndarray) -> Array:
    """A matrix known while tracing, in the default dtype of its kind."""
    return placed(wrap(values.astype(config.default_float if values.dtype.kind == "f" else config.default_int)))


def _vector(value: Any, name: str, least: int = 1) -> Any:
    x = jnp.asarray(value)
    if x.ndim < 1 or x.shape[-1] < least:
        raise ShapeError(
            f"{name} got an array of shape {x.shape}.", f"Pass vectors of {least} elements or more in its last axis."
        )
    return x


def block_diag(*arrs: Any) -> Array:
    """Matrices along the diagonal of a larger one.

    Args: arrs: 2-d arrays (vectors count as rows, numbers as 1 by 1). Returns: a matrix.

    >>> import rlx
    >>> rlx.scipy.linalg.block_diag(1.0, 2.0).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    blocks = promote("block_diag", *(arrs or (jnp.zeros((1, 0)),)))
    if any(b.ndim > 2 for b in blocks):
        raise ShapeError("block_diag got an array of more than two axes.", "Pass matrices.")
    blocks = [jnp.atleast_2d(b) for b in blocks]
    columns = sum(b.shape[1] for b in blocks)
    rows, before = [], 0
    for block in blocks:
        rows.append(jnp.pad(block, ((0, 0), (before, columns - before - block.shape[1]))))
        before += block.shape[1]
    return jnp.concatenate(rows, axis=0)


def toeplitz(c: Any, r: Any = None) -> Array:
    """Matrices that are constant along their diagonals.

    Args: c: (..., m) first column; r: (..., n) first row, its first element ignored (None: conj(c)).
    Returns: (..., m, n).

    >>> import rlx
    >>> rlx.scipy.linalg.toeplitz([1, 2]).tolist()
    [[1, 2], [2, 1]]
    """
    column = jnp.atleast_1d(jnp.asarray(c))
    row = jnp.conj(column) if r is None else jnp.atleast_1d(jnp.asarray(r))
    column, row = promote("toeplitz", column, row)
    batch = np.broadcast_shapes(column.shape[:-1], row.shape[:-1])
    m, n = column.shape[-1], row.shape[-1]
    if not m or not n:
        return jnp.zeros((*batch, m, n), column.dtype)
    column = jnp.broadcast_to(column, (*batch, m))
    row = jnp.broadcast_to(row, (*batch, n))
    elements = jnp.concatenate([jnp.flip(column, axis=-1), row[..., 1:]], axis=-1)
    places = (m - 1) - np.arange(m)[:, None] + np.arange(n)
    return elements[..., places]


def circulant(c: Any) -> Array:
    """The matrix whose columns are cyclic shifts of c.

    Args: c: (..., n). Returns: (..., n, n).

    >>> import rlx
    >>> rlx.scipy.linalg.circulant([1, 2]).tolist()
    [[1, 2], [2, 1]]
    """
    column = jnp.atleast_1d(jnp.asarray(c))
    n = column.shape[-1]
    return column[..., (np.arange(n)[:, None] - np.arange(n)) % max(n, 1)]


def hankel(c: Any, r: Any = None) -> Array:
    """Matrices that are constant along their antidiagonals.

    Args: c: (..., m) first column; r: (..., n) last row, its first element ignored (None: zeros).
    Returns: (..., m, n).

    >>> import rlx
    >>> rlx.scipy.linalg.hankel([1, 2]).tolist()
    [[1, 2], [2, 0]]
    """
    column = jnp.atleast_1d(jnp.asarray(c))
    row = jnp.zeros_like(column) if r is None else jnp.atleast_1d(jnp.asarray(r))
    column, row = promote("hankel", column, row)
    batch = np.broadcast_shapes(column.shape[:-1], row.shape[:-1])
    m, n = column.shape[-1], row.shape[-1]
    column, row = jnp.broadcast_to(column, (*batch, m)), jnp.broadcast_to(row, (*batch, n))
    elements = jnp.concatenate([column, row[..., 1:]], axis=-1)
    return elements[..., np.arange(m)[:, None] + np.arange(n)]


def hilbert(n: int) -> Array:
    """The matrix of 1 / (i + j + 1).

    Args: n: its size. Returns: a matrix.

    >>> import rlx
    >>> rlx.scipy.linalg.hilbert(2)[0].tolist()
    [1.0, 0.5]
    """
    places = np.arange(canonical_size(n, "hilbert"))
    return _constant(1.0 / (places[:, None] + places + 1))


def invhilbert(n: int) -> Array:
    """The inverse of the Hilbert matrix.

    Args: n: its size. Returns: a matrix.

    >>> import rlx
    >>> rlx.scipy.linalg.invhilbert(1).tolist()
    [[1.0]]
    """
    from scipy.linalg import invhilbert as exact

    return _constant(np.asarray(exact(canonical_size(n, "invhilbert")), np.float64))


def _binomials(n: int) -> np.ndarray:
    """Pascal's triangle."""
    triangle = np.zeros((n, n), object)
    for row in range(n):
        triangle[row, 0] = 1
        for column in range(1, row + 1):
            triangle[row, column] = triangle[row - 1, column - 1] + triangle[row - 1, column]
    return triangle


def _pascal(n: int, kind: str | None, signs: bool) -> np.ndarray:
    wanted = "symmetric" if kind is None else kind
    if wanted not in ("symmetric", "lower", "upper"):
        raise ValueError(f'kind must be "symmetric", "lower" or "upper", not {kind!r}.')
    lower = _binomials(canonical_size(n, "invpascal" if signs else "pascal"))
    if signs:
        lower = lower * (-1) ** np.add.outer(np.arange(n), np.arange(n))
    if wanted == "symmetric":
        return lower.T @ lower if signs else lower @ lower.T
    return lower if wanted == "lower" else lower.T


def pascal(n: int, kind: str | None = None) -> Array:
    """The matrix of binomial coefficients.

    Args: n: its size; kind: "symmetric", "lower" or "upper". Returns: a matrix of floats.

    >>> import rlx
    >>> rlx.scipy.linalg.pascal(2).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """
    return _constant(_pascal(n, kind, False).astype(np.float64))


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of `pascal`.

    Args: n: its size; kind: "symmetric", "lower" or "upper". Returns: a matrix of floats.

    >>> import rlx
    >>> rlx.scipy.linalg.invpascal(2, "lower").tolist()
    [[1.0, 0.0], [-1.0, 1.0]]
    """
    return _constant(_pascal(n, kind, True).astype(np.float64))


def companion(a: Any) -> Array:
    """The companion matrix of a polynomial.

    Args: a: (..., n) coefficients, highest power first. Returns: (..., n - 1, n - 1).

    >>> import rlx
    >>> rlx.scipy.linalg.companion([1.0, -3.0, 2.0]).tolist()
    [[3.0, -2.0], [1.0, 0.0]]
    """
    x = _vector(a, "companion", 2)
    first = (-x[..., 1:] / x[..., :1])[..., None, :]
    n = first.shape[-1]
    below = jnp.broadcast_to(jnp.eye(n - 1, n, dtype=first.dtype), (*x.shape[:-1], n - 1, n))
    return jnp.concatenate([first, below], axis=-2)


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Array:
    """The matrix that convolves vectors of length n with a.

    Args: a: (..., m); n: length of the other; mode: "full", "same" or "valid". Returns: (..., k, n).

    >>> import rlx
    >>> rlx.scipy.linalg.convolution_matrix([1, 2], 2).tolist()
    [[1, 0], [2, 1], [0, 2]]
    """
    x = _vector(a, "convolution_matrix")
    size = x.shape[-1]
    if n <= 0:
        raise ValueError(f"n must be positive, not {n}.")
    spans = {"full": (0, n + size - 1), "valid": (min(n, size) - 1, max(n, size))}
    if mode == "same":
        begin = (min(n, size) - 1) // 2
        spans["same"] = (begin, begin + max(n, size))
    if mode not in spans:
        raise ValueError(f'mode must be "full", "same" or "valid", not {mode!r}.')
    places = np.arange(n + size - 1)[:, None] - np.arange(n)
    inside = (places >= 0) & (places < size)
    whole = jnp.where(inside, x[..., np.clip(places, 0, size - 1)], jnp.zeros((), x.dtype))
    return whole[..., slice(*spans[mode]), :]


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Array:
    """The matrix of the discrete Fourier transform.

    Args: n: its size; scale: None, "sqrtn" or "n"; dtype: complex. Returns: a matrix.

    >>> import rlx
    >>> rlx.scipy.linalg.dft(1).tolist()
    [[(1+0j)]]
    """
    if dtype is not None and to_dtype(dtype).kind != "c":
        raise ValueError(f"dtype must be complex, not {to_dtype(dtype).name}.")
    n = canonical_size(n, "dft")
    scales = {None: 1.0, "sqrtn": 1 / np.sqrt(max(n, 1)), "n": 1 / max(n, 1)}
    if scale not in scales:
        raise ValueError(f'scale must be None, "sqrtn" or "n", not {scale!r}.')
    places = np.arange(n)
    values = np.exp(-2j * np.pi * (np.outer(places, places) % max(n, 1)) / max(n, 1)) * scales[scale]
    wanted = np.result_type(config.default_float, np.complex64) if dtype is None else to_dtype(dtype)
    return placed(wrap(values.astype(wanted)))


def fiedler(a: Any) -> Array:
    """The matrix of the distances of numbers.

    Args: a: 1-d array. Returns: a matrix.

    >>> import rlx
    >>> rlx.scipy.linalg.fiedler([1, 4]).tolist()
    [[0, 3], [3, 0]]
    """
    x = jnp.atleast_1d(jnp.asarray(a))
    return jnp.abs(x[..., :, None] - x[..., None, :])


def fiedler_companion(a: Any) -> Array:
    """Fiedler's companion matrix of a polynomial: five diagonals.

    Args: a: (..., n) coefficients, highest power first. Returns: (..., n - 1, n - 1).

    >>> import rlx
    >>> rlx.scipy.linalg.fiedler_companion([1.0, -3.0, 2.0]).tolist()
    [[3.0, -2.0], [1.0, 0.0]]
    """
    x = _vector(a, "fiedler_companion")
    x = x / x[..., :1]
    n = x.shape[-1] - 1
    result = jnp.zeros((*x.shape[:-1], n, n), x.dtype)
    if n < 2:
        return result if n == 0 else -x[..., 1:, None]
    even, odd = np.arange(0, n - 1, 2), np.arange(1, n - 1, 2)
    result = result.at[..., 0, 0].set(-x[..., 1]).at[..., 1, 0].set(1)
    # coefficients next to the diagonal, ones two places away
    result = result.at[..., even, even + 1].set(-x[..., even + 2])
    result = result.at[..., odd + 1, odd].set(-x[..., odd + 2])
    far_right, far_down = np.arange(0, n - 2, 2), np.arange(1, n - 2, 2)
    return result.at[..., far_right, far_right + 2].set(1).at[..., far_down + 2, far_down].set(1)


def hadamard(n: int, dtype: Any = int) -> Array:
    """Hadamard's matrix of ones and minus ones.

    Args: n: a power of 2; dtype: of the result. Returns: a matrix.

    >>> import rlx
    >>> rlx.scipy.linalg.hadamard(2).tolist()
    [[1, 1], [1, -1]]
    """
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be a power of 2, not {n}.")
    values = np.ones((1, 1), np.int64)
    while len(values) < n:
        values = np.block([[values, values], [values, -values]])
    return placed(wrap(values.astype(to_dtype(dtype))))


def helmert(n: int, full: bool = False) -> Array:
    """Helmert's orthonormal contrasts.

    Args: n: number of columns; full: with the constant row in front. Returns: a matrix.

    >>> import rlx
    >>> rlx.scipy.linalg.helmert(2).shape
    (1, 2)
    """
    if n < 1:
        raise ValueError(f"n must be a positive integer, not {n}.")
    rows = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    rows[0] = 1
    scales = np.arange(n) * (np.arange(n) + 1)
    scales[0] = n
    values = rows / np.sqrt(scales)[:, None]
    return _constant(values if full else values[1:])


def leslie(f: Any, s: Any) -> Array:
    """Leslie's matrix of a population.

    Args: f: (n,) birth rates; s: (n - 1,) survival rates. Returns: a matrix.

    >>> import rlx
    >>> rlx.scipy.linalg.leslie([0.5, 1.0], [0.25]).tolist()
    [[0.5, 1.0], [0.25, 0.0]]
    """
    births, rates = promote("leslie", jnp.asarray(f), jnp.asarray(s))
    if births.shape[-1] != rates.shape[-1] + 1 or births.shape[-1] < 2:
        raise ShapeError(
            f"leslie got shapes {births.shape} and {rates.shape}.", "s has one element less than f, and one or more."
        )
    n = births.shape[-1]
    below = jnp.eye(n - 1, n, dtype=births.dtype) * rates[..., :, None]
    return jnp.concatenate([births[..., None, :], below], axis=-2)
