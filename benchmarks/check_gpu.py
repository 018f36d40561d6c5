"""The first run on a GPU: conformance, then what the host side promises, as measurements.

`make check-gpu` runs it on the device cuda and prints what to report: the machine, how many tests passed on the device,
and a table of expectations with what was measured. `--device rocm` or `--device opencl` checks another device, where
expectations about graphs do not apply. `--quick` leaves the tests and the benchmark programs out. Programs' times,
bandwidths and products beside other libraries are those of benchmarks.gpu, which it runs last. The exit status is 1
where something has failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rlx
import rlx.nn as nn
import rlx.numpy as jnp
from rlx.backends import backend_named, memory_named
from rlx.backends.gpu.backend import DeviceBackend

__all__ = ["Expectation", "counted_expectations", "main", "timed_expectations"]

ROOT = Path(__file__).resolve().parent.parent
TESTS = (["tests/lax", "tests/nn"], ["tests/test_primitives.py", "-k", "computes_the_reference"])
STEPS, BEFORE = 60, 5  # of a training loop; before graphs are expected
LARGE = 1 << 26  # bytes of a copy


@dataclass(frozen=True)
class Expectation:
    """What was measured, and what is expected of it; holds: None if the device does not do this."""

    what: str
    found: str
    expected: str
    holds: bool | None

    def row(self) -> str:
        """A line of the table."""
        said = {True: "yes", False: "**no**", None: "–"}[self.holds]
        return f"| {self.what} | {self.found} | {self.expected} | {said} |"


def engine_of(device: str) -> Any:
    """The engine of a device."""
    backend = backend_named(device)
    assert isinstance(backend, DeviceBackend), f"{device} is not a GPU's device"
    return backend.engine


@contextmanager
def counting(device: str) -> Generator[Counter[str]]:
    """Calls of the engine's functions by name while this lasts."""
    engine, calls = engine_of(device), Counter[str]()
    names = ("compile", "launch", "launch_together", "launch_graph", "finish", "read")

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return function(*arguments)

        return call

    for name in names:
        setattr(engine, name, counted(name, getattr(engine, name)))
    try:
        yield calls
    finally:
        for name in names:
            delattr(engine, name)


# ------------------------------------------------------------------ counts
def loss(weights: Sequence[Any], x: Any, y: Any) -> Any:
    """Of a network of some layers."""
    for w in weights:
        x = jnp.tanh(x @ w)
    return ((x - y) ** 2).mean()


def step(weights: Sequence[Any], x: Any, y: Any) -> tuple[list[Any], Any]:
    """A training step."""
    value, slopes = rlx.value_and_grad(loss)(weights, x, y)
    return [w - 0.1 * d for w, d in zip(weights, slopes, strict=True)], value


def normal(device: str, *shape: int) -> Any:
    """Normal numbers on the device."""
    return rlx.device_put(np.random.default_rng(0).normal(size=shape).astype(np.float32), device)


def graph_steps(device: str, keep: bool, donate: bool, ahead: int) -> tuple[int, int]:
    """How many steps of a training loop after the first ones are one graph and nothing else; of how many."""
    f = rlx.jit(step, donate_argnums=(0,)) if donate else rlx.jit(step)
    weights, kept, batches, hits = [normal(device, 64, 64) for _ in range(4)], [], [], []
    for _ in range(STEPS + ahead):
        batches.append((normal(device, 32, 64), normal(device, 32, 64)))
        if len(batches) <= ahead:
            continue
        with counting(device) as calls:
            weights, value = f(weights, *batches.pop(0))
        hits.append(calls["launch_graph"] == 1 and not calls["launch"])
        kept.append(value) if keep else float(value)
    return sum(hits[BEFORE:]), len(hits[BEFORE:])


def graphs(device: str) -> list[Expectation]:
    """Training loops as graphs, and the memory that recordings take."""
    records = engine_of(device).records
    loops = {
        "loss read each step": (False, False, 0), "parameters donated": (False, True, 0),
        "losses kept": (True, False, 0), "two batches prefetched": (False, False, 2),
    }  # fmt: skip
    rows = []
    for name, how in loops.items():
        hits, steps = graph_steps(device, *how) if records else (0, 1)
        found = f"{hits} of {steps}" if records else "no graphs"
        holds = hits >= 0.95 * steps if records else None
        rows.append(Expectation(f"steps that are one graph: {name}", found, "95 %", holds))
    f = rlx.jit(lambda x: jnp.cumsum(jnp.sort(jnp.sort(x, axis=1).T, axis=1), axis=0).sum(0))
    inputs = [normal(device, 256, 1024) for _ in range(8)]
    used = []
    for x in inputs * 3:
        rlx.block_until_ready(f(x))
        used.append(memory_named(device).pool_bytes())
    grown = (used[-1] - used[3]) / 2**20
    return [*rows, Expectation("memory for 8 inputs in turn, MiB more than for 3", f"{grown:.1f}", "0", grown <= 0)]


def compiled(device: str, run: Callable[[], Any]) -> int:
    """The number of kernels that are compiled or loaded for a call."""
    with counting(device) as calls:
        run()
    return calls["compile"]


def decode(query: Any, keys: Any, values: Any, key: Any, weights: Any) -> Any:
    """A step of a decoder whose cache grows."""
    keys, values = jnp.concatenate([keys, key], 1), jnp.concatenate([values, key], 1)
    return nn.softmax(nn.dot_product_attention(query, keys, values).reshape(1, -1) @ weights), keys, values


