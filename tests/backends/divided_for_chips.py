"""Programs with shardings, compiled for the chips of a mesh that this machine does not have.

The number of devices is read when rlx is imported, so that test_tpu_compile.py starts this file with
RLX_NUM_CPU_DEVICES=16 and the devices to compile for; it prints, for each program, device and number of chips, the
exchanges in XLA's program, the bytes of its arguments on each chip, and the error if there was one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.errors import RlxError
from rlx.sharding import NamedSharding
from rlx.sharding import PartitionSpec as P
from tests.sharding.partitioned import CASES, W, X
from tests.sharding.spanning import device_mesh

EXCHANGE = re.compile(r" (all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute)(?:-start)?\(")
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[tuple[int, ...], Any], ...]]] = {}


def program(*arguments: tuple[tuple[int, ...], Any]) -> Callable[..., Any]:
    """Take a function of a mesh with the axes "data" and "model" as a program: it returns the function to compile."""

    def take(make: Callable[[Any], Any]) -> Callable[..., Any]:
        PROGRAMS[make.__name__] = make, arguments
        return make

    return take


def constrained(x: Any, mesh: Any, *entries: Any) -> Any:
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*entries)))


@program(((64, 32), P("data")), ((32, 64), P(None, "model")), ((64, 16), P("model")))
def two_layers(mesh: Any) -> Any:
    return lambda x, w, v: nn.relu(x @ w) @ v


@program(((64, 32), P("data")), ((32, 64), P(None, "model")), ((64, 16), P("model")))
def training_step(mesh: Any) -> Any:
    def loss(w: Any, v: Any, x: Any) -> Any:
        return jnp.mean((constrained(jnp.tanh(x @ w), mesh, "data", "model") @ v) ** 2)

    def step(x: Any, w: Any, v: Any) -> Any:
        value, (dw, dv) = rlx.value_and_grad(loss, (0, 1))(w, v, x)
        return value, w - 0.1 * dw, v - 0.1 * dv

    return rlx.jit(step, donate_argnums=(1, 2))


@program(((16, 32, 16, 8), P("data", None, "model")), ((16, 32, 16, 8), P("data", None, "model")))
def attention_of_divided_heads(mesh: Any) -> Any:
    return lambda q, k: nn.dot_product_attention(q, k, k, is_causal=True)


@program(((16, 16, 16, 4), P("data")), ((3, 3, 4, 8), P(None, None, None, "model")))
def gradient_of_a_convolution(mesh: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        found = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (found**2).sum()

    return rlx.grad(loss, 1)


@program(((64, 16), P("model")), ((32,), P("data")))
def rows_of_a_divided_table(mesh: Any) -> Any:
    return lambda table, at: rlx.grad(lambda table: jnp.sin(table[jnp.abs(at).astype(int) % 64]).sum())(table)


@program(((32, 64), P("data", "model")))
def another_division(mesh: Any) -> Any:
    return lambda x: (constrained(jnp.sin(x), mesh, "model", "data"), constrained(x, mesh), x.sum(0))


@program(((64, 32), P(("data", "model"))), ((32, 32), P()))
def scan_over_layers(mesh: Any) -> Any:
    return lambda x, w: lax.scan(lambda c, _: (constrained(jnp.tanh(c @ w), mesh, ("data", "model")), c.sum()), x,
                                 length=4)  # fmt: skip


@program(((32, 64), P("data", "model")))
def sums_of_parts(mesh: Any) -> Any:
    parts = P("data", "model")
    return rlx.shard_map(lambda x: lax.psum(jnp.sin(x), "model"), mesh=mesh, in_specs=parts, out_specs=P("data"))


@program(((32, 64), P("data", "model")))
def parts_go_round(mesh: Any) -> Any:
    def shifted(x: Any) -> Any:
        n = lax.axis_size("model")
        return x + lax.ppermute(x, "model", [(i, (i + 1) % n) for i in range(n)])

    return rlx.shard_map(shifted, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", "model"))


@program(((32, 64), P("data", "model")))
def parts_are_gathered_and_scattered(mesh: Any) -> Any:
    def both(x: Any) -> Any:
        whole = lax.all_gather(x, "model", axis=1, tiled=True)
        return lax.psum_scatter(jnp.cos(whole), "model", scatter_dimension=1, tiled=True)

    return rlx.shard_map(both, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", "model"))


@program(((32, 64), P("data", "model")))
def parts_are_exchanged(mesh: Any) -> Any:
    exchange = lambda x: lax.all_to_all(x, "model", 0, 1, tiled=True)  # noqa: E731
    return rlx.shard_map(exchange, mesh=mesh, in_specs=P("data", "model"), out_specs=P(("data", "model")))


def described(mesh: Any, shape: tuple[int, ...], spec: Any) -> rlx.ShapeDtypeStruct:
    return rlx.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))


def compiled(device: str, function: Callable[..., Any], arguments: list[Any]) -> dict[str, Any]:
    """The exchanges and bytes of a program on each chip, or the error."""
    try:
        texts = rlx.inspect(function, device=device)(*arguments).kernels.texts
    except RlxError as error:
        return {"error": str(error)}
    found = re.search(r"argument: (\d+) bytes", texts["memory"])
    assert found is not None
    return {"exchanges": sorted(set(EXCHANGE.findall(texts["xla"]))), "argument": int(found[1])}


def all_of(device: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side in (2, 4):
        mesh = rlx.make_mesh((side, side), ("data", "model"))
        for name, (make, arguments) in PROGRAMS.items():
            found[f"{name} {side * side}"] = compiled(device, make(mesh), [described(mesh, *a) for a in arguments])
    for name, case in CASES.items():
        if name == "branches_that_are_divided_differently":
            continue  # one of its branches returns a NumPy array of float64
        mesh = device_mesh(case.axes, False)
        arguments = [described(mesh, x.shape, spec) for x, spec in zip((X, W), case.specs, strict=True)]
        found[f"{name} 4"] = compiled(device, case.function, arguments)
    return found


if __name__ == "__main__":
    print(json.dumps({device: all_of(device) for device in sys.argv[1:]}))
