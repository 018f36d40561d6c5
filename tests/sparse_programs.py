"""Functions whose Jacobians are sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

import rlx
import rlx.numpy as jnp
from rlx import lax

X = np.linspace(0.2, 1.7, 7)
MATRIX = scipy.sparse.random_array((6, 7), density=0.3, rng=np.random.default_rng(1), format="csr")


def laplacian(u: Any) -> Any:
    """Of a grid with a fixed edge."""
    v = jnp.pad(u, 1)
    return v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2] - 4 * u


def steps(count: int) -> Any:
    """A loop that reaches one neighbour further each time."""
    return lambda x: lax.fori_loop(0, count, lambda _, u: u + 0.1 * jnp.roll(u, 1), x)


def scanned(x: Any) -> Any:
    """Row t of the result depends on the elements up to t."""
    return lax.scan(lambda c, v: (c + v**2, c * v), x[0] * 1.0, x)[1]


EXACT: dict[str, tuple[Any, Any]] = {
    "elementwise": (lambda x: jnp.sin(x) * x + 1 / x, X),
    "outer": (lambda x: x[:, None] * x[None, :], X),
    "difference": (lambda x: x[1:] - x[:-1] ** 2, X),
    "banded": (lambda x: x[2:] * x[:-2] + x[1:-1], X),
    "periodic": (lambda x: jnp.roll(x, 1) * x + jnp.roll(x, -2), X),
    "stencil": (lambda u: laplacian(u) + u**2, np.ones((5, 6))),
    "convolution": (lambda x: jnp.convolve(x**2, np.array([1.0, -2.0, 0.5]), mode="same"), X),
    "gather": (lambda x: x[np.array([3, 3, 0, 6])] ** 2, X),
    "scatter": (lambda x: jnp.zeros(9).at[np.array([8, 1, 1, 4, 5, 0, 0])].add(x**2), X.astype("f4")),
    "overwritten": (lambda x: (x**2).at[2:4].set(1.0), X),
    "permuted": (lambda x: jnp.sin(x)[::-1].reshape(1, 7).T, X),
    "row sums": (lambda u: (u**2).sum(1), np.ones((3, 4))),
    "triple": (lambda u: jnp.stack([u[:, 0] * u[:, 1], u[:, 2]], 1), np.ones((3, 4))),
    "batched product": (lambda a: jnp.einsum("bij,bjk->bik", a, a), np.ones((3, 2, 2)) + np.arange(3)[:, None, None]),
    "sparse product": (lambda x: rlx.sparse.CSR.fromscipy(MATRIX) @ (x**2), X),
    "stop_gradient": (lambda x: x * lax.stop_gradient(x[::-1]), X),
    "integers": (lambda x: x * jnp.floor(x[::-1] + 3).astype("int32"), X),
    "loop": (steps(2), X),
    "scan": (scanned, np.append(X, 2.0)),
    "vmap": (rlx.vmap(lambda row: row[1:] * row[0]), np.ones((4, 3)) + np.arange(3)),
    "jit": (rlx.jit(lambda x: jnp.cos(x[1:]) * x[:-1]), X),
    "complex": (lambda x: jnp.abs(jnp.fft.fft(x.reshape(2, 4) + 0.5j, axis=1)) + 0.0, np.arange(8.0)),
    "tree": (lambda x: {"a": x[0] * x[1], "b": [x[2:], x[:2] ** 2]}, X),
}
