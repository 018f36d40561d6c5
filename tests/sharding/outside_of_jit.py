"""Operations outside of jit on arrays that two and four processes divide, against one process with as many devices.

Processes are threads; start it with RLX_NUM_CPU_DEVICES=4, as partitioned.py. It prints what went wrong with each.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.distributed import threads
from rlx.sharding import NamedSharding
from rlx.sharding import PartitionSpec as P
from tests.sharding.partitioned import gathered
from tests.sharding.spanning import X, alone, device_mesh

ADAM = rlx.optim.adam(0.1)
CASES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "elementwise": {
        "numbers": lambda x: (x + 1, 1 - x, -x, x > 0, abs(x), x**2),
        "arrays": lambda x: (x * x.T, np.ones((8, 8)) + x, jnp.where(x > 0, x, 0.0)),
        "functions": lambda x: (jnp.tanh(x), x.clip(0, 1), x.round(1), rlx.nn.softmax(x)),
        "converted": lambda x: (x.astype("float32"), x.copy(), lax.bitcast_convert_type(x, "int64")),
    },
    "shapes": {
        "moved": lambda x: (x.T, x.reshape(4, 2, 8), x[None], x[::-1], jnp.concatenate([x, x], 1), jnp.stack([x, x])),
        "taken": lambda x: (x[0], x[:, 0], x[2:6], jnp.take(x, jnp.array([3, 1]), 0), list(x)[5]),
        "written": lambda x: (x.at[3].set(1.0), x.at[:, 3].add(1.0)),
    },
    "combined": {
        "reduced": lambda x: (x.sum(), x.sum(1), jnp.mean(x, 0), x.max(), jnp.std(x), x.argmax(0), jnp.linalg.norm(x)),
        "numbers of Python": lambda x: (jnp.asarray(float(x.sum())), jnp.asarray(bool((x > 0).any()))),
        "products": lambda x: (x @ x, jnp.einsum("ij,kj->ik", x, x), jnp.dot(x, x[0])),
        "in order": lambda x: (jnp.sort(x, 0), jnp.cumsum(x, 1)),
    },
    "like another": {
        "filled": lambda x: (jnp.zeros_like(x), jnp.full_like(x, 3, dtype="int32"), lax.full_like(x, 2.0)),
        "jitted": lambda x: rlx.jit(lambda x: (jnp.ones_like(x), jnp.empty_like(2 * x) + 1, lax.full_like(x, 1)))(x),
        "of an array": lambda x: jnp.full_like(x, np.arange(8.0)),
        "of another shape": lambda x: jnp.zeros_like(x, shape=(3,)),
        "described": lambda x: jnp.zeros_like(rlx.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)),
        "states": lambda x: (
            ADAM.init(x)[0].mu,
            rlx.jit(ADAM.init)({"w": x})[0].nu,
            ADAM.update(x, ADAM.init(x), x)[0],
        ),
    },
    "functions": {
        "vmap": lambda x: rlx.vmap(lambda row: jnp.sin(row) * 2)(x),
        "grad": rlx.grad(lambda x: (jnp.sin(x) ** 2).sum()),
        "jvp": lambda x: rlx.jvp(lambda x: x**3, (x,), (x,)),
        "scan": lambda x: lax.scan(lambda c, row: (c + row, c), np.zeros(8), x),
        "of a loop": lambda x: rlx.vmap(lambda row: lax.scan(lambda c, v: (c + v, None), 0.0, row)[0])(x).sum(),
        "solve": lambda x: jnp.linalg.solve(x @ x.T + 9 * np.eye(8), x),
        "cond": lambda x: lax.cond(x.sum() > 0, lambda x: x, lambda x: x.T, x),
        "while": lambda x: lax.while_loop(lambda c: (c**2).sum() < 100, lambda c: c * 2, x),
        "for": lambda x: lax.fori_loop(0, 3, lambda _, c: c + x, np.zeros((8, 8))),
    },
    "placed": {
        "whole": lambda x: rlx.device_put(x, NamedSharding(x.sharding.mesh, P())) + 1,
        "by columns": lambda x: rlx.device_put(x, NamedSharding(x.sharding.mesh, P(None, "i"))),
    },
}


def results(cases: dict[str, Callable[[Any], Any]], axes: dict[str, int], spec: Any) -> list[tuple[str, Any, Any]]:
    """For each result the case, how it is divided, and its values."""
    x = rlx.device_put(X, NamedSharding(device_mesh(axes, False), spec))
    found = [(name, leaf) for name, case in cases.items() for leaf in rlx.tree.leaves(case(x))]
    return [(name, getattr(leaf.sharding, "spec", P()), gathered(leaf)) for name, leaf in found]


def run(name: str) -> str:
    """What went wrong with a family of cases, or nothing."""
    try:
        for axes, spec in (({"i": 4}, P("i")), ({"i": 2, "j": 2}, P("i", "j"))):
            expected = alone(results, CASES[name], axes, spec)
            for count in (2, 4):
                for found in threads.run(count, results, CASES[name], axes, spec):
                    for (case, wanted, a), (_, lies, b) in zip(expected, found, strict=True):
                        assert lies == wanted, (case, count, lies, wanted)
                        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12, err_msg=f"{case} {count}")
    except Exception:
        return traceback.format_exc()[-3000:]
    return ""


if __name__ == "__main__":
    print(json.dumps({name: run(name) for name in sys.argv[1:] or CASES}))