def sizes(device: str) -> list[Expectation]:
    """Kernels that new sizes compile."""
    rlx.clear_caches()
    x = normal(device, 64, 5)
    slices = compiled(device, lambda: [x[i : i + 4] for i in range(16)])
    f, weights = rlx.jit(step), [normal(device, 64, 64) for _ in range(4)]

    def train(batch: int) -> Any:
        return f(weights, normal(device, batch, 64), normal(device, batch, 64))

    train(520)
    batches = compiled(device, lambda: train(528))
    g, one, vocabulary = rlx.jit(decode), normal(device, 1, 1, 2, 16), normal(device, 32, 300)
    keys = values = normal(device, 1, 40, 2, 16)
    counts = []
    for _ in range(6):
        with counting(device) as calls:
            _, keys, values = g(one, keys, values, one, vocabulary)
        counts.append(calls["compile"])
    return [
        Expectation("kernels for slices at 16 offsets", str(slices), "at most 1", slices <= 1),
        Expectation("kernels for a new batch size", str(batches), "0", batches == 0),
        Expectation("kernels for a later token, cache growing", str(max(counts[2:])), "0", not any(counts[2:])),
    ]


def counted_expectations(device: str) -> list[Expectation]:
    """What can be counted: graphs, memory, compiled kernels."""
    return [*graphs(device), *sizes(device)]


# ------------------------------------------------------------------ times
def took(function: Callable[[], Any]) -> float:
    """Seconds of a call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def timed_expectations(device: str) -> list[Expectation]:
    """Copies beside work, bandwidths of copies, and the host's time for a launch."""
    side = 256 if device == "opencl" else 2048
    x, array = normal(device, side, side), np.ones(1 << 18, np.float32)
    work = rlx.jit(lambda x: rlx.lax.fori_loop(0, 60, lambda _, y: jnp.tanh(y @ x) / 50, x))
    rlx.block_until_ready(work(x))
    whole = took(lambda: rlx.block_until_ready(work(x)))
    older, queued = rlx.jit(lambda x: x[:64] + 1)(x), None
    rlx.block_until_ready(older)
    rlx.device_put(array, device)

    def beside(call: Callable[[], Any]) -> float:
        nonlocal queued
        queued = work(x)
        return took(call)

    put = beside(lambda: rlx.block_until_ready(rlx.device_put(array, device)))
    rlx.block_until_ready(queued)
    read = beside(lambda: np.asarray(older))
    rlx.block_until_ready(queued)
    large = np.ones(LARGE // 4, np.float32)
    there = rlx.device_put(large, device)
    rlx.block_until_ready(there)
    up = LARGE / took(lambda: rlx.block_until_ready(rlx.device_put(large, device))) / 1e9
    down = LARGE / took(lambda: np.asarray(there + 1)) / 1e9
    chain = rlx.jit(lambda x: jnp.sort(jnp.sort(jnp.sort(jnp.sort(x, axis=1).T, axis=1).T, axis=1).T, axis=1))
    small = normal(device, 8, 8)
    for _ in range(3):
        rlx.block_until_ready(chain(small))
    calls = 200
    each = took(lambda: [chain(small) for _ in range(calls)]) / calls
    apart = device != "opencl"  # the device has a queue for copies

    def beside_work(what: str, seconds: float) -> Expectation:
        holds = seconds < 0.5 * whole if apart else None
        return Expectation(f"{what} while work runs", f"{seconds / whole:.2f} of the work", "below 0.5", holds)

    return [
        beside_work("device_put of 1 MiB", put),
        beside_work("reading an older result", read),
        Expectation("copies to and from the device, GB/s", f"{up:.1f}, {down:.1f}", "to report", None),
        Expectation("host time of a call of several launches, µs", f"{each * 1e6:.1f}", "to report", None),
    ]


# ------------------------------------------------------------------ report
def conformance(device: str) -> tuple[list[str], bool]:
    """The last line of each run of tests on the device, and those that failed; whether all have passed."""
    said, passed = [], True
    for tests in TESTS:
        command = [sys.executable, "-m", "pytest", "--tb=line", "-q", "-n", "2", *tests]
        env = os.environ | {"RLX_DEVICE": device}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        said.append(f"- {' '.join(tests)}: {lines[-1] if lines else done.stderr[-300:]}")
        said += [f"    {line}" for line in lines if line.startswith(("FAILED", "ERROR"))]
        passed &= done.returncode == 0
    return said, passed


def machine(device: str) -> str:
    """What it runs on."""
    versions = f"rlx {rlx.__version__}, Python {platform.python_version()}"
    return f"{platform.platform()}; {backend_named(device).hardware}; {versions}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all of it; 1 where something has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="without tests and benchmark programs")
    options = parser.parse_args(arguments)
    print(machine(options.device), flush=True)
    expectations = [*counted_expectations(options.device), *timed_expectations(options.device)]
    head = ["| expectation | measured | expected | holds |", "|---|---|---|---|"]
    print("\n".join([*head, *(e.row() for e in expectations)]), flush=True)
    passed = all(e.holds is not False for e in expectations)
    if options.quick:
        return 0 if passed else 1
    said, tested = conformance(options.device)
    print("\n".join(said), flush=True)
    programs = [sys.executable, "-m", "benchmarks.gpu", "--device", options.device]
    measured = subprocess.run(programs, cwd=ROOT).returncode == 0
    return 0 if passed and tested and measured else 1


if __name__ == "__main__":
    sys.exit(main())
