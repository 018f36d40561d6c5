"""How good estimates of time are on programs that calibration does not use.

    python -m benchmarks.estimates [--devices cpu,c,numba,opencl,xla:cpu] [--later]

Calibrates each device, times 30 programs on it, and prints the rank correlation of estimates and times, the share of
pairs of devices whose quicker one is named, and factors of error. docs/placement.md has the figures.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx import lax
from rlx.backends import backend_named
from rlx.call.jit import make_program
from rlx.errors import RlxError
from rlx.placement.calibration import timed_calls

__all__ = ["PROGRAMS", "Figures", "figures"]

ROUNDS = 3  # of which the quickest counts: a busy machine makes some of them slower for a second or more
APART = 1.5  # the factor between two devices' times from which the quicker one counts


def _mlp(x: Any, w: Any, v: Any) -> Any:
    return (nn.gelu(x @ w) @ v).sum()


def _rows(x: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)


def _attention(q: Any, k: Any) -> Any:
    return nn.softmax(q @ k.T / 8.0) @ k


def _recurrent(x: Any, w: Any) -> Any:
    return lax.scan(lambda c, r: (jnp.tanh(c @ w + r), None), x[0], x)[0]


def _logistic_map(x: Any) -> Any:
    return lax.fori_loop(0, 200, lambda _, c: 3.7 * c * (1.0 - c), x)


def _solved(x: Any) -> Any:
    return jnp.linalg.solve(x + x.shape[0] * jnp.eye(x.shape[0], dtype=x.dtype), x[:, 0])


# name -> (function, shapes of its float32 arguments)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "add 1e4": (lambda x, y: x + y, ((10_000,), (10_000,))),
    "add 3e6": (lambda x, y: x + y, ((3_000_000,), (3_000_000,))),
    "exp 2e5": (jnp.exp, ((200_000,),)),
    "chain 5e5": (lambda x: jnp.sin(x) * jnp.exp(-x) + jnp.log1p(x), ((500_000,),)),
    "logistic 1e6": (nn.sigmoid, ((1_000_000,),)),
    "square roots 1e5": (lambda x: jnp.sqrt(x * x + 1.0) / (x + 2.0), ((100_000,),)),
    "sum 1e6": (jnp.sum, ((1_000_000,),)),
    "column sums": (lambda x: x.sum(0), ((1500, 700),)),
    "row maxima": (lambda x: x.max(1), ((3000, 300),)),
    "variance": (lambda x: x.var(), ((700_000,),)),
    "normalised rows": (_rows, ((800, 600),)),
    "softmax": (nn.softmax, ((400, 2000),)),
    "product 200": (lambda x: x @ x, ((200, 200),)),
    "product 700": (lambda x: x @ x, ((700, 700),)),
    "thin product": (lambda x, y: x @ y, ((4000, 24), (24, 400))),
    "product by a vector": (lambda x, y: x @ y, ((1500, 1500), (1500,))),
    "batched product": (lambda x, y: x @ y, ((40, 60, 50), (40, 50, 70))),
    "network": (_mlp, ((200, 300), (300, 250), (250, 80))),
    "gradient of the network": (rlx.grad(_mlp, (1, 2)), ((200, 300), (300, 250), (250, 80))),
    "attention": (_attention, ((300, 64), (300, 64))),
    "recurrence": (_recurrent, ((150, 96), (96, 96))),
    "logistic map": (_logistic_map, ((20_000,),)),
    "transposition": (lambda x: jnp.transpose(x) + 1.0, ((1200, 1100),)),
    "gather": (lambda x: x[np.arange(60_000) * 7 % 20_000], ((20_000, 16),)),
    "scatter": (lambda x: jnp.zeros(5000).at[np.arange(200_000) * 31 % 5000].add(x), ((200_000,),)),
    "cumulative sum": (lambda x: jnp.cumsum(x), ((400_000,),)),
    "sort": (jnp.sort, ((60_000,),)),
    "linear system": (_solved, ((180, 180),)),
    "factorisation": (lambda x: jnp.linalg.cholesky(x @ x.T + 200.0 * jnp.eye(200)), ((200, 200),)),
    "convolution": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), ((4, 12, 40, 40), (24, 12, 3, 3)),
    ),
}  # fmt: skip

# programs that were written after the classes of costs were chosen
LATER: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "clipped difference": (lambda x, y: jnp.clip(x - y, 0.1, 0.4) * 3.0, ((900_000,), (900_000,))),
    "arg maxima": (lambda x: jnp.argmax(x, 1), ((2000, 250),)),
    "pairwise distances": (lambda x: jnp.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)), ((250, 16),)),
    "running products": (lambda x: jnp.cumprod(x, 1), ((300, 900),)),
    "largest ten": (lambda x: lax.top_k(x, 10)[0], ((300, 700),)),
    "cosine features": (lambda x, w: jnp.cos(x @ w), ((500, 20), (20, 900))),
    "blur": (lambda x: (x[:-2] + 2.0 * x[1:-1] + x[2:]) / 4.0, ((1500, 800),)),
    "log sum exp": (lambda x: jnp.log(jnp.exp(x).sum(1)), ((700, 900),)),
    "gradient of distances": (rlx.grad(lambda x, w: jnp.tanh(jnp.abs(x - w)).sum()), ((400_000,), (400_000,))),
    "embedding": (lambda x: x[np.arange(9000) * 13 % 3000].sum(0), ((3000, 64),)),
    "bilinear form": (lambda x, w: ((x @ w) * x).sum(1), ((600, 300), (300, 300))),
    "random walk": (lambda x: lax.scan(lambda c, r: (c + jnp.sin(r), c.sum()), x[0], x)[1], ((400, 500),)),
}  # fmt: skip


class Figures(NamedTuple):
    """correlation: Spearman's. right: pairs of devices whose quicker one is named. median, tenth: factors of error."""

    correlation: float
    right: int
    pairs: int
    median: float
    tenth: float


