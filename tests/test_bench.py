"""rlx.bench: clocks, turns, results beside those of others, patterns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import bench
from rlx.bench.harness import result_of
from rlx.errors import OptionError
from rlx.ir.work import Work


def test_a_tick_measures_in_each_unit() -> None:
    start = bench.Tick.now()
    time.sleep(0.01)
    passed = start.elapsed_ns()
    assert 10_000_000 <= passed <= 1000 * start.elapsed_us() <= 1e6 * start.elapsed_ms()
    assert bench.Tick(7) - bench.Tick(3) == 4
    assert repr(bench.Tick(7)) == "Tick(7)"


def test_time_ns_gives_the_result_too() -> None:
    result, nanoseconds = bench.time_ns(lambda: time.sleep(0.005) or "done")
    assert result == "done"
    assert nanoseconds >= 5_000_000


def test_a_cache_buster_touches_every_line() -> None:
    buster = bench.CacheBuster(1 << 16)
    buster.thrash()
    buster.thrash()
    assert (buster._words.reshape(-1, 8)[:, 0] == 2).all()
    with pytest.raises(OptionError, match="at least 64"):
        bench.CacheBuster(8)


def test_everybody_has_turns() -> None:
    """And a long call has one in a turn, a short one many."""
    counts = [0, 0]

    def short() -> None:
        counts[0] += 1

    def long() -> None:
        counts[1] += 1
        time.sleep(0.03)

    times = bench.times_in_turn([short, long], 3)
    assert len(times[1]) == 3
    assert len(times[0]) > 30
    assert counts[0] > len(times[0])
    assert min(times[1]) >= 0.03


def test_a_result_is_percentiles_and_rates() -> None:
    work = Work(flops=2_000_000, reads=8_000_000)
    found = result_of("f", [0.001 * n for n in range(100, 0, -1)], 0.5, work, None)
    assert (found.calls, found.p50, found.p95, found.p99, found.min) == (100, 0.05, 0.095, 0.099, 0.001)
    assert found.gflops == pytest.approx(2e6 / 0.05 / 1e9)
    assert found.gbytes == pytest.approx(work.bytes / 0.05 / 1e9)
    assert result_of("f", [1.0], 1.0, Work(exact=False), None).gflops is None


def test_peers_get_numpy_arrays_are_waited_for_and_compared() -> None:
    seen: list[Any] = []

    class Lazy:
        def __init__(self, x: Any) -> None:
            seen.append(type(x))
            self.x = x

        def block_until_ready(self) -> None:
            seen.append("waited")

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.tanh(self.x)

    peers = {"same": np.tanh, "lazy": Lazy, "wrong": np.sinh, "other shape": lambda x: np.tanh(x)[:1]}
    found = bench.run(jnp.tanh, [jnp.linspace(0, 1, 8)], peers, rounds=1)
    holds = {name: peer.parity.holds for name, peer in found.peers.items()}
    assert holds == {"same": True, "lazy": True, "wrong": False, "other shape": False}
    assert "DIFFERS" in str(found)
    assert found.parity is None
    assert found.calls >= 1
    assert found.first_call > 0
    assert seen[:2] == [np.ndarray, "waited"]


def test_arguments_may_be_trees_and_functions_jitted() -> None:
    f = rlx.jit(lambda p, x: p["w"] * x)
    found = bench.run(f, [{"w": 2.0}, np.ones(3)], {"numpy": lambda p, x: p["w"] * x}, rounds=1)
    assert found.peers["numpy"].parity.holds
    assert isinstance(found, bench.Result)
    assert found.gbytes is not None


def test_mistakes() -> None:
    with pytest.raises(OptionError, match="rounds=0"):
        bench.run(jnp.sin, [1.0], rounds=0)
    with pytest.raises(OptionError, match="a peer called sin"):
        bench.run(jnp.sin, [1.0], {"sin": np.sin})
    with pytest.raises(OptionError, match="Did you mean matmul"):
        bench.run_benchmark("matmull")


@pytest.mark.parametrize("name", bench.PATTERNS)
def test_patterns_are_one_program_in_two_libraries(name: str) -> None:
    """And in float32, with no number that is not finite."""
    pattern = bench.PATTERNS[name]
    arguments = pattern.arguments(seed=1)
    ours = rlx.jit(pattern.function())(*arguments)
    theirs = pattern.function(np)(*arguments)
    assert np.isfinite(np.asarray(ours)).all()
    assert ours.dtype == np.float32
    assert bench.parity([np.asarray(ours)], [np.asarray(theirs)]).holds


def test_a_pattern_is_run_beside_a_namespace() -> None:
    small = bench.BenchmarkPattern("small", lambda xp: lambda x: xp.exp(x).sum(), ((64,),))
    found = bench.run_benchmark(small, {"numpy": np}, rounds=1)
    assert found.name == "small"
    assert found.peers["numpy"].parity.holds
