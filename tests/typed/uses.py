"""Typical uses, as a user's type checker sees them: test_typed.py runs checkers over this file, and runs it.

`assert_type` states the type that is expected; a line that ends in `# wrong` is one that every checker must refuse.
"""

from __future__ import annotations

from functools import partial
from typing import Any, assert_type

import numpy as np

import rlx
import rlx.numpy as jnp
import rlx.sparse
from rlx import Array


def scale(x: Array, factor: float = 2.0) -> Array:
    """A function of an array and a number."""
    return x * factor


@rlx.jit
def decorated(x: Array, count: int) -> tuple[Array, int]:
    """Decorated without options."""
    return x + count, count


@rlx.jit(static_argnames="count", donate_argnums=0)
def with_options(x: Array, count: int) -> Array:
    """Decorated with options."""
    return x * count


class Model:
    """A jitted method."""

    @rlx.jit
    def apply(self, x: Array) -> Array:
        """Twice."""
        return x * 2


@rlx.custom_jvp
def softplus(x: Array) -> Array:
    """A function with a rule of its own."""
    return jnp.log1p(jnp.exp(x))


@softplus.defjvp
def softplus_rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """The rule."""
    (x,), (t,) = primals, tangents
    return softplus(x), t / (1 + jnp.exp(-x))


@rlx.checkpoint
def block(x: Array, depth: int = 1) -> Array:
    """Computed again in the backward pass."""
    return jnp.sin(x) * depth


def right_uses() -> None:
    """What checkers accept, with the types that come out."""
    x = jnp.ones(3)
    assert_type(rlx.jit(scale)(x, factor=3.0), Array)
    assert_type(decorated(x, 2), tuple[Array, int])
    assert_type(with_options(x + 0.0, count=2), Array)
    assert_type(rlx.vmap(scale, in_axes=(0, None))(x, 2.0), Array)
    assert_type(rlx.value_and_grad(lambda y: jnp.sum(y))(x)[1], Any)
    assert_type(rlx.jit(rlx.vmap(scale, in_axes=(0, None)))(x, 2.0), Array)
    assert_type(softplus(x), Array)
    assert_type(block(x, depth=2), Array)
    jitted = rlx.jit(scale)
    jitted.lower(x, 2.0).compile()
    jitted.clear_cache()
    gradient = rlx.grad(lambda y: scale(y).sum())
    gradient(x)
    hessian = rlx.hessian(lambda y: scale(y, 3.0).sum())
    hessian(x)
    chosen = partial(rlx.jit, static_argnums=1)(scale)
    chosen(x, 2.0)
    rlx.random.normal(rlx.random.key(0), (2,))
    rlx.optim.adam(1e-3).init({"w": x})


def arrays() -> None:
    """Results that editors complete."""
    x = jnp.ones(3)
    assert_type(jnp.sin(x), Array)
    assert_type(jnp.add(x, 1), Array)
    assert_type(jnp.where(x > 0, x, 0.0), Array)
    assert_type(jnp.linspace(0, 1, 3), Array)
    assert_type(jnp.linalg.solve(jnp.eye(3), x), Array)
    assert_type(rlx.lax.exp(x), Array)
    assert_type(jnp.fft.fft(x), Array)
    assert_type(rlx.random.normal(rlx.random.key(0), (2,)), Array)
    assert_type(x + 1, Array)
    assert_type(1 / x, Array)
    assert_type(x == x, Array)
    assert_type(x.T, Array)
    assert_type(x[0], Array)
    assert_type(x.at[0].set(1), Array)
    assert_type(x.at[0].add(1.0).sum(), Array)
    assert_type(rlx.jit(lambda y: jnp.sin(y))(x), Array)
    matrix = rlx.sparse.eye(3, dtype=np.float32)
    assert_type(matrix @ x, Array)
    assert_type(matrix.todense(), Array)
    assert_type(rlx.sparse.spsolve(matrix, x), Array)


def wrong_uses() -> None:
    """What they refuse: a line each."""
    x = jnp.ones(3)
    decorated(x)  # wrong
    decorated(x, "2")  # wrong
    rlx.jit(scale)(x, fctor=3.0)  # wrong
    with_options(x, number=2)  # wrong
    rlx.vmap(scale)(x, 2.0, 3.0)  # wrong
    rlx.grad(scale)(x, factor="2")  # wrong
    softplus(x, x)  # wrong
    block(x, depth="2")  # wrong
    rlx.jit(scale).lowr(x)  # wrong
    jnp.sinn(x)  # wrong
    jnp.linalg.slove(jnp.eye(3), x)  # wrong
    rlx.lax.expp(x)  # wrong
    rlx.inspekt(scale)  # wrong
    x.sume()  # wrong


if __name__ == "__main__":
    right_uses()
    arrays()
