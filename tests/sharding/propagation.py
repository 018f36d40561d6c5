"""Programs of arrays that eight devices divide: how their results are divided, and what is said of exchanges.

Run with RLX_NUM_CPU_DEVICES=8, and with jax in place of rlx as its argument; it prints a spec for each program.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

LIBRARY: Any = importlib.import_module(sys.argv[1])
jnp: Any = importlib.import_module(f"{sys.argv[1]}.numpy")
P, NamedSharding = LIBRARY.sharding.PartitionSpec, LIBRARY.sharding.NamedSharding
MESH = LIBRARY.make_mesh((4, 2), ("a", "b"), axis_types=(LIBRARY.sharding.AxisType.Auto,) * 2)


def put(shape: tuple[int, ...], *spec: Any) -> Any:
    """Numbers of a shape, divided so."""
    return LIBRARY.device_put(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), NamedSharding(MESH, P(*spec)))


def constrained(x: Any) -> Any:
    return LIBRARY.lax.with_sharding_constraint(x * 2, NamedSharding(MESH, P(None, "b"))) + 1


x, y, w, f = put((16, 8), "a", "b"), put((16, 8), "a"), put((8, 6), "b"), put((8, 4), None, "b")
row, z = put((8,)), put((8, 16, 4), None, "a", "b")
PROGRAMS: dict[str, tuple[Callable[..., Any], ...]] = {
    "elementwise": (lambda x: 2 * x, x),
    "two operands": (lambda x, y: jnp.where(x > 0, x, y), x, y),
    "broadcasting": (lambda y, row: y + row, y, row),
    "transpose": (lambda x: x.T, x),
    "sum of rows": (lambda x: x.sum(0), x),
    "sum of all": (lambda x: x.sum(), x),
    "mean": (lambda x: x.mean(1, keepdims=True), x),
    "softmax": (LIBRARY.nn.softmax, y),
    "contracted": (lambda x, w: x @ w, x, w),
    "free": (lambda y, f: y @ f, y, f),
    "batched": (lambda z: jnp.einsum("bij,bkj->bik", z, z), z),
    "split": (lambda x: x.reshape(4, 4, 8), x),
    "merged": (lambda y: y.reshape(128), y),
    "slice": (lambda y: y[:, 2:6], y),
    "concatenate": (lambda y: jnp.concatenate([y, y], 1), y),
    "convert": (lambda x: x.astype("int32"), x),
    "reverse": (lambda y: y[:, ::-1], y),
    "pad": (lambda y: jnp.pad(y, ((0, 0), (1, 1))), y),
    "running sum": (lambda y: jnp.cumsum(y, 1), y),
    "position": (lambda y: y.argmax(1), y),
    "sort": (lambda y: jnp.sort(y, 1), y),
    "window": (lambda y: LIBRARY.lax.dynamic_slice(y, (0, 1), (16, 4)), y),
    "gradient": (lambda f, y: LIBRARY.grad(lambda f: ((y @ f) ** 2).sum())(f), f, y),
    "loop": (lambda y: LIBRARY.lax.scan(lambda c, r: (c + r, c), jnp.zeros(8), y)[0], y),
    "conflict": (lambda x, y: x + y, put((8, 8), "a"), put((8, 8), None, "a")),
    "constraint": (constrained, y),
    "closed over": (lambda row: row[:, None] + w, put((8,), "b")),
    "constraint in an inner jit": (lambda y: LIBRARY.jit(constrained)(y + 1) * 2, y),
    "inner jit": (lambda x: LIBRARY.jit(lambda x: x + 1)(x * 2), x),
    "whole": (lambda row: row * 2, row),
    "itself": (lambda x: x, x),
}

found = {name: str(LIBRARY.jit(function)(*args).sharding.spec) for name, (function, *args) in PROGRAMS.items()}
if LIBRARY.__name__ == "rlx":
    double = LIBRARY.jit(lambda x: 2 * x)
    plain = np.ones((16, 8), np.float32)
    for _ in range(3):  # by the same keys, quickly
        assert double(jnp.asarray(plain)).sharding.num_devices == 1
        assert double(x).sharding.spec == P("a", "b")
        assert double(y).sharding.spec == P("a")
        assert double({"x": y}["x"]).tolist() == (2 * np.asarray(y)).tolist()
    assert double.cache_info().misses == 3
    assert (2 * x).sharding.num_devices == 1  # eager operations do not follow
    assert LIBRARY.jit(lambda x: 2 * x, in_shardings=NamedSharding(MESH, P("b")))(plain).sharding.spec == P("b")
print(json.dumps(found))
