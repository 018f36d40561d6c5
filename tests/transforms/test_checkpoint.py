"""checkpoint: equal derivatives, values computed again instead of kept."""

from __future__ import annotations

import gc
import weakref
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


class _Counting:
    """A function of x that counts how often Python runs it."""

    def __init__(self) -> None:
        self.calls = 0

    def sine(self, x: Any, times: int = 1) -> Any:
        """As a method, which cannot be held weakly."""
        self.calls += 1
        return jnp.sin(x) * times


def test_is_traced_once_for_each_signature() -> None:
    """Eagerly and inside of every transform; another type, static value or structure is another signature."""
    counting = _Counting()
    f = rlx.checkpoint(counting.sine, static_argnums=(1,), static_argnames=("times",))
    x = jnp.asarray(reals(3))
    for _ in range(3):
        f(x)
        rlx.vmap(f)(jnp.stack([x, x]))
        rlx.grad(lambda x: f(x).sum())(x)
        rlx.jit(lambda x: f(x))(x)
    assert counting.calls == 1
    for _ in range(3):
        np.testing.assert_array_equal(f(x, 2), f(x) * 2)
        np.testing.assert_array_equal(f(x, times=3), f(x) * 3)
        f(x[:2])
    assert counting.calls == 4


def test_a_function_that_is_checkpointed_again_is_traced_once() -> None:
    traced: list[Any] = []

    def f(x: Any) -> Any:
        traced.append(x)
        return jnp.sin(x)

    for _ in range(3):
        rlx.checkpoint(f)(1.0)
    assert len(traced) == 1
    rlx.clear_caches()
    rlx.checkpoint(f)(1.0)
    assert len(traced) == 2


def test_what_is_traced_depends_on_switches_and_mapped_axes() -> None:
    f = rlx.checkpoint(lambda: jnp.ones(2))
    assert f().dtype == np.float32
    with rlx.enable_x64():
        assert f().dtype == np.float64
    total = rlx.checkpoint(lambda x: rlx.lax.psum(x, "i"))
    for size in (2, 3):
        found = rlx.vmap(total, axis_name="i")(jnp.ones(size))
        np.testing.assert_array_equal(found, np.full(size, size))


def test_functions_that_look_at_values_or_close_over_tracers_are_traced_again() -> None:
    looks = rlx.checkpoint(lambda x: jnp.sin(x) if x > 0 else -x)
    for x in (2.0, -2.0, 3.0):
        assert float(looks(x)) == pytest.approx(np.sin(x) if x > 0 else -x, rel=1e-6)
        assert float(rlx.grad(looks)(x)) == pytest.approx(np.cos(x) if x > 0 else -1, rel=1e-6)
    for w in (2.0, 3.0):
        found = rlx.grad(lambda w: rlx.checkpoint(lambda x: jnp.sin(x) * w)(1.0))(w)
        assert float(found) == pytest.approx(np.sin(1.0), rel=1e-6)


def test_static_values_without_a_hash_and_arguments_of_other_types() -> None:
    f = rlx.checkpoint(lambda x, scales: x * scales[0], static_argnums=(1,))
    assert [float(f(1.0, [s])) for s in (2.0, 3.0)] == [2.0, 3.0]
    typed = rlx.checkpoint(lambda x, n: x * n if isinstance(n, int) else x + n, static_argnums=(1,))
    assert [float(typed(2.0, n)) for n in (3, 3.0, 3)] == [6.0, 5.0, 6.0]


def test_what_was_traced_lives_as_long_as_the_function() -> None:
    def f(x: Any) -> Any:
        return jnp.sin(x)

    gone = weakref.ref(f)
    rlx.checkpoint(f)(1.0)
    del f
    gc.collect()
    assert gone() is None
