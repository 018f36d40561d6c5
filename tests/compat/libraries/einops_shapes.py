"""einops: rearrangements, reductions and products of arrays, traced and differentiated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from einops import einsum, pack, rearrange, reduce, repeat, unpack


def run() -> Any:
    x = jnp.arange(24.0).reshape(2, 3, 4)
    packed, shapes = pack([x, jnp.ones((2, 5))], "b *")
    return {
        "rearranged": jax.jit(lambda x: rearrange(x, "b (h k) w -> h (b w) k", k=3))(x),
        "reduced": reduce(x, "b h w -> b w", "max"), "mean": reduce(x, "b (h 3) w -> b h", "mean"),
        "repeated": repeat(x[0], "h w -> h (w 2)"), "product": einsum(x, x, "b i w, b j w -> b i j"),
        "packed": packed, "unpacked": unpack(packed, shapes, "b *"),
        "slope": jax.grad(lambda x: (rearrange(x, "b h w -> (b w) h") ** 2).sum())(x),
        "batch": jax.vmap(lambda x: reduce(x, "h w -> h", "sum"))(x),
    }  # fmt: skip
