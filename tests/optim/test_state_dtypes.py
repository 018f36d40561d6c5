"""The types of an optimiser's state do not change: it is the carry of a scan, and jit would trace again."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax, optim

DTYPES = [np.dtype(d) for d in (ml_dtypes.bfloat16, np.float16, np.float32, np.float64)]
OPTIMIZERS = {
    "adagrad": optim.adagrad(0.1),
    "adam": optim.adam(0.1),
    "adam with nesterov": optim.adam(0.1, nesterov=True),
    "adam with mu_dtype": optim.adam(0.1, mu_dtype=np.float32),
    "adamw": optim.adamw(0.1),
    "lion": optim.lion(0.1),
    "nadam": optim.nadam(0.1),
    "rmsprop": optim.rmsprop(0.1),
    "rmsprop with momentum": optim.rmsprop(0.1, momentum=0.9),
    "sgd": optim.sgd(0.1),
    "sgd with momentum": optim.sgd(0.1, momentum=0.9),
    "sgd with nesterov": optim.sgd(0.1, momentum=0.9, nesterov=True),
    "schedule": optim.sgd(optim.linear_schedule(0.1, 0.01, 10)),
    "clip": optim.chain(optim.clip_by_global_norm(1.0), optim.clip(0.5), optim.adam(0.1)),
    "masked": optim.chain(optim.masked(optim.scale_by_adam(), {"w": True, "b": False}), optim.scale(-0.1)),
    "add_decayed_weights": optim.chain(optim.add_decayed_weights(0.1), optim.scale(-0.1)),
}


def types(values: Any) -> list[Any]:
    return [(jnp.asarray(x).dtype, jnp.shape(x)) for x in rlx.tree.leaves(values)]


def test_every_optimizer_is_here() -> None:
    made = {name for name in optim.optimizers.__all__ if not name.startswith("_")}
    assert made <= {name.partition(" ")[0] for name in OPTIMIZERS}


@pytest.mark.selected("all")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_types_of_states_and_updates(name: str) -> None:
    optimizer = OPTIMIZERS[name]
    for own, given in itertools.product(DTYPES, DTYPES):
        with rlx.enable_x64(True):
            params = {"w": jnp.ones(3, own), "b": jnp.zeros((), own)}
            grads = {"w": jnp.full(3, 0.5, given), "b": jnp.ones((), given)}
            state = optimizer.init(params)
            updates, after = optimizer.update(grads, state, params)
            assert types(after) == types(state), (own, given)
            _, twice = optimizer.update(grads, after, params)
            assert types(twice) == types(state), (own, given)
            assert types(optim.apply_updates(params, updates)) == types(params), (own, given)


def test_a_state_is_the_carry_of_a_scan() -> None:
    """Of narrow parameters with wide gradients."""
    params = jnp.ones(3, jnp.bfloat16)
    for optimizer in (optim.adam(0.1), optim.sgd(0.1, momentum=0.9), optim.rmsprop(0.1), optim.lion(0.1)):

        def step(carry: Any, _: Any, optimizer: Any = optimizer) -> Any:
            params, state = carry
            updates, state = optimizer.update(params.astype(np.float32), state, params)
            return (optim.apply_updates(params, updates), state), None

        first = params, optimizer.init(params)
        assert types(lax.scan(step, first, None, 3)[0]) == types(first)
