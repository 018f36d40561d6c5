"""The optimizers against jax's: equal parameters after some steps; trees, schedules, states that are saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.example_libraries import optimizers as jax_optimizers

import rlx
from rlx.example_libraries import optimizers

PARAMS = {"w": np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3), "b": [np.float32([0.5, -0.2]), np.float32(1.5)]}

MAKERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda o: o.sgd(0.1),
    "momentum": lambda o: o.momentum(0.1, 0.9),
    "nesterov": lambda o: o.nesterov(o.exponential_decay(0.1, 3, 0.5), mass=0.9),
    "adagrad": lambda o: o.adagrad(0.1),
    "rmsprop": lambda o: o.rmsprop(o.polynomial_decay(0.1, 4, 0.01, power=2.0)),
    "rmsprop_momentum": lambda o: o.rmsprop_momentum(0.1),
    "adam": lambda o: o.adam(o.inverse_time_decay(0.1, 3, 2.0, staircase=True)),
    "adamax": lambda o: o.adamax(o.inverse_time_decay(0.1, 3, 2.0)),
    "sm3": lambda o: o.sm3(o.piecewise_constant([1, 3], [0.3, 0.2, 0.1])),
}


def gradients(step: int) -> Any:
    return rlx.tree.map(lambda x: np.sin(3 * x + step).astype("f4"), PARAMS)


def trained(optimizer: Any, params: Any, wrap: Callable[[Any], Any] = lambda f: f) -> Any:
    init_fun, update_fun, get_params = optimizer
    state, update = init_fun(params), wrap(update_fun)
    for step in range(6):
        state = update(step, gradients(step), state)
    return rlx.tree.leaves(wrap(get_params)(state))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.selected(1)
def test_an_optimizer_agrees_with_jax(name: str) -> None:
    with jax.enable_x64(False):
        wanted = trained(MAKERS[name](jax_optimizers), rlx.tree.map(jnp.asarray, PARAMS))
    for wrap in (lambda f: f, rlx.jit):
        found = trained(MAKERS[name](optimizers), PARAMS, wrap)
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype == np.float32 and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_state_of_scan_and_of_saving() -> None:
    init_fun, update_fun, get_params = optimizers.adam(0.1)
    state = init_fun(PARAMS)
    final, _ = rlx.lax.scan(lambda s, i: (update_fun(i, get_params(s), s), None), state, np.arange(3))
    packed = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(final))
    assert isinstance(packed, optimizers.OptimizerState) and packed.tree_def == final.tree_def
    for a, b in zip(rlx.tree.leaves(packed), rlx.tree.leaves(final), strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradients_are_clipped_together() -> None:
    tree = [np.ones(2), (np.ones(3), np.ones(4))]
    assert float(optimizers.l2_norm(tree)) == 3.0
    clipped = optimizers.clip_grads(tree, 1.5)
    np.testing.assert_allclose(optimizers.l2_norm(clipped), 1.5)
    np.testing.assert_array_equal(optimizers.clip_grads(tree, 3.5)[0], tree[0])


def test_what_does_not_fit_is_refused() -> None:
    init_fun, update_fun, _ = optimizers.sgd(0.1)
    with pytest.raises(TypeError, match="gradients of structure"):
        update_fun(0, {"w": 1.0}, init_fun({"v": 1.0}))
    grows = optimizers.optimizer(lambda: (lambda x: x, lambda i, g, x: (x, g), lambda x: x))
    init_fun, update_fun, _ = grows()
    with pytest.raises(TypeError, match="returned one of"):
        update_fun(0, 1.0, init_fun(1.0))
    with pytest.raises(ValueError, match="one value more"):
        optimizers.piecewise_constant([1, 2], [1.0, 2.0])
    with pytest.raises(TypeError, match=r"shape \(2,\)"):
        optimizers.make_schedule(np.ones(2))
    with pytest.raises(TypeError, match="JoinPoint"):
        optimizers.pack_optimizer_state([1.0])
