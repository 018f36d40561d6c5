"""What is one value in a program is one number wherever it is computed again: y - y is 0, and y == y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.numpy as jnp

# cheap values, which readers compute again rather than load
VALUES: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: x * 0.3,
    "square": lambda x: x * x,
    "product and sum": lambda x: x * 0.3 + 0.7,
    "difference of products": lambda x: x * x - x * 0.1,
    "polynomial": lambda x: ((x * 0.3 - 1.1) * x + 0.7) * x,
    "quotient": lambda x: x / 3.0,
    "quotient of sums": lambda x: (x * 0.3 + 1) / (x * x + 3),
    "sine": lambda x: jnp.sin(x) * 0.3,
    "exponential": lambda x: jnp.exp(x) * 0.3 + x,
    "square root": lambda x: jnp.sqrt(x * x + 0.1) * 1.7,
    "hyperbolic": lambda x: jnp.tanh(x) * x + 0.3,
    "broadcast": lambda x: x * jnp.float32(0.3).astype(x.dtype) + x[:1],
}
# zeros that a value gives, at as many places as it has elements
ZEROS: dict[str, Callable[[Any], Any]] = {
    "pairs": lambda y: jnp.diagonal(y[:, None] - y[None, :]),
    "pairs of sums": lambda y: jnp.diagonal((y[:, None] * 0.3 + y[None, :]) - (y[None, :] + y[:, None] * 0.3)),
    "itself reversed": lambda y: (y[::-1] - y)[::-1] - (y - y[::-1]),
    "its least": lambda y: jnp.where(y == jnp.min(y), y - jnp.min(y), 0),
    "its greatest": lambda y: jnp.minimum(jnp.max(y) - y, 0),
    "its elements": lambda y: jnp.stack([y[i] - y for i in range(3)])[:, :3].diagonal(),
    "sorted": lambda y: jnp.sort(y)[0] - jnp.min(y)[None],
    "gathered": lambda y: y[jnp.arange(y.shape[0])] - y,
    "loop": lambda y: rlx.lax.scan(lambda c, v: (c, v - y[c.astype(int)] * 0 - v), 0.0 * y[0], y)[1],
    "equality": lambda y: jnp.where(jnp.trace(y[:, None] == y[None, :]) == y.shape[0], 0.0, 1.0),
}


@pytest.mark.thorough
@settings(deadline=None, max_examples=60)
@given(
    value=st.sampled_from(sorted(VALUES)),
    zero=st.sampled_from(sorted(ZEROS)),
    dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
    size=st.sampled_from([3, 16, 37, 300]),
    within=st.sampled_from(["jit", "vmap", "checkpoint", "memory_limit", "grad"]),
    seed=st.integers(0, 2**31),
)
def test_a_value_equals_itself(value, zero, dtype, size, within, seed):
    x = jnp.asarray(np.random.default_rng(seed).normal(size=size), dtype)

    def zeros(x: Any) -> Any:
        return ZEROS[zero](VALUES[value](x))

    if within == "jit":
        found = rlx.jit(zeros)(x)
    elif within == "vmap":
        found = rlx.jit(rlx.vmap(zeros))(jnp.stack([x, -x, x * 2]))
    elif within == "checkpoint":
        found = rlx.jit(lambda x: ZEROS[zero](rlx.checkpoint(VALUES[value])(x)))(x)
    elif within == "memory_limit":
        found = rlx.jit(zeros, memory_limit=2**22)(x)
    else:  # the zeros beside a gradient, which reads much of the same
        found = rlx.jit(lambda x: (zeros(x), rlx.grad(lambda x: VALUES[value](x).sum())(x)))(x)[0]
    assert not np.asarray(found).astype("float64").any(), np.asarray(found)


@pytest.mark.parametrize("rows", [64, 2048])
def test_row_tiles_and_separate_kernels_agree(rows):
    """A product, and loops over its rows that run tile by tile, beside a loop that runs by itself."""
    x = np.random.default_rng(0).normal(size=(rows, 64)).astype("float32")
    w = np.random.default_rng(1).normal(size=(64, 64)).astype("float32")

    @rlx.jit
    def found(x: Any, w: Any) -> Any:
        y = x * 0.3
        hidden = jnp.tanh(y @ w) * 0.1 + y
        return (y - y.max(axis=1, keepdims=True)).max(axis=1), (hidden - hidden).any(), (y.T - y.T[::-1][::-1]).any()

    greatest, *others = found(x, w)
    assert not np.asarray(greatest).any() and not any(map(bool, others))


def test_arithmetic_is_rounded_as_it_is_eagerly():
    """Without sums of many there is nothing to reorder: a compiled program gives the bits of an eager one."""
    x, y = np.random.default_rng(0).normal(size=(2, 1000))

    def arithmetic(x: Any, y: Any) -> Any:
        a = x * y + x
        b = a * a - y / (x * x + 1)
        return b * 0.1 + a * x - y, jnp.sqrt(abs(b)) * a + 1

    for dtype in ("float32", "float64"):
        arrays = jnp.asarray(x, dtype), jnp.asarray(y, dtype)
        for found, want in zip(rlx.jit(arithmetic)(*arrays), arithmetic(*arrays), strict=True):
            np.testing.assert_array_equal(found, want)
