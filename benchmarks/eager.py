"""The time of one eager call of each of 68 functions on small arrays: python -m benchmarks.eager.

Times are of the thread, so that other programs disturb them little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import rlx
import rlx.numpy as jnp

__all__ = ["FUNCTIONS", "times"]

x = jnp.arange(12.0).reshape(3, 4) + 1.0
y = x[::-1]
v = jnp.arange(4.0) + 0.5
i = jnp.arange(6)
m = x > 4.0
square = jnp.eye(3) * 2.0

FUNCTIONS: dict[str, Callable[[], Any]] = {
    "x + y": lambda: x + y,
    "x * 2.0": lambda: x * 2.0,
    "1.0 - x": lambda: 1.0 - x,
    "x / y": lambda: x / y,
    "x ** 2": lambda: x**2,
    "-x": lambda: -x,
    "x > y": lambda: x > y,
    "x == y": lambda: x == y,
    "m & m": lambda: m & m,
    "i // 2": lambda: i // 2,
    "i % 4": lambda: i % 4,
    "x @ x.T": lambda: x @ x.T,
    "x[0]": lambda: x[0],
    "x[1, 2]": lambda: x[1, 2],
    "x[:, 1:3]": lambda: x[:, 1:3],
    "x[None]": lambda: x[None],
    "x[i % 3]": lambda: x[jnp.array([0, 2])],
    "x.at[0].set(v)": lambda: x.at[0].set(v),
    "x.at[1, 2].add(1.0)": lambda: x.at[1, 2].add(1.0),
    "x.T": lambda: x.T,
    "x.sum()": lambda: x.sum(),
    "x.reshape(12)": lambda: x.reshape(12),
    "x.astype": lambda: x.astype("int32"),
    "float(v[0])": lambda: float(v[0]),
    "add": lambda: jnp.add(x, y),
    "exp": lambda: jnp.exp(x),
    "log": lambda: jnp.log(x),
    "sin": lambda: jnp.sin(x),
    "tanh": lambda: jnp.tanh(x),
    "sqrt": lambda: jnp.sqrt(x),
    "square": lambda: jnp.square(x),
    "abs": lambda: jnp.abs(x),
    "sign": lambda: jnp.sign(x),
    "floor": lambda: jnp.floor(x),
    "maximum": lambda: jnp.maximum(x, y),
    "where": lambda: jnp.where(m, x, y),
    "clip": lambda: jnp.clip(x, 2.0, 5.0),
    "isnan": lambda: jnp.isnan(x),
    "sum": lambda: jnp.sum(x, axis=0),
    "mean": lambda: jnp.mean(x),
    "max": lambda: jnp.max(x, axis=1),
    "argmax": lambda: jnp.argmax(x),
    "prod": lambda: jnp.prod(v),
    "var": lambda: jnp.var(x),
    "std": lambda: jnp.std(x, axis=0),
    "any": lambda: jnp.any(m),
    "all": lambda: jnp.all(m),
    "cumsum": lambda: jnp.cumsum(v),
    "sort": lambda: jnp.sort(v),
    "argsort": lambda: jnp.argsort(v),
    "dot": lambda: jnp.dot(x, v),
    "matmul": lambda: jnp.matmul(square, x),
    "outer": lambda: jnp.outer(v, v),
    "einsum": lambda: jnp.einsum("ij,kj->ik", x, y),
    "linalg.norm": lambda: jnp.linalg.norm(x),
    "reshape": lambda: jnp.reshape(x, (4, 3)),
    "transpose": lambda: jnp.transpose(x),
    "squeeze": lambda: jnp.squeeze(x[None]),
    "expand_dims": lambda: jnp.expand_dims(x, 0),
    "broadcast_to": lambda: jnp.broadcast_to(v, (3, 4)),
    "concatenate": lambda: jnp.concatenate([x, y]),
    "stack": lambda: jnp.stack([v, v]),
    "zeros": lambda: jnp.zeros((3, 4)),
    "ones_like": lambda: jnp.ones_like(x),
    "arange": lambda: jnp.arange(5),
    "array": lambda: jnp.array([1.0, 2.0]),
    "relu": lambda: rlx.nn.relu(x),
    "softmax": lambda: rlx.nn.softmax(x),
}


def times(calls: int = 200, rounds: int = 15) -> dict[str, float]:
    """The least microseconds of a call of each function."""
    return {name: min(_round(function, calls) for _ in range(rounds)) for name, function in FUNCTIONS.items()}


def _round(function: Callable[[], Any], calls: int) -> float:
    begin = time.thread_time()
    for _ in range(calls):
        function()
    return (time.thread_time() - begin) / calls * 1e6


def main() -> None:
    """Print the table, slowest first, and the mean."""
    found = times()
    for name, microseconds in sorted(found.items(), key=lambda row: -row[1]):
        print(f"{name:24s} {microseconds:8.2f} µs")
    print(f"{len(found)} functions: mean {statistics.mean(found.values()):.2f} µs, most {max(found.values()):.2f} µs")


if __name__ == "__main__":
    main()
