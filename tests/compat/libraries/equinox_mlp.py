"""equinox: a classifier with convolution, attention and normalisation layers; state, filtered transforms, files."""

from __future__ import annotations

import io
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Network(eqx.Module):
    convolution: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    attention: eqx.nn.MultiheadAttention
    head: eqx.nn.MLP
    scale: jax.Array
    name: str = eqx.field(static=True)

    def __init__(self, key: jax.Array) -> None:
        first, second, third = jax.random.split(key, 3)
        self.convolution = eqx.nn.Conv2d(1, 4, 3, padding=1, key=first)
        self.norm = eqx.nn.BatchNorm(4, "batch", mode="batch")
        self.attention = eqx.nn.MultiheadAttention(2, 4, key=second)
        self.head = eqx.nn.MLP(4, 3, 8, 2, activation=jax.nn.gelu, key=third)
        self.scale = jnp.ones(())
        self.name = "network"

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        x = jax.nn.relu(self.convolution(x))
        x, state = self.norm(x, state)
        tokens = x.reshape(4, -1).T
        x = self.attention(tokens, tokens, tokens).mean(0)
        return self.head(x) * self.scale, state


def run() -> Any:
    key = jax.random.PRNGKey(0)
    images = jax.random.normal(key, (12, 1, 4, 4))
    labels = jnp.arange(12) % 3
    model, state = eqx.nn.make_with_state(Network)(jax.random.PRNGKey(1))
    optimizer = optax.adamw(3e-3)
    moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    def loss(model: Network, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        logits, state = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(images, state)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), state

    @eqx.filter_jit
    def step(model: Network, state: eqx.nn.State, moments: Any) -> Any:
        (value, state), grads = eqx.filter_value_and_grad(loss, has_aux=True)(model, state)
        updates, moments = optimizer.update(grads, moments, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, moments, value

    values = []
    for _ in range(20):
        model, state, moments, value = step(model, state, moments)
        values.append(value)

    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, model)
    file.seek(0)
    again = eqx.tree_deserialise_leaves(file, eqx.nn.make_with_state(Network)(jax.random.PRNGKey(2))[0])
    inference = eqx.nn.inference_mode(again)
    logits, _ = jax.vmap(inference, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(images, state)

    @eqx.filter_jit
    def checked(x: jax.Array) -> jax.Array:
        return eqx.error_if(x, jnp.any(x < 0), "negative")

    try:
        checked(jnp.array(-1.0)).block_until_ready()
        raised = False
    except Exception as error:  # JAX and rlx have classes of their own for it
        raised = "negative" in str(error)
    doubled, moved = eqx.filter_jvp(lambda x, y: x * y, (jnp.array(2.0), jnp.array(3.0)), (jnp.array(1.0), None))

    def body(carry: Any) -> Any:
        n, x = carry
        return n + 1, jnp.sin(x) + 0.1

    def rolled(x: jax.Array) -> jax.Array:
        loop = eqx.internal.while_loop(
            lambda c: c[0] < 6, body, (0, x), max_steps=8, kind="checkpointed", checkpoints=3
        )
        return loop[1]

    jacobian = eqx.filter_jacfwd(lambda x: jnp.sin(x) * x[0])(jnp.array([1.0, 2.0]))
    ensemble = eqx.filter_vmap(lambda k: eqx.nn.Linear(2, 2, key=k))(jax.random.split(key, 3))
    answers = eqx.filter_vmap(lambda linear: linear(jnp.ones(2)))(ensemble)
    assert raised
    return {
        "values": jnp.stack(values), "logits": logits, "jvp": (doubled, moved), "jacobian": jacobian,
        "rolled": jax.value_and_grad(rolled)(jnp.array(0.3)), "answers": answers,
    }  # fmt: skip
