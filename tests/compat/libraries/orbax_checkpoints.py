"""orbax: trees of arrays and numbers saved and restored, and a manager of steps."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp


def run() -> Any:
    folder = Path(tempfile.mkdtemp()).resolve()
    params = {"w": jax.random.normal(jax.random.PRNGKey(0), (3, 4)), "b": jnp.zeros(4, jnp.bfloat16)}
    state = {"params": params, "moments": optax.adam(1e-3).init(params), "step": 3, "data": np.arange(5)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "one", state)
        checkpointer.wait_until_finished()
        whole = checkpointer.restore(folder / "one", jax.tree.map(ocp.utils.to_shape_dtype_struct, state))
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(folder / "steps", options=options) as manager:
        for step in range(3):
            manager.save(step, args=ocp.args.StandardSave({"x": jnp.full(3, float(step))}))
        manager.wait_until_finished()
        latest = manager.latest_step()
        steps = manager.all_steps()
        last = manager.restore(latest, args=ocp.args.StandardRestore({"x": jnp.zeros(3)}))
    assert isinstance(whole["params"]["w"], jax.Array)
    numbers = jax.tree.map(lambda x: np.asarray(x).astype(np.float32), whole)
    return {
        "whole": numbers, "latest": latest, "steps": list(steps),
        "last": last,
    }  # fmt: skip
