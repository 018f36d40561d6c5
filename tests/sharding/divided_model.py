"""A training step of a GPT whose parameters and moments four processes divide, by jit: its bytes, and its results.

Processes are threads with one device each. It prints what went wrong with each way.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx.distributed import threads
from rlx.sharding import Mesh, NamedSharding
from rlx.sharding import PartitionSpec as P
from tests.sharding.exchanged import recorded
from tests.sharding.partitioned import gathered

COUNT, WIDTH, LAYERS, HEADS, WORDS = 4, 64, 3, 4, 64
ADAM = rlx.optim.adam(1e-2)
MOST = {"kept": 1.6, "recomputed": 2.4}  # bytes that a process sends, in units of the parameters'


def drawn(seed: int, *shape: int) -> np.ndarray:
    return (np.random.RandomState(seed).randn(*shape) * 0.05).astype(np.float32)


PARAMETERS = {
    "embed": drawn(0, WORDS, WIDTH),
    "qkv": drawn(1, LAYERS, WIDTH, 3 * WIDTH),
    "out": drawn(2, LAYERS, WIDTH, WIDTH),
    "up": drawn(3, LAYERS, WIDTH, 4 * WIDTH),
    "down": drawn(4, LAYERS, 4 * WIDTH, WIDTH),
    "head": drawn(5, WIDTH, WORDS),
}
TOKENS = np.random.RandomState(6).randint(0, WORDS, (8, 17))


def layer(h: Any, w: dict[str, Any]) -> tuple[Any, None]:
    parts = jnp.split(rlx.nn.standardize(h, axis=-1) @ w["qkv"], 3, -1)
    query, key, value = (x.reshape(*x.shape[:2], HEADS, -1) for x in parts)
    h = h + rlx.nn.dot_product_attention(query, key, value, is_causal=True).reshape(h.shape) @ w["out"]
    return h + rlx.nn.gelu(rlx.nn.standardize(h, axis=-1) @ w["up"]) @ w["down"], None


def loss(p: dict[str, Any], tokens: Any, way: str) -> Any:
    run = rlx.checkpoint(layer) if way == "recomputed" else layer
    h, _ = rlx.lax.scan(run, p["embed"][tokens[:, :-1]], {k: p[k] for k in ("qkv", "out", "up", "down")})
    return -jnp.take_along_axis(rlx.nn.log_softmax(h @ p["head"]), tokens[:, 1:, None], -1).mean()


def step(p: Any, state: Any, tokens: Any, way: str) -> Any:
    value, gradient = rlx.value_and_grad(loss)(p, tokens, way)
    updates, state = ADAM.update(gradient, state, p)
    return rlx.tree.map(jnp.add, p, updates), state, value


def trained(way: str) -> list[np.ndarray]:
    """The parameters and the loss after a step of this process's parts."""
    mesh = Mesh(np.array([rlx.local_devices(rank)[0] for rank in rlx.process_indices()]), ("d",))
    places = {k: NamedSharding(mesh, P("d") if v.ndim == 2 else P(None, "d")) for k, v in PARAMETERS.items()}
    p = rlx.device_put(PARAMETERS, places)
    tokens = rlx.device_put(TOKENS, NamedSharding(mesh, P("d")))
    p, state, value = rlx.jit(step, static_argnums=3)(p, ADAM.init(p), tokens, way)
    for tree in (p, state[0].mu, state[0].nu):
        for k, x in tree.items():
            assert x.sharding == places[k]
            assert x.addressable_shards[0].data.size * COUNT == x.size
    return [*rlx.tree.leaves(p), value]


def run(way: str) -> str:
    """What went wrong with a way, or nothing."""
    try:
        expected = rlx.tree.leaves(rlx.jit(step, static_argnums=3)(PARAMETERS, ADAM.init(PARAMETERS), TOKENS, way))
        with recorded() as record:
            threads.run(COUNT, trained, way)
        sent = record.nbytes / COUNT / sum(v.nbytes for v in PARAMETERS.values())
        assert sent <= MOST[way], f"{sent} times the bytes of the parameters are sent: {record.kinds}"
        (found, *_) = threads.run(COUNT, lambda: list(map(gathered, trained(way))))
        wanted = [*expected[: len(PARAMETERS)], expected[-1]]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    except Exception:
        return traceback.format_exc()[-3000:]
    return ""


if __name__ == "__main__":
    print(json.dumps({way: run(way) for way in sys.argv[1:] or MOST}))
