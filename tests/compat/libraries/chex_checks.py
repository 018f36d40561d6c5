"""chex: dataclasses, assertions in and out of jit, variants of a function."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp


@chex.dataclass
class Point:
    x: chex.Array
    y: chex.Array


def run() -> Any:
    points = Point(x=jnp.arange(3.0), y=jnp.ones(3))
    moved = jax.jit(jax.vmap(lambda p: p.replace(x=p.x + p.y)))(points)
    slopes = jax.grad(lambda p: jnp.sum(p.x**2 * p.y))(points)
    chex.assert_shape([moved.x, moved.y], (3,))
    chex.assert_trees_all_close(moved.y, points.y)
    chex.assert_tree_all_finite(slopes)
    chex.assert_type(moved.x, jnp.float32)
    chex.clear_trace_counter()  # it counts by name, and a program may run more than once in a process
    traced = jax.jit(chex.assert_max_traces(lambda x: x + 1, n=1))
    values = [traced(jnp.float32(n)) for n in range(3)]

    @chex.chexify
    @jax.jit
    def logarithm(x: jax.Array) -> jax.Array:
        chex.assert_tree_all_finite(jnp.log(x))
        return jnp.log(x)

    value = logarithm(jnp.array(2.0))
    refused = 0
    for bad in (lambda: chex.assert_rank(points.x, 2), lambda: chex.assert_equal_shape([points.x, jnp.ones(2)])):
        try:
            bad()
        except AssertionError:
            refused += 1
    assert refused == 2
    return {
        "moved": moved,
        "slopes": slopes,
        "values": values,
        "logarithm": value,
        "kinds": chex.create_deprecated_function_alias(jnp.sin, "sin", "s")(1.0),
    }
