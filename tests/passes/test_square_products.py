"""Random programs of batches of square matrices: products that one loop reads straight and transposed; gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
import rlx.numpy as jnp

Operation = Callable[[Any, Any], Any]

# each takes two batches of square matrices and returns one, of moderate size
OPERATIONS: dict[str, Operation] = {
    "product": lambda a, b: a @ b,
    "square": lambda a, b: a @ a,
    "transposed": lambda a, b: jnp.swapaxes(a, -1, -2) @ b,
    "gram": lambda a, b: a @ jnp.swapaxes(a, -1, -2),
    "turn": lambda a, b: jnp.swapaxes(a, -1, -2),
    "mixed": lambda a, b: jnp.swapaxes(a @ b, -1, -2) + b @ a,
    "commutator": lambda a, b: a @ b - b @ a,
    "batch first": lambda a, b: jnp.einsum("bij,bkj->bik", a, b),
    "batch between": lambda a, b: jnp.einsum("bij,bjk->ibk", a, b).transpose(1, 0, 2),
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "sin": lambda a, b: jnp.sin(a),
    "rows": lambda a, b: a - a.mean(axis=-1, keepdims=True),
    "columns": lambda a, b: a / (1.5 + (b * b).sum(axis=-2, keepdims=True)),
    "diagonal": lambda a, b: a * jnp.eye(a.shape[-1]) + 0.3 * b,
    "softmax": lambda a, b: rlx.nn.softmax(a, axis=-1) @ b,
    "flip": lambda a, b: a[:, ::-1] + jnp.swapaxes(b, -1, -2),
}
STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=7
)


def program(steps: Sequence[tuple[str, int, int]]) -> Callable[..., Any]:
    def run(a: Any, b: Any) -> Any:
        values = [a, b]
        for name, first, second in steps:
            value = OPERATIONS[name](values[-1 - first % len(values)], values[-1 - second % len(values)])
            values.append(jnp.tanh(value) if name in ("product", "square", "gram", "mixed", "batch first") else value)
        return values[-1] + values[-2] * 0.5

    return run


@pytest.mark.thorough
@settings(deadline=None, max_examples=40)
@given(steps=STEPS, batch=st.sampled_from([1, 2, 3, 6]), size=st.sampled_from([2, 5, 8]), seed=st.integers(0, 2**31))
def test_compiled_programs_and_their_gradients(steps, batch, size, seed):
    a, b = np.random.default_rng(seed).normal(size=(2, batch, size, size))
    function = program(steps)

    def loss(a: Any, b: Any) -> Any:
        return jnp.sum(jnp.sin(function(a, b)))

    np.testing.assert_allclose(rlx.jit(function)(a, b), function(jnp.asarray(a), jnp.asarray(b)), atol=1e-10)
    gradient = rlx.grad(loss, argnums=(0, 1))
    for found, want in zip(rlx.jit(gradient)(a, b), gradient(a, b), strict=True):
        np.testing.assert_allclose(found, want, atol=1e-9)


def test_one_nest_reads_one_product_straight_and_one_transposed():
    a, b, c, d = np.random.default_rng(0).normal(size=(4, 3, 5, 5))
    found = rlx.jit(lambda a, b, c, d: jnp.swapaxes(a @ b, -1, -2) + c @ d)(a, b, c, d)
    np.testing.assert_allclose(found, np.swapaxes(a @ b, -1, -2) + c @ d, atol=1e-12)


def test_gradient_of_a_pseudo_inverse_of_a_batch():
    a = np.random.default_rng(0).normal(size=(3, 5, 5))
    slope = rlx.vmap(rlx.grad(lambda a: jnp.linalg.pinv(a).sum()))
    np.testing.assert_allclose(rlx.jit(slope)(a), slope(a), atol=1e-9)


def test_rows_stay_with_loops_that_a_moved_product_joins():
    """The square of a broadcast scalar: its gradient sums over every axis, read through a transposed product."""

    def loss(v: Any) -> Any:
        wide = jnp.broadcast_to(v, (4, 2, 2))
        return jnp.sum((wide @ wide) * np.cos(np.arange(16)).reshape(4, 2, 2))

    x = np.array([[1.25]])
    np.testing.assert_allclose(rlx.jit(rlx.grad(loss))(x), rlx.grad(loss)(x), rtol=1e-12)
