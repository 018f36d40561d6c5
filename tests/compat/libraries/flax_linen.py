"""flax.linen: a network with scanned layers, dropout and batch norm, trained by TrainState; bytes and back."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import serialization, traverse_util
from flax.training import train_state


class Layer(nn.Module):
    features: int

    @nn.compact
    def __call__(self, carry: Any, _: Any) -> Any:
        y = nn.Dense(self.features)(nn.LayerNorm()(carry))
        return carry + nn.gelu(y), None


class Network(nn.Module):
    features: int = 8

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        x = nn.Conv(self.features, (3, 3), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.max_pool(nn.relu(x), (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1, self.features)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(x, x)
        stack = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = stack(self.features)(x, None)
        x = nn.Dropout(0.1, deterministic=not train)(x.mean(1))
        return nn.Dense(3)(x)


class State(train_state.TrainState):
    batch_stats: Any


def run() -> Any:
    images = jax.random.normal(jax.random.key(0), (6, 4, 4, 1))
    labels = jnp.arange(6) % 3
    network = Network()
    variables = network.init(jax.random.key(1), images, train=False)
    state = State.create(
        apply_fn=network.apply, params=variables["params"], batch_stats=variables["batch_stats"], tx=optax.adam(3e-3)
    )

    @jax.jit
    def step(state: State, key: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, updates = state.apply_fn(
                {"params": params, "batch_stats": state.batch_stats}, images, train=True,
                rngs={"dropout": key}, mutable=["batch_stats"],
            )  # fmt: skip
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updates

        (value, updates), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads).replace(batch_stats=updates["batch_stats"]), value

    values = []
    for n in range(15):
        state, value = step(state, jax.random.fold_in(jax.random.key(2), n))
        values.append(value)
    data = serialization.to_bytes(state.params)
    again = serialization.from_bytes(variables["params"], data)
    logits = network.apply({"params": again, "batch_stats": state.batch_stats}, images, train=False)
    shapes = {"/".join(k): v.shape for k, v in traverse_util.flatten_dict(again).items()}

    cell = nn.RNN(nn.LSTMCell(4))
    sequence = jax.random.normal(jax.random.key(3), (2, 5, 3))
    outputs, _ = cell.init_with_output(jax.random.key(4), sequence)
    remat = nn.remat(nn.Dense)(4)
    kept = remat.init(jax.random.key(5), sequence)
    slope = jax.grad(lambda p: jnp.sum(remat.apply(p, sequence) ** 2))(kept)
    batched = nn.vmap(nn.Dense, in_axes=0, variable_axes={"params": 0}, split_rngs={"params": True})(2)
    several, _ = batched.init_with_output(jax.random.key(6), sequence)
    assert "Dense_0" in network.tabulate(jax.random.key(0), images, train=False)
    return {
        "values": jnp.stack(values), "logits": logits, "shapes": [list(map(int, shapes[k])) for k in sorted(shapes)],
        "sequence": outputs, "slope": slope, "several": several,
    }  # fmt: skip
