"""jaxtyping: shapes and dtypes in annotations, checked at run time and while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, jaxtyped


def run() -> Any:
    checks = {
        "matrix": isinstance(jnp.ones((2, 3)), Float[Array, "rows columns"]),
        "no vector": isinstance(jnp.ones(3), Float[Array, "rows columns"]),
        "no integer": isinstance(jnp.ones(3), Int[Array, " n"]),
        "scalar": isinstance(jnp.ones(()), Float[Array, ""]),
        "tree": isinstance({"a": jnp.ones(2)}, PyTree[Float[Array, " n"]]),
    }

    def product(x: Any, y: Any) -> Any:
        with jaxtyped("context"):
            assert isinstance(x, Float[Array, "a b"]) and isinstance(y, Float[Array, "b c"])
            out = x @ y
            assert isinstance(out, Float[Array, "a c"]) and not isinstance(out, Float[Array, "b b"])
        return out

    return {
        "checks": jnp.array(list(checks.values())),
        "product": jax.jit(product)(jnp.ones((2, 3)), jnp.full((3, 4), 2.0)),
        "slope": jax.grad(lambda x: product(x, jnp.ones((3, 4))).sum())(jnp.ones((2, 3))),
    }
