"""folx: Laplacians in forward mode, by an interpreter of jaxprs with rules for primitives."""

from __future__ import annotations

from typing import Any

import folx
import jax
import jax.numpy as jnp
import numpy as np


def run() -> Any:
    squares = folx.forward_laplacian(lambda x: (x**2).sum())(np.arange(3, dtype="f"))
    weights = [jax.random.normal(key, (4, 4)) / 2 for key in jax.random.split(jax.random.key(0), 3)]

    def network(x: Any) -> Any:
        for w in weights:
            x = jax.nn.silu(x @ w)
        return x.sum()

    points = jax.random.normal(jax.random.key(1), (3, 5, 4))
    operators = (folx.LoopLaplacianOperator(), folx.ForwardLaplacianOperator(0), folx.ForwardLaplacianOperator(6))
    mixed = folx.forward_laplacian(
        lambda x: jnp.linalg.slogdet(x.reshape(2, 2) + 3 * jnp.eye(2))[1] + jnp.sin(x).prod() + jax.nn.logsumexp(x)
    )
    return {
        "squares": (squares.x, squares.jacobian.dense_array, squares.laplacian),
        "networks": [jax.jit(jax.vmap(operator(network)))(points) for operator in operators],
        "mixed": mixed(jnp.arange(4.0) * 0.1).laplacian,
    }
