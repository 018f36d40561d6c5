"""jaxlie: rotations and rigid motions, and gradients on their manifolds, which read JAX's registry of trees."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxlie


def run() -> Any:
    pose = jaxlie.SE3.exp(jnp.array([1.0, 0.0, 0.2, 0.3, 0.5, -0.1]))
    target = jaxlie.SE3.exp(jnp.arange(6.0) * 0.1)

    def loss(at: Any) -> Any:
        return jnp.sum((at.inverse() @ target).log() ** 2)

    moved = pose
    step = jax.jit(jaxlie.manifold.grad(loss))
    for _ in range(5):
        moved = jaxlie.manifold.rplus(moved, -0.1 * step(moved))
    many = jax.vmap(jaxlie.SO3.exp)(jnp.ones((4, 3)) * jnp.arange(4.0)[:, None])
    pair = {"b": pose, "a": (target, jnp.ones(2))}
    return {
        "matrix": pose.as_matrix(), "log": pose.log(), "adjoint": pose.adjoint(), "inverse": pose.inverse().wxyz_xyz,
        "rotation": jaxlie.SO3.from_rpy_radians(0.1, 0.2, 0.3).wxyz,
        "drawn": jaxlie.SO3.sample_uniform(jax.random.key(0)).wxyz,
        "moved": moved.wxyz_xyz, "loss": loss(moved), "logs": many.log(),
        "slope": jax.jacfwd(lambda x: jaxlie.SO3.exp(x).as_matrix())(jnp.zeros(3)),
        "nested": jaxlie.manifold.grad(lambda tree: loss(tree["b"]) + tree["a"][1].sum())(pair),
    }  # fmt: skip
