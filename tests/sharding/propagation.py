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
columns, images = put((16, 8), None, "b"), put((8, 2, 6, 6), "a")
index = LIBRARY.device_put(np.arange(16) % 8, NamedSharding(MESH, P("a")))
x0 = np.ones((16, 8), np.float32)
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
    "loop over undivided rows": (lambda y: LIBRARY.lax.scan(lambda c, r: (c + r, 2 * r), jnp.zeros(8), y), columns),
    "carry that becomes divided": (lambda y: LIBRARY.lax.scan(lambda c, _: (c + y, c.sum(0)), 0 * x0, None, 3), y),
    "carry that is divided": (lambda y: LIBRARY.lax.scan(lambda c, r: (c * 2, c.sum()), y, None, 4), y),
    "two carries": (
        lambda y: LIBRARY.lax.scan(lambda c, _: ((c[1], c[0] + 1), ()), (y, 0 * x0), None, 4)[0],
        y,
    ),
    "reverse of a loop": (
        lambda w, y: LIBRARY.grad(lambda w: LIBRARY.lax.scan(lambda c, v: (jnp.tanh(c @ v), ()), y, w)[0].sum())(w),
        put((3, 8, 8)),
        y,
    ),
    "while": (lambda y: LIBRARY.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * 2, c[1] + 1), (y, 0)), y),
    "while of sums": (lambda y: LIBRARY.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, y), y),
    "loop of a count": (lambda y: LIBRARY.lax.fori_loop(0, 3, lambda i, c: c + y[:, :], 0 * x0), y),
    "branches": (lambda y, k: LIBRARY.lax.cond(k > 0, lambda y: y * 2, lambda y: y + 1, y), y, put(())),
    "a branch that is whole": (lambda y, k: LIBRARY.lax.cond(k > 0, lambda y: y * 2, lambda y: 0 * x0, y), y, put(())),
    "switch": (lambda y, k: LIBRARY.lax.switch(k.astype(int), [jnp.sin, jnp.cos, jnp.exp], y), y, put(())),
    "rows by index": (lambda c: c[jnp.array([3, 1])], columns),
    "rows by divided indices": (lambda t, i: t[i], put((8, 6)), index),
    "columns by index": (lambda y: y[:, jnp.array([3, 1])], y),
    "one of each row": (lambda y, i: jnp.take_along_axis(y, i[:, None] % 8, 1), y, index),
    "columns written": (lambda y: y.at[:, 2].set(0.0), y),
    "embedding's gradient": (lambda t, i: LIBRARY.grad(lambda t: (t[i] ** 2).sum())(t), put((8, 6)), index),
    "window moved": (lambda y, k: LIBRARY.lax.dynamic_slice(y, (0, k.astype(int)), (16, 4)), y, put(())),
    "window written": (lambda y: LIBRARY.lax.dynamic_update_slice(y, jnp.ones((16, 2)), (0, 3)), y),
    "images": (lambda i, k: LIBRARY.lax.conv(i, k, (1, 1), "SAME"), images, put((4, 2, 3, 3))),
    "filters": (lambda i, k: LIBRARY.lax.conv(i, k, (1, 1), "SAME"), put((8, 2, 6, 6)), put((4, 2, 3, 3), "b")),
    "images and filters": (lambda i, k: LIBRARY.lax.conv(i, k, (2, 2), "VALID"), images, put((4, 2, 3, 3), "b")),
    "features combined": (
        lambda i, k: LIBRARY.lax.conv(i, k, (1, 1), "SAME"),
        put((8, 2, 6, 6), None, "b"),
        put((4, 2, 3, 3), None, "b"),
    ),
    "gradient by filters": (
        lambda i, k: LIBRARY.grad(lambda k: (LIBRARY.lax.conv(i, k, (1, 1), "SAME") ** 2).sum())(k),
        images,
        put((4, 2, 3, 3)),
    ),
    "pooling": (
        lambda i: LIBRARY.lax.reduce_window(i, -jnp.inf, LIBRARY.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        images,
    ),
    "largest": (lambda y: LIBRARY.lax.top_k(y, 3), y),
    "barrier": (lambda y, row: LIBRARY.lax.optimization_barrier((y, row)), y, row),
    "conflict": (lambda x, y: x + y, put((8, 8), "a"), put((8, 8), None, "a")),
    "constraint": (constrained, y),
    "closed over": (lambda row: row[:, None] + w, put((8,), "b")),
    "constraint in an inner jit": (lambda y: LIBRARY.jit(constrained)(y + 1) * 2, y),
    "inner jit": (lambda x: LIBRARY.jit(lambda x: x + 1)(x * 2), x),
    "whole": (lambda row: row * 2, row),
    "itself": (lambda x: x, x),
}


def specs(function: Callable[..., Any], *args: Any) -> list[str]:
    """Of a program's results; a compiled call says the same before it is called."""
    jitted = LIBRARY.jit(function)
    found = LIBRARY.tree.leaves(jitted(*args))
    said = LIBRARY.tree.leaves(jitted.lower(*args).compile().output_shardings)
    assert [s.is_equivalent_to(x.sharding, x.ndim) for s, x in zip(said, found, strict=True)] == [True] * len(found)
    return [str(x.sharding.spec) for x in found]


found = {name: specs(function, *args) for name, (function, *args) in PROGRAMS.items()}
EAGERLY = ("elementwise", "softmax", "contracted", "convert", "pad", "loop", "branches", "columns written", "images")
for name in EAGERLY:  # operation by operation
    function, *args = PROGRAMS[name]
    found[f"{name}, eagerly"] = [str(x.sharding.spec) for x in LIBRARY.tree.leaves(function(*args))]
if LIBRARY.__name__ == "rlx":
    double = LIBRARY.jit(lambda x: 2 * x)
    plain = np.ones((16, 8), np.float32)
    for _ in range(3):  # by the same keys, quickly
        assert double(jnp.asarray(plain)).sharding.num_devices == 1
        assert double(x).sharding.spec == P("a", "b")
        assert double(y).sharding.spec == P("a")
        assert double({"x": y}["x"]).tolist() == (2 * np.asarray(y)).tolist()
    assert double.cache_info().misses == 3
    described = LIBRARY.ShapeDtypeStruct((16, 8), "float32", sharding=x.sharding)
    compiled = LIBRARY.jit(lambda x: (x.T, jnp.ones(3))).lower(described).compile()
    assert compiled.input_shardings == ((x.sharding,), {})
    assert [s.spec for s in compiled.output_shardings] == [P("b", "a"), P()]
    assert [v.sharding for v in compiled(x)] == list(compiled.output_shardings)
    assert (2 * x).sharding.spec == P("a", "b") and x[0].sharding.spec == P("b")
    assert LIBRARY.jit(lambda x: 2 * x, in_shardings=NamedSharding(MESH, P("b")))(plain).sharding.spec == P("b")
print(json.dumps(found))
