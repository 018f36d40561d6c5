"""checkpoint: equal derivatives, values computed again instead of kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from points import reals
from programs import primitives_of
from twins import Build, assert_twins

import rlx
import rlx.numpy as jnp
from rlx import checkpoint_policies as policies


def _in_a_scan(library: Any) -> Any:
    step = library.checkpoint(lambda c, y: (library.numpy.sin(c * y), c))
    return library.grad(lambda x: library.lax.scan(step, x[0], x)[1].sum())


def _with_a_policy(library: Any) -> Any:
    policy = library.checkpoint_policies.dots_saveable
    block = library.checkpoint(lambda w, x: library.numpy.sin(w @ x) @ x, policy=policy)
    return library.grad(lambda x: block(x[:, None] * x, x))


def _with_a_static_argument(library: Any) -> Any:
    power = library.checkpoint(lambda x, n: library.numpy.sum(x**n), static_argnums=(1,))
    return library.grad(lambda x: power(x, 3))


def _nested(library: Any) -> Any:
    inner = library.checkpoint(library.numpy.sin)
    return library.hessian(library.checkpoint(lambda x: library.numpy.sum(inner(library.numpy.sin(x)))))


def _closing_over_a_tracer(library: Any) -> Any:
    return library.grad(lambda x: library.checkpoint(lambda y: library.numpy.sum(library.numpy.sin(y) * x))(x * 2))


BUILDS = [_in_a_scan, _with_a_policy, _with_a_static_argument, _nested, _closing_over_a_tracer]


@pytest.mark.parametrize("build", BUILDS)
def test_equals_jax(build: Build) -> None:
    """Eagerly and jitted."""
    assert_twins(build, reals(3))


def _block(x: Any) -> Any:
    return jnp.sum(jnp.exp(jnp.tanh(x @ x) * x))


def test_values_are_computed_again() -> None:
    """exp and tanh appear once more in the backward pass, and the product too unless it is kept."""
    x = reals(3, 3)

    def counts(**options: Any) -> list[int]:
        names = primitives_of(rlx.grad(rlx.checkpoint(_block, **options)), x)
        return [names.count(n) for n in ("tanh", "exp")]

    plain = primitives_of(rlx.grad(_block), x)
    assert [plain.count(n) for n in ("tanh", "exp")] == [1, 1]
    assert counts() == [2, 2]
    assert counts(policy=policies.nothing_saveable) == [2, 2]
    assert counts(policy=policies.everything_saveable) == [1, 1]


def test_a_policy_keeps_products() -> None:
    """With dots_saveable the product of the forward pass is not repeated."""
    x = reals(3, 3)

    def products(policy: Any) -> int:
        return primitives_of(rlx.grad(rlx.checkpoint(_block, policy=policy)), x).count("dot_general")

    assert products(policies.nothing_saveable) == products(policies.dots_saveable) + 1
    assert products(policies.dots_with_no_batch_dims_saveable) == products(policies.dots_saveable)


def test_a_policy_of_ones_own() -> None:
    """A function of (primitive, *types, **params)."""
    asked: set[str] = set()

    def policy(primitive: Any, *types: Any, **params: Any) -> bool:
        asked.add(primitive.name)
        return primitive.name == "tanh"

    names = primitives_of(rlx.grad(rlx.checkpoint(_block, policy=policy)), reals(3, 3))
    assert names.count("tanh") == 1 and names.count("exp") == 2
    assert {"tanh", "exp", "dot_general"} <= asked


def test_jitted_values_survive_the_compiler() -> None:
    """The repeated work is behind a barrier: the compiled program computes it twice and agrees."""
    x = reals(3, 3)
    function = rlx.grad(rlx.checkpoint(_block))
    np.testing.assert_allclose(rlx.jit(function)(x), rlx.grad(_block)(x), rtol=1e-13)
    assert "optimization_barrier" in primitives_of(function, x)
