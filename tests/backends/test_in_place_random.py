"""Random loops that write over parts of two carried matrices, against the same steps one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax

Step = Callable[[Any, Any, Any, int, int], tuple[Any, Any]]

# each changes `a`, or both, in step i; p and q are small numbers
STEPS: list[Step] = [
    lambda i, a, b, p, q: (a.at[i + p].set(a[i + q] * 0.5 + 1), b),
    lambda i, a, b, p, q: (a.at[i + p].add(b[i + q].sum()), b),
    lambda i, a, b, p, q: (a.at[:, i].set(a[i + p] * 0.5), b),
    lambda i, a, b, p, q: (_moved_block(i, a, p, q), b),
    lambda i, a, b, p, q: (a.at[i].multiply(0.5).at[i + 1].set(a[i]), b),
    lambda i, a, b, p, q: (a, b * 0.9 + a * 0.1),
    lambda i, a, b, p, q: (a.at[p, i].set(b[q, i]), a),
    lambda i, a, b, p, q: (lax.fori_loop(0, 3, lambda j, a: a.at[i, j].add(a[j, p] * 0.1), a), b),
    lambda i, a, b, p, q: (jnp.where(i % 2 == 0, a.at[p].set(0.3), a), b),
    lambda i, a, b, p, q: (a.at[jnp.stack([i, i + p])].add(b[jnp.stack([i + q, i])]), b),
    lambda i, a, b, p, q: (jnp.roll(a, 1, 0).at[i].set(a[q]), b),
]


def _moved_block(i: Any, a: Any, p: int, q: int) -> Any:
    block = lax.dynamic_slice(a, (i, q), (2, 3))
    return lax.dynamic_update_slice(a, jnp.sin(block), (i + p, q))


def random_step(choose: random.Random) -> Callable[[Any, tuple[Any, Any]], tuple[Any, Any]]:
    chosen = [
        (choose.choice(STEPS), choose.randint(0, 3), choose.randint(0, 3), choose.random() < 0.5)
        for _ in range(choose.randint(1, 4))
    ]

    def step(i, carry):
        a, b = carry
        for change, p, q, other in chosen:
            if other:
                b, a = change(i, b, a, p, q)
            else:
                a, b = change(i, a, b, p, q)
        return a, b

    return step


@pytest.mark.parametrize("seed", range(16))
def test_random_loop(seed):
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    step, size, steps = random_step(choose), choose.choice([6, 40]), choose.choice([1, 2, 3])
    x, y = (numbers.normal(size=(size, size)).astype(np.float32) for _ in range(2))

    def counted(x, y):
        return lax.fori_loop(0, steps, step, (x, y))

    def conditional(x, y):
        state = lax.while_loop(
            lambda s: s[0] < steps, lambda s: (s[0] + 1, *step(s[0], s[1:])), (jnp.int32(0), x, y)
        )
        return state[1:]

    def one_by_one(x, y):
        carry = (jnp.asarray(x), jnp.asarray(y))
        for i in range(steps):
            carry = step(jnp.int32(i), carry)
        return carry

    def loss(function):
        return lambda x, y: sum(jnp.sin(v).sum() for v in function(x, y))

    expected = one_by_one(x, y)
    for function in (counted, conditional):
        for mine, theirs in zip(rlx.jit(function)(x, y), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    if seed % 2 == 0:
        expected = rlx.grad(loss(one_by_one), (0, 1))(x, y)
        actual = rlx.jit(rlx.grad(loss(counted), (0, 1)))(x, y)
        for mine, theirs in zip(actual, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
