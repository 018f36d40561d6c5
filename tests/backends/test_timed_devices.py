"""Profiles of devices: the device's own clock, between kernels."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy, installed

import rlx
import rlx.numpy as jnp
from rlx import backends, lax
from rlx.errors import DeviceError
from rlx.profiling.roofline import Peaks
from rlx.profiling.timed_call import TimedCall

X = np.random.default_rng(0).normal(size=(60, 400)).astype(np.float32)
STAMP = 0.25e6  # nanoseconds from each event of the driver's to the next


def loops(x: Any) -> Any:
    """A loop that the host drives, over kernels; and a kernel behind it."""

    def step(state: Any) -> Any:
        return state[0] + 1, jnp.sort(jnp.cumsum(state[1], axis=1), axis=1) / 500

    return jnp.sort(lax.while_loop(lambda s: s[0] < 3, step, (0, x))[1].T)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A driver with two devices."""
    yield from installed(monkeypatch, FakeCupy(devices=2))


def test_kernels_are_timed_one_by_one(cupy: FakeCupy) -> None:
    """Two stamps around each; nothing is recorded into graphs."""
    call = TimedCall(lambda x: jnp.cumsum(jnp.sort(x), axis=0).sum(1), (rlx.device_put(X, "cuda:1"),), {})
    assert call.device == "cuda:1"
    for _ in range(4):
        del cupy.log[:]
        run = call.run()
    kinds = [entry[0] for entry in cupy.log]
    assert "graph" not in kinds and kinds.count("record") == 1 + 2 * len(call.steps) + 1
    assert [step.nanoseconds for step in run.times] == [STAMP] * len(call.steps)
    assert [(e.begin, e.end) for e in run.events] == [
        ((2 * n + 1) * STAMP, (2 * n + 2) * STAMP) for n in range(len(call.steps))
    ]


def test_a_loops_time_is_its_own(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that of the kernels in it, which have paths of theirs."""
    living = cupy.at

    def zeroed(address: int, nbytes: int, *how: Any, **more: Any) -> np.ndarray:
        found = living(address, nbytes, *how, **more)
        found[:] = 0
        return found

    monkeypatch.setattr(cupy, "at", zeroed)  # no condition holds
    cupy.properties["cooperativeLaunch"] = 0  # groups would share the loop
    call = TimedCall(loops, (rlx.device_put(X, "cuda"),), {})
    run = call.run()
    times = {step.path: time for step, time in zip(call.steps, run.times, strict=True)}
    inside = [path for path in times if ".body." in path]
    assert len(inside) >= 2 and all(times[path].runs == 0 for path in inside)
    (loop,) = (step.path for step in call.steps if f"{step.path}.condition.0" in times)
    # begin, the condition's two, end: three quarters, one of which is the condition's
    assert times[f"{loop}.condition.0"] == (STAMP, 1) and times[loop] == (2 * STAMP, 1)


# ------------------------------------------------------------------ executed
@pytest.fixture
def opencl() -> None:
    """OpenCL, or a reason why there is none."""
    wanted = os.environ.get("RLX_TEST_OPENCL") == "1"
    if not wanted:
        pytest.importorskip("pyopencl", reason="pyopencl is not installed: make test-opencl")
    try:
        backends.backend_named("opencl")
    except DeviceError as error:
        if wanted:
            raise
        pytest.skip(str(error))


def test_opencl_tells_times(opencl: None) -> None:
    call = TimedCall(loops, (rlx.device_put(X, "opencl"),), {})
    run = call.run()
    times = {step.path: time for step, time in zip(call.steps, run.times, strict=True)}
    assert {time.runs for path, time in times.items() if ".body." in path} == {3}
    assert {time.runs for path, time in times.items() if ".condition." in path} == {4}
    assert all(time.nanoseconds > 0 for time in times.values()) and 0 < run.seconds < 60
    rows = [*run.events]
    assert len(rows) == sum(time.runs for time in times.values()) and all(0 <= e.begin <= e.end for e in rows)
    (found,) = run.outputs
    expected = np.asarray(rlx.jit(loops)(X))
    np.testing.assert_allclose(np.asarray(backends.memory_named("opencl").get(found, expected.shape, expected.dtype)),
                               expected, rtol=1e-4, atol=1e-5)  # fmt: skip


def test_a_profile_of_a_device(opencl: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peaks are the device's; kernels have their lines, and bytes in a second."""
    asked: list[str] = []

    def peaks_for(evidence: Any) -> Peaks:
        asked.append(str(rlx.config.device))
        return Peaks(asked[-1], 1, ((1 << 20, 1e15),), ((1 << 20, 1e15),), 1e15, 1e15)

    monkeypatch.setattr(importlib.import_module("rlx.profiling.profile"), "peaks_for", peaks_for)
    found = rlx.profile(lambda x: jnp.exp(x) * 2, runs=2)(rlx.device_put(X, "opencl"))
    (kernel,) = found.kernels
    assert asked == ["opencl"] == [found.device] and "test_timed_devices.py" in kernel.source
    assert kernel.gigabytes_per_second is not None and kernel.gigabytes_per_second > 0
    assert kernel.efficiency is not None and 0 < kernel.efficiency < 1
