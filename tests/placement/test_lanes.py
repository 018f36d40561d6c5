"""Parts of different devices, and copies, that run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from simulated_device import SimulatedBackend, SimulatedStorage, simulated

import rlx
import rlx.numpy as jnp
from rlx.errors import JaxRuntimeError
from rlx.passes.pipeline import executables
from rlx.placement import executable, lanes
from rlx.placement.executable import PlacedExecutable
from rlx.placement.rates import COSTS
from rlx.placement.schedule import makespan
from rlx.placement.stored_rates import forget_rates, keep_rates

CHUNKS = np.cos(np.arange(6 * 64 * 64, dtype=np.float32)).reshape(6, 64, 64)
COPIES = {"latency": 100.0, "link": 300.0}  # about as long as the kernels


def two_stages(chunks: Any) -> Any:
    """Products on the program's device, then sorts on the other one, of each chunk."""
    products = [jnp.tanh(c @ c) for c in chunks]
    with rlx.place("second"):
        rows = [jnp.sort(p, 0) for p in products]
    return sum(r.sum() for r in rows)


@pytest.fixture
def pair() -> Iterator[tuple[SimulatedBackend, SimulatedBackend]]:
    """Two devices, on which a stage of a chunk takes about a millisecond."""
    rlx.clear_caches()
    first = {n: 200.0 for n in COSTS} | COPIES | {"call": 1.0, "launch": 1.0}
    with simulated("first", first) as one, simulated("second", first) as two:
        keep_rates(one.secret)
        keep_rates(two.secret)
        yield one, two
    forget_rates()
    rlx.clear_caches()


def compiled(function: Any, *args: Any) -> PlacedExecutable:
    """The placed executable of a function, after a run."""
    expected = rlx.jit(function, device="cpu")(*args) if function is not two_stages else reference(*args)
    np.testing.assert_allclose(rlx.jit(function, device="first")(*args), expected, rtol=1e-4)
    return [e for _, e in executables._entries.values() if isinstance(e, PlacedExecutable)][-1]


def reference(chunks: np.ndarray) -> np.ndarray:
    return sum(np.sort(np.tanh(c @ c), 0).sum() for c in chunks)


def finished(program: PlacedExecutable, pair: tuple[SimulatedBackend, ...]) -> float:
    """When the result of a run is there, on the simulated clock."""
    for device in pair:
        device.restart()
    inputs = [pair[0].memory.put(CHUNKS)]
    (result,) = program.run(inputs)
    assert isinstance(result, SimulatedStorage)
    np.testing.assert_allclose(result.held.view((), np.dtype(np.float32)), reference(CHUNKS), rtol=1e-4)
    return result.ready


def test_a_stage_begins_while_the_one_before_it_runs(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, the program takes as long as its schedule, and not as long as its segments one after another."""
    program = compiled(two_stages, CHUNKS)
    assert program.together and len(program.segments) > 8
    together = finished(program, pair)
    assert together == pytest.approx(makespan(program.steps), rel=1e-6)
    monkeypatch.setattr(executable, "_WORTHWHILE", float("inf"))
    places = {e: s.device for s in program.segments for e in s.program.equations}
    whole = PlacedExecutable(program.program, places, pair[0])
    assert not whole.together and len(whole.segments) == 3
    assert together < 0.8 * finished(whole, pair)


def test_kernels_of_two_devices_run_at_the_same_time(pair: Any) -> None:
    """Each waits for the other: the second run of one, and the first run of the other."""
    one, two = pair
    program = compiled(two_stages, CHUNKS)
    started = threading.Event(), threading.Event()
    met: list[bool] = []

    def first(number: int) -> None:
        if number == 2:
            started[0].set()
            met.append(started[1].wait(60))

    def second(number: int) -> None:
        if number == 1:
            started[1].set()
            met.append(started[0].wait(60))

    one.runs = two.runs = 0
    one.hook, two.hook = first, second
    finished(program, pair)
    assert met == [True, True]


def test_short_programs_run_in_order() -> None:
    rlx.clear_caches()

    def f(x: Any) -> Any:
        y = x + 1.0
        with rlx.place("second"):
            z = y * 2.0
        return z.sum()

    with simulated("second") as quick, simulated("first") as home:
        keep_rates(quick.secret)
        keep_rates(home.secret)
        assert not compiled(f, np.ones(4, np.float32)).together
    forget_rates()
    rlx.clear_caches()


def test_an_error_ends_all_lanes_and_names_its_part(pair: Any) -> None:
    program = compiled(two_stages, CHUNKS)
    pair[1].fails = True
    with pytest.raises(JaxRuntimeError, match="simulated device fails") as caught:
        finished(program, pair)
    assert any("jnp.sort" in note and "'second'" in note for note in caught.value.__notes__)
    before = pair[0].runs
    pair[1].fails = False
    finished(program, pair)
    assert pair[0].runs > before


def test_without_threads_steps_run_in_order(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(two_stages, CHUNKS)
    real = lanes.in_background
    started: list[int] = []

    def refused(work: Any) -> Any:
        started.append(0)
        if len(started) == 2:  # as if there were one thread too many
            work()
            done = threading.Lock()
            return done
        return real(work)

    monkeypatch.setattr(lanes, "in_background", refused)
    finished(program, pair)
    assert len(started) > 2


def test_values_are_freed_after_their_last_reader(pair: Any) -> None:
    program = compiled(two_stages, CHUNKS)
    used = [device.memory.used for device in pair]
    for _ in range(3):
        finished(program, pair)
    assert [device.memory.used for device in pair] == used
