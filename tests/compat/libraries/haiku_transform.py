"""dm-haiku: transformed functions with parameters and state, layers, recurrence and lifted control flow."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import optax


def run() -> Any:
    images = jax.random.normal(jax.random.PRNGKey(0), (6, 4, 4, 1))
    labels = jnp.arange(6) % 3

    def network(x: Any, train: bool) -> Any:
        x = hk.Conv2D(4, 3, with_bias=False)(x)
        x = hk.BatchNorm(True, True, 0.9)(x, is_training=train)
        x = hk.Flatten()(jax.nn.relu(x))
        if train:
            x = hk.dropout(hk.next_rng_key(), 0.1, x)
        x = hk.LayerNorm(-1, True, True)(x)
        return hk.nets.MLP([8, 3])(x)

    model = hk.transform_with_state(network)
    params, state = model.init(jax.random.PRNGKey(1), images, True)
    optimizer = optax.adam(3e-3)
    moments = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, moments: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, new = model.apply(params, state, key, images, True)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, moments = optimizer.update(grads, moments)
        return optax.apply_updates(params, updates), new, moments, value

    values = []
    for key in jax.random.split(jax.random.PRNGKey(2), 12):
        params, state, moments, value = step(params, state, moments, key)
        values.append(value)
    logits, _ = model.apply(params, state, None, images, False)

    @hk.without_apply_rng
    @hk.transform
    def recurrent(sequence: Any) -> Any:
        core = hk.LSTM(4)
        outputs, _ = hk.dynamic_unroll(core, sequence, core.initial_state(2))
        attended = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling())(outputs, outputs, outputs)
        last = hk.Linear(8)
        return hk.scan(lambda c, x: (c + last(x), None), last(attended[0]), attended)[0]

    sequence = jax.random.normal(jax.random.PRNGKey(3), (5, 2, 3))
    weights = recurrent.init(jax.random.PRNGKey(4), sequence)
    slope = jax.grad(lambda w: jnp.sum(recurrent.apply(w, sequence) ** 2))(weights)
    split, rest = hk.data_structures.partition(lambda m, n, v: n == "w", params)
    return {
        "values": jnp.stack(values), "logits": logits, "recurrent": recurrent.apply(weights, sequence), "slope": slope,
        "sizes": [hk.data_structures.tree_size(split), hk.data_structures.tree_size(rest)],
    }  # fmt: skip
