"""Divided models on meshes over two and four processes, against one process with as many devices.

Processes are threads. The number of devices is read when rlx is imported, so that test_divided.py starts this file with
RLX_NUM_CPU_DEVICES=4; it prints what went wrong with each case.
"""

from __future__ import annotations

import json
import traceback
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import parallel
from rlx.distributed import threads
from rlx.experimental.multihost_utils import process_allgather
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P

X, W = np.sin(np.arange(64.0)).reshape(8, 8), np.cos(np.arange(64.0)).reshape(8, 8)
COLUMNS, ROWS = P(None, "i"), P("i")


def tensor(x: Any, up: Any, down: Any) -> Any:
    return rlx.grad(lambda *a: jnp.sum(parallel.feed_forward(*a, "i") ** 2), (0, 1, 2))(x, up, down)


def ring(x: Any) -> Any:
    def loss(q: Any) -> Any:
        return jnp.sum(parallel.ring_attention(q, jnp.sin(q), jnp.cos(q), "i", is_causal=True) ** 2)

    return rlx.grad(loss)(x.reshape(-1, 2, 4)).reshape(x.shape)


def pipeline(w: Any, x: Any) -> Any:
    """By both schedules."""

    def run(kind: str) -> Any:
        stage, loss = lambda w, x: x + jnp.tanh(w.sum(0) * x), lambda _, y, t: jnp.mean((y - t) ** 2)
        value, (gradient, _) = parallel.pipeline(stage, loss, "i", schedule=kind)(w, (), x, jnp.cos(x))
        return value, gradient

    return run("gpipe"), run("1f1b")


def zero1(w: Any, x: Any) -> Any:
    rule, own = parallel.zero1(rlx.optim.adam(0.1), "i"), rlx.lax.pcast(w, "i", to="varying")
    return rule.update(rlx.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(own), rule.init(w), w)[0]


def experts(x: Any, scores: Any) -> Any:
    return parallel.mixture_of_experts(x, scores, jnp.tanh, "i", chosen=2, capacity=2)


CASES: dict[str, tuple[Any, ...]] = {
    "tensor": (tensor, (P(), COLUMNS, ROWS), (P(), COLUMNS, ROWS), (X, W, W)),
    "ring": (ring, (ROWS,), ROWS, (X,)),
    "pipeline": (pipeline, (ROWS, P()), ((P(), ROWS), (P(), ROWS)), (X, W)),
    "zero1": (zero1, (P(), ROWS), P(), (W[:, :3], X)),
    "experts": (experts, (ROWS, ROWS), ROWS, (X, W)),
}


def results(name: str, check_vma: bool) -> list[np.ndarray]:
    function, in_specs, out_specs, args = CASES[name]
    here = len(rlx.process_indices())
    devices = [d for rank in range(here) for d in rlx.local_devices(rank)[: 4 // here]]
    mesh = Mesh(np.array(devices), ("i",))
    placed = rlx.device_put([*args], [NamedSharding(mesh, spec) for spec in in_specs])
    mapped = rlx.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma)
    found = rlx.tree.leaves((rlx.jit(mapped) if check_vma else mapped)(*placed))
    return [np.asarray(x) if x.is_fully_addressable else process_allgather(x) for x in found]


def run(name: str) -> str:
    """What went wrong with a case, or nothing."""
    try:
        for check_vma in (False, True):
            (expected,) = threads.run(1, results, name, check_vma)
            for count in (2, 4):
                for found in threads.run(count, results, name, check_vma):
                    for a, b in zip(found, expected, strict=True):
                        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=f"{count} {check_vma}")
    except Exception:
        return traceback.format_exc()[-3000:]
    return ""


if __name__ == "__main__":
    print(json.dumps({name: run(name) for name in CASES}))
