"""optax: optimizers, schedules, losses with padding and second-order helpers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax


def run() -> Any:
    x = jnp.linspace(-1, 1, 24).reshape(8, 3)
    y = jnp.sin(x.sum(1)) + x[:, 0] ** 2 + 0.7
    start = {"w": jnp.zeros(3), "b": jnp.zeros(())}

    def loss(params: Any) -> jax.Array:
        return optax.l2_loss(x @ params["w"] + params["b"], y).mean()

    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 40)
    optimizers = {
        "adam": optax.adam(schedule),
        "adafactor": optax.adafactor(0.05),
        "lamb": optax.lamb(0.05),
        "muon": optax.contrib.muon(0.05) if hasattr(optax.contrib, "muon") else optax.adam(0.05),
        "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.3, momentum=0.9, nesterov=True)),
        "masked": optax.multi_transform({"a": optax.adam(0.1), "z": optax.set_to_zero()}, {"w": "a", "b": "z"}),
        "accumulated": optax.MultiSteps(optax.rmsprop(0.05), every_k_schedule=2),
        "injected": optax.inject_hyperparams(optax.adamw)(learning_rate=0.05),
        "schedule_free": optax.contrib.schedule_free_sgd(0.3),
    }
    found = {}
    for name, optimizer in optimizers.items():

        @jax.jit
        def step(params: Any, state: Any, optimizer: Any = optimizer) -> Any:
            value, grads = jax.value_and_grad(loss)(params)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        params, state = start, optimizer.init(start)
        for _ in range(30):
            params, state, value = step(params, state)
        found[name] = (params, value)

    solver = optax.lbfgs()
    params, state = start, solver.init(start)
    value_and_grad = optax.value_and_grad_from_state(loss)
    for _ in range(8):
        value, grad = value_and_grad(params, state=state)
        updates, state = solver.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        params = optax.apply_updates(params, updates)
    found["lbfgs"] = (params, loss(params))

    # float64 of NumPy, narrowed at the border
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(2, 6, 4)), rng.integers(1, 4, size=(2, 3))
    ctc = jax.value_and_grad(lambda z: optax.ctc_loss(z, np.zeros((2, 6)), labels, np.zeros((2, 3))).sum())
    found["ctc"] = ctc(logits.astype(np.float32))
    found["ctc wide"] = optax.ctc_loss(logits, np.zeros((2, 6)), labels, np.zeros((2, 3)))
    found["schedule"] = jnp.stack([schedule(n) for n in range(0, 45, 5)])
    found["projection"] = optax.projections.projection_simplex(jnp.array([0.2, 3.0, -1.0]))
    return found