def figures(times: Mapping[tuple[str, str], tuple[float, float]]) -> Figures:
    """The figures of (estimated, measured) seconds by program and device."""
    estimated, measured = (np.array(column) for column in zip(*times.values(), strict=True))
    ranks = [np.argsort(np.argsort(x)) for x in (estimated, measured)]
    right = pairs = 0
    for program in dict.fromkeys(program for program, _ in times):
        for (a, b), (c, d) in combinations([t for (name, _), t in times.items() if name == program], 2):
            if max(b, d) >= APART * min(b, d):
                pairs += 1
                right += (a < c) == (b < d)
    error = np.exp(np.abs(np.log(estimated / measured)))
    correlation = float(np.corrcoef(*ranks)[0, 1])
    return Figures(correlation, right, pairs, float(np.median(error)), float(np.quantile(error, 0.9)))


def timed(name: str, device: str) -> tuple[float, float]:
    """The estimated and the measured seconds of a program. Raises RlxError if the device does not take it."""
    function, shapes = {**PROGRAMS, **LATER}[name]
    generator = np.random.default_rng(0)
    args = [jnp.asarray(generator.random(shape).astype(np.float32)) for shape in shapes]
    program = make_program(function)(*args)
    expected = rlx.placement.estimate(function, *args, devices=[device])[device]
    return expected.seconds, timed_calls(program, args, backend_named(device))


def times_on(device: str, programs: list[str]) -> dict[tuple[str, str], tuple[float, float]]:
    """The times of a device, in a process of its own: waiting threads of another device's library take time."""
    rlx.placement.calibrate(device)
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for name in programs * ROUNDS:
        try:
            pair = timed(name, device)
            found[name, device] = min(found.get((name, device), pair), pair, key=lambda pair: pair[1])
        except RlxError as error:
            print(f"{name} on {device}: {str(error).splitlines()[0]}")
    return found


def main() -> None:
    """Calibrate, time, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="cpu,c,numba,opencl,xla:cpu")
    parser.add_argument("--later", action="store_true", help="time the programs of a second list")
    options = parser.parse_args()
    devices, programs = options.devices.split(","), [*(LATER if options.later else PROGRAMS)]
    times: dict[tuple[str, str], tuple[float, float]] = {}
    for device in devices:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
            times |= apart.submit(times_on, device, programs).result()
    for (name, device), (estimated, measured) in times.items():
        print(f"{name:24} {device:8} {estimated * 1e6:12.1f} {measured * 1e6:12.1f} us {estimated / measured:7.2f}")
    for device in devices:
        print(f"{device:10} {figures({key: pair for key, pair in times.items() if key[1] == device})}")
    print(f"{'all':10} {figures(times)}")


if __name__ == "__main__":
    main()
