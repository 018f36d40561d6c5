"""flax.nnx: modules that hold their state, trained with nnx.Optimizer; split and merge, lifted transforms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(3, 16, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(16, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.dropout(nnx.relu(self.norm(self.first(x))))
        return self.second(x)


def run() -> Any:
    x = jax.random.normal(jax.random.key(0), (12, 3))
    y = jnp.stack([x.sum(1), x[:, 0] * x[:, 1]], -1)
    model = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))

    @nnx.jit
    def step(model: Any, optimizer: Any, metrics: Any) -> Any:
        value, grads = nnx.value_and_grad(lambda m: ((m(x) - y) ** 2).mean())(model)
        optimizer.update(model, grads)
        metrics.update(loss=value)
        return value

    values = [step(model, optimizer, metrics) for _ in range(20)]
    mean = metrics.compute()["loss"]
    model.eval()
    graph, state = nnx.split(model)
    again = nnx.merge(graph, jax.tree.map(lambda a: a, state))
    outputs = again(x)

    @nnx.vmap(in_axes=(0, None), out_axes=0)
    def ensemble(key: Any, x: Any) -> Any:
        return nnx.Linear(3, 2, rngs=nnx.Rngs(key))(x)

    @nnx.split_rngs(splits=3)
    @nnx.vmap(in_axes=0, out_axes=0)
    def stacked(rngs: Any) -> Any:
        return nnx.Linear(3, 3, rngs=rngs)

    layers = stacked(nnx.Rngs(1))

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def forward(x: Any, layer: Any) -> Any:
        return nnx.tanh(layer(x))

    cell = nnx.RNN(nnx.GRUCell(3, 4, rngs=nnx.Rngs(3)))
    return {
        "values": jnp.stack(values), "mean": mean, "outputs": outputs,
        "ensemble": ensemble(jax.random.split(jax.random.key(2), 4), x), "scanned": forward(x, layers),
        "cell": cell(x[None]), "statistics": nnx.state(model, nnx.BatchStat).to_pure_dict(),
    }  # fmt: skip
