"""Calibration: small programs that are timed on a device, and the costs that explain their times."""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rlx import lax
from rlx import numpy as jnp
from rlx.array import is_concrete, moved
from rlx.backends import backend_named
from rlx.backends.base import Backend
from rlx.call.compiled import CompiledProgram
from rlx.call.device import block_until_ready
from rlx.call.jit import make_program
from rlx.config import config
from rlx.errors import RlxError
from rlx.placement.estimate import estimate_program
from rlx.placement.fitting import fitted
from rlx.placement.rates import DeviceRates, Observation, typical_rates
from rlx.placement.stored_rates import keep_rates, write_rates

__all__ = ["PROBES", "calibrate", "timed_calls"]

_PRIOR = 0.02  # the weight of a typical cost beside one measurement
_LEAST_RUNS = 3
_MOST_RUNS = 50
_PROBE_SECONDS = 0.05
_ROUNDS = 3


class RatesProbe(NamedTuple):
    """A program whose time shows the cost of one class of work."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"


def _polynomial(x: Any) -> Any:
    y = x
    for k in range(24):
        y = y * x + (0.1 + k * 0.01)
    return y


def _steps(x: Any) -> Any:
    return lax.scan(lambda c, _: (c * 0.5 + 1.0, None), x, None, length=1000)[0]


def _kernels(x: Any) -> Any:
    for _ in range(8):
        x = lax.optimization_barrier(x * 0.5 + 1.0)
    return x


def _spread(x: Any) -> Any:
    return x @ x.T + x.shape[0] * jnp.eye(x.shape[0], dtype=x.dtype)


PROBES: tuple[RatesProbe, ...] = (
    RatesProbe("call", lambda x: x + 1.0, ((16,),)),
    RatesProbe("launch", _kernels, ((16,),)),
    RatesProbe("step", _steps, ((8,),)),
    RatesProbe("near", lambda x, y: x + y, ((1 << 16,), (1 << 16,))),
    RatesProbe("near sum", lambda x: x.sum(), ((1 << 18,),)),
    RatesProbe("middle", lambda x, y: x + y, ((1 << 20,), (1 << 20,))),
    RatesProbe("middle sum", lambda x: x.sum(), ((1 << 21,),)),
    RatesProbe("far", lambda x, y: x + y, ((1 << 23,), (1 << 23,))),
    RatesProbe("far sum", lambda x: x.sum(), ((1 << 24,),)),
    RatesProbe("operation", _polynomial, ((1 << 16,),)),
    RatesProbe("function", lambda x: jnp.exp(jnp.tanh(x)), ((1 << 16,),)),
    RatesProbe("sine", jnp.sin, ((1 << 16,),)),
    RatesProbe("softmax", lambda x: jnp.exp(x - x.max(1, keepdims=True)), ((256, 256),)),
    RatesProbe("division", lambda x, y: jnp.sqrt(x * x + y) / (x + 2.0), ((1 << 16,), (1 << 16,))),
    RatesProbe("row sums", lambda x: x.sum(1), ((512, 256),)),
    RatesProbe("row maxima", lambda x: x.max(1), ((512, 256),)),
    RatesProbe("columns", lambda x: x.T * 2.0, ((600, 700),)),
    RatesProbe("product", lambda x: x @ x, ((256, 256),)),
    RatesProbe("large product", lambda x: x @ x, ((512, 512),)),
    RatesProbe("small product", lambda x: x @ x, ((32, 32),)),
    RatesProbe("matrix and vector", lambda x, y: x @ y, ((512, 512), (512,))),
    RatesProbe("few rows", lambda x, y: x @ y, ((4, 512), (512, 512))),
    RatesProbe("product64", lambda x: x @ x, ((256, 256),), "float64"),
    RatesProbe("product16", lambda x: x @ x, ((256, 256),), "bfloat16"),
    RatesProbe("serial", lambda x: jnp.cumsum(x, 1), ((256, 512),)),
    RatesProbe("scatter", lambda x: jnp.zeros(1024, x.dtype).at[(x * 1000).astype(int)].add(x), ((1 << 16,),)),
    RatesProbe("gather", lambda x: x[(x * 1000).astype(int)], ((1 << 16,),)),
    RatesProbe("rows", lambda x, y: x[(y * 4000).astype(int)], ((4096, 32), (1 << 14,))),
    RatesProbe("sort", jnp.sort, ((1 << 14,),)),
    RatesProbe("cholesky", lambda x: jnp.linalg.cholesky(_spread(x)), ((128, 128),)),
    RatesProbe("solve", lambda x: jnp.linalg.solve(_spread(x), x), ((128, 128),)),
    RatesProbe("fft", lambda x: jnp.abs(jnp.fft.fft(x)), ((64, 512),)),
)


def calibrate(device: str | None = None, seconds: float = 20.0) -> DeviceRates:
    """Measure a device's costs with small programs, use them from now on, and store them for later processes.

    They are stored by machine, device, driver, number of threads and version of rlx, in the user's cache folder.

    Args:
      device: a device's name; None for the default device.
      seconds: probes start within this time, so that a run on a slow device ends.

    Raises: DeviceError for an unknown device.

    >>> import rlx
    >>> rates = rlx.placement.calibrate("reference", seconds=0.1)
    >>> rates.basis.startswith("measured")
    True
    """
    name = device or config.device
    backend = backend_named(name)
    start = typical_rates(name, backend.hardware)
    with_copies = replace(start, costs={**start.costs, **_copy_costs(backend)})
    found = _quickest(name, with_copies, time.perf_counter() + seconds)
    day = datetime.date.today().isoformat()
    rates = replace(fitted(with_copies, found, _PRIOR), basis=f"measured {day}")
    keep_rates(rates)
    write_rates(rates)
    return rates


def _quickest(device: str, start: DeviceRates, end: float) -> list[Observation]:
    """The quickest of a few rounds for each probe: a busy machine makes some of them slower for a second or more."""
    found: dict[str, Observation] = {}
    for probe in PROBES * _ROUNDS:
        if time.perf_counter() > end:
            break
        for seen in _measured(probe, device, start):
            found[probe.name] = min(found.get(probe.name, seen), seen, key=lambda o: o.seconds)
    return [*found.values()]


def _measured(probe: RatesProbe, device: str, start: DeviceRates) -> Iterator[Observation]:
    """The observation of a probe; none if the device does not take its dtypes or operations."""
    backend = backend_named(device)
    generator = np.random.default_rng(0)
    args = [jnp.asarray(generator.random(shape)).astype(probe.dtype) for shape in probe.shapes]
    program = make_program(probe.function)(*args)
    expected = estimate_program(program, device, start)
    if expected.blockers:
        return
    try:
        seconds = timed_calls(program, args, backend)
    except RlxError:
        return
    yield Observation(expected.terms, seconds)


def timed_calls(program: Any, args: list[Any], backend: Backend) -> float:
    """The median time of the quicker half of several calls, by the device's own clock."""
    compiled = CompiledProgram(program, backend)
    there = [moved(x, backend.memory) for x in args if is_concrete(x)]
    block_until_ready(compiled.run(there))
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < _LEAST_RUNS or (time.perf_counter() - start < _PROBE_SECONDS and len(times) < _MOST_RUNS):
        begin = backend.clock()
        block_until_ready(compiled.run(there))
        times.append(backend.clock() - begin)
    return max(statistics.median(sorted(times)[: (len(times) + 1) // 2]), 1e-9)


def _copy_costs(backend: Backend) -> dict[str, float]:
    """The latency of a copy to the device, and the seconds for each byte."""
    memory = backend.memory
    if memory.host:
        return {}
    small, large = np.zeros(16, np.float32), np.zeros(1 << 20, np.float32)
    times = {}
    for array in (small, large):
        tries = []
        for _ in range(5):
            begin = backend.clock()
            memory.get(memory.put(array), array.shape, array.dtype)
            tries.append((backend.clock() - begin) / 2)
        times[array.nbytes] = min(tries)
    latency = times[small.nbytes]
    return {"latency": latency, "link": max(times[large.nbytes] - latency, 0.0) / large.nbytes}
