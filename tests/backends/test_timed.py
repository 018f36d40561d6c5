"""Timed executables: the same results, a time for every kernel, and nothing of it in other tables."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.backends.base import Executable
from rlx.backends.cpu.runtime.entry import load_runtime
from rlx.backends.cpu.runtime.table import build_table
from rlx.backends.timing import TimedRun
from rlx.ir.kernels import nested_plans
from rlx.storage import from_numpy

X = np.random.default_rng(3).normal(size=(40, 40)).astype("f4") / 6


def scanned(x: Any) -> Any:
    return rlx.lax.scan(lambda c, v: (jnp.sort(c @ v), jnp.sum(c)), x, jnp.stack([x] * 4))


def nested(x: Any) -> Any:
    def inner(c: Any, v: Any) -> Any:
        return rlx.lax.cond(v[0] > 0, lambda a: jnp.sort(a @ x), lambda a: jnp.cumsum(a @ a, 0), c), None

    return rlx.lax.fori_loop(0, 3, lambda i, c: rlx.lax.scan(inner, c, x[:2])[0], x)


def large(x: Any) -> Any:
    wide = jnp.broadcast_to(x[None], (300, 40, 40))
    return jnp.tanh(wide * 2).sum((1, 2)), jnp.cumsum(wide, 0)[-1]


def host(x: Any) -> Any:
    return rlx.pure_callback(np.sin, rlx.ShapeDtypeStruct((40, 40), "float32"), x) * 2


PROGRAMS: list[Callable[..., Any]] = [scanned, nested, large, host, lambda x: jnp.linalg.inv(x @ x.T + jnp.eye(40))]


def executable_of(function: Callable[..., Any]) -> Executable:
    found = rlx.inspect(function)(X).executable
    assert found is not None
    return found


def arrays(executable: Executable, storages: Any) -> list[np.ndarray]:
    pairs = zip(storages, executable.plan.outputs, strict=True)
    return [storage.view((buffer.size,), buffer.dtype).copy() for storage, buffer in pairs]


@pytest.mark.parametrize("function", PROGRAMS)
def test_results_are_the_same(function: Callable[..., Any]) -> None:
    executable = executable_of(function)
    expected = arrays(executable, executable.run([from_numpy(X)]))
    timed = executable.timed()
    for _ in range(3):
        run = timed.run([from_numpy(X)])
        for got, exact in zip(arrays(executable, run.outputs), expected, strict=True):
            np.testing.assert_array_equal(got, exact)
        check(run, len(timed.steps))


def check(run: TimedRun, steps: int) -> None:
    """Times are sums over events, and events follow one another."""
    assert len(run.times) == steps
    for number, (nanoseconds, runs) in enumerate(run.times):
        own = [event for event in run.events if event.step == number]
        assert len(own) == runs
        assert 0 <= nanoseconds <= sum(event.end - event.begin for event in own)
    for before, after in pairwise(run.events):
        assert before.begin <= before.end <= after.begin


@pytest.mark.parametrize("function", PROGRAMS)
def test_every_top_level_kernel_is_timed_in_order(function: Callable[..., Any]) -> None:
    executable = executable_of(function)
    steps = executable.timed().steps
    assert [s.kernel for s in steps if "." not in s.path] == list(executable.plan.kernels)
    assert len({s.path for s in steps}) == len(steps)
    for step in steps:
        if "." in step.path:
            holder = next(s.kernel for s in steps if s.path == step.path.rsplit(".", 2)[0])
            assert holder is not None and any(step.kernel in plan.kernels for plan in nested_plans(holder))


def test_other_tables_have_no_clock() -> None:
    plan = executable_of(nested).plan
    steps = load_runtime().addresses
    plain, timed = build_table(plan, steps), build_table(plan, steps, timed=True)
    assert plain.clock is None and timed.clock is not None
    assert steps["clock_step"] not in plain.rows and steps["clock_step"] in timed.rows
    assert len(plain.slots) == len(timed.slots) - 1 and plain.arena == timed.arena
    clocks = int((timed.rows == steps["clock_step"]).sum())
    assert clocks == len(timed.clock.steps) and len(timed.rows) == len(plain.rows) + 4 * clocks
