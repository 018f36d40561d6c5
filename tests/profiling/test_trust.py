"""Profiles of real programs can be believed: their kernels add up to the call, the first time as well as later.

Times are taken on whatever machine runs the tests, so what is compared is taken in turns, on arrays of megabytes, and
`holds` says how often a comparison may be repeated, and when the machine is too busy for any. What can be counted
instead (memory, page faults) is counted, however busy it is.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.profiling import Profile, machine_peaks, peaks, profile
from rlx.profiling.timed_call import TimedCall
from rlx.storage import clear_pool, pool_bytes

ATTEMPTS = 9  # beside another test on two processors a profile of half a millisecond is off by two every other time
BUSY = 1.5
ORDER = 1024
UNARY = (jnp.tanh, jnp.exp, jnp.sin, jnp.sqrt, jnp.square, jnp.negative)
BINARY = (jnp.add, jnp.multiply, jnp.subtract, jnp.maximum)
AXES = (0, 1)


def holds(attempt: Callable[[], bool]) -> bool:
    """Whether one of some attempts succeeds: what other processes do meanwhile spoils one, a fault all of them.

    Where all failed and the machine is so busy that the time of a NumPy call means nothing, too, the test is skipped.
    """
    if any(attempt() for _ in range(ATTEMPTS)):
        return True
    quickest, median = numpy_times()
    if median > BUSY * quickest:
        pytest.skip(f"other processes take the processors: a NumPy call takes {quickest:.2g} to {median:.2g} s")
    return False


def numpy_times() -> tuple[float, float]:
    """The least and the median time of something that takes some milliseconds when a processor is free."""
    operand = np.full(1 << 18, 0.5)
    times = []
    for _ in range(60):
        start = time.perf_counter()
        np.sin(operand).sum()
        times.append(time.perf_counter() - start)
    return min(times), float(np.median(times))


def random_program(seed: int) -> Callable[..., Any]:
    """A function of two matrices: elementwise operations, reversals, row and column sums, a product."""

    def program(x: Any, y: Any) -> Any:
        generator = np.random.default_rng(seed)
        values = [x, y]
        for _ in range(generator.integers(4, 9)):
            one, other = (values[generator.integers(len(values))] for _ in range(2))
            match generator.integers(6):
                case 0:
                    found = one - one.mean(AXES[generator.integers(2)], keepdims=True)
                case 1:
                    found = jnp.flip(other, 0) + one
                case 2:
                    found = one / (1.0 + abs(other).sum(AXES[generator.integers(2)], keepdims=True))
                case 3:
                    found = jnp.cumsum(one, 1)
                case _:
                    found = BINARY[generator.integers(len(BINARY))](
                        UNARY[generator.integers(len(UNARY))](jnp.abs(one) + 0.5), other
                    )
            values.append(found)
        if generator.integers(2):
            values.append(values[-1][:, :256] @ values[-2][:256])
        return values[-1], values[-2].sum(0)

    return program


@pytest.fixture(scope="module")
def matrices() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return tuple(generator.random((ORDER, ORDER), "f4") for _ in range(2))


@pytest.mark.thorough
def test_kernels_add_up_to_the_call(matrices: tuple[np.ndarray, np.ndarray]) -> None:
    """Within 30% of the call without clocks, for nine of ten programs; three attempts.

    Each program has arrays of a size of its own, so that none finds memory that another one has touched.
    """
    ratios: list[list[float]] = []
    clear_pool()

    def attempt() -> bool:
        rows = [slice(ORDER * (8 + seed) // 18) for seed in range(10)]
        found = [profile(random_program(seed), runs=5)(*(m[r] for m in matrices)) for seed, r in enumerate(rows)]
        ratios.append([f.seconds / f.call_seconds for f in found])
        return sum(0.7 <= ratio <= 1.3 for ratio in ratios[-1]) >= 9

    assert holds(attempt), ratios


def test_the_call_is_the_users(matrices: tuple[np.ndarray, np.ndarray]) -> None:
    """The profile's call without clocks takes as long as calls of the jitted function; three attempts."""
    function = rlx.jit(random_program(3))
    arrays = [jnp.asarray(m) for m in matrices]
    call = TimedCall(function, arrays, {})
    ratios: list[float] = []

    def called() -> float:
        start = time.perf_counter()
        function(*arrays)
        return time.perf_counter() - start

    def attempt() -> bool:
        pairs = [(call.round().call, called()) for _ in range(12)][2:]
        own, users = np.median(np.array(pairs), axis=0)
        ratios.append(float(own / users))
        return 0.7 <= ratios[-1] <= 1.3

    assert holds(attempt), ratios


def test_runs_keep_no_results(matrices: tuple[np.ndarray, np.ndarray]) -> None:
    """Each run writes where the one before wrote: no memory is fresh, which would cost more than the kernels."""
    function = rlx.jit(lambda x, y: (x + y, x - y))
    call = TimedCall(function, matrices, {})
    call.round()
    before = pool_bytes()
    rounds = [call.round() for _ in range(10)]
    assert pool_bytes() == before and all(not r.run.outputs for r in rounds)


def test_runs_touch_no_fresh_memory(matrices: tuple[np.ndarray, np.ndarray]) -> None:
    resource = pytest.importorskip("resource")  # not on Windows
    function = rlx.jit(lambda x, y: (x + y, x - y))
    call = TimedCall(function, matrices, {})
    for _ in range(3):
        call.round()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    rounds = [call.round() for _ in range(10)]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    pages = 2 * matrices[0].nbytes // resource.getpagesize()  # that one run writes
    assert len(rounds) == 10 and faults < pages / 2


FIRST = """
import numpy as np
import rlx, rlx.numpy as jnp

def normalise(x):
    centred = x - x.mean(1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)

x = np.random.default_rng(0).random((2048, 2048), "f4")
first, second = (rlx.profile(normalise)(x) for _ in range(2))
print(first.seconds, second.seconds, first.call_seconds)
"""


@pytest.mark.thorough
def test_the_first_profile_of_a_process_is_as_right_as_the_second() -> None:
    """Within 30% of the second, and of the call without clocks; three processes."""
    found: list[list[float]] = []

    def attempt() -> bool:
        out = subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True, text=True).stdout
        found.append([float(word) for word in out.split()])
        first, second, call = found[-1]
        return 0.7 <= first / second <= 1.3 and 0.7 <= first / call <= 1.3

    assert holds(attempt), found


@pytest.mark.thorough
def test_no_share_is_over_one(
    matrices: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of real kernels of all kinds, though the peaks were measured when the machine did a tenth of what it can."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    best = machine_peaks()
    slow = ((1 << 20, best.copies[0][1] / 10),)
    busy = replace(best, copies=slow, reads=slow, float32_products=best.float32_products / 10)
    monkeypatch.setattr(peaks, "_known", {(best.device, best.threads): busy})
    monkeypatch.setattr(peaks, "_doubted", set())

    def programs(x: Any, y: Any) -> Any:
        index = jnp.argsort(x[0])
        products = jnp.tanh(x @ y) @ y
        return products, x[index].sum(), jnp.full(x.shape, y[0, 0]), rlx.nn.softmax(y), x.at[index].add(1.0), x.max()

    found: Profile = profile(programs, runs=5)(*matrices)
    shares = [kernel.efficiency for kernel in found.kernels]
    assert all(share is None or 0 < share <= 1 for share in shares) and any(share is not None for share in shares)
    assert all(kernel.efficiency is not None for kernel in found.kernels if kernel.kind == "Contract")
    assert found.peaks.float32_products > 2 * busy.float32_products
