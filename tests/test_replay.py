"""Composite functions called eagerly again and again: replays give what the first call gave, to the last bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.config import config
from rlx.errors import NanError, SwitchError
from rlx.trace import replay
from rlx.trace.replay import replayed

rng = np.random.default_rng(2)
X = jnp.asarray(rng.normal(size=(4, 5)).astype(np.float32))
V = jnp.asarray(rng.normal(size=7).astype(np.float32))
I = jnp.array([3, -1, 9, 0])  # noqa: E741

CALLS = {
    "var": lambda: jnp.var(X, axis=1, ddof=1),
    "std": lambda: X.std(),
    "median": lambda: jnp.median(V),
    "quantile": lambda: jnp.quantile(V, jnp.array([0.25, 0.5]), method="nearest"),
    "linspace": lambda: jnp.linspace(0, 2, 7),
    "linspace step": lambda: jnp.linspace(V[0], 2, 7, retstep=True),
    "take": lambda: jnp.take(V, I),
    "take wrap": lambda: jnp.take(X, I, axis=1, mode="wrap"),
    "softmax": lambda: rlx.nn.softmax(X),
    "logsumexp": lambda: rlx.nn.logsumexp(X, axis=-1, keepdims=True),
    "gelu": lambda: rlx.nn.gelu(X),
    "einsum": lambda: jnp.einsum("ij,kj->ik", X, X),
    "norm": lambda: jnp.linalg.norm(X, axis=0),
    "pad": lambda: jnp.pad(V, (1, 2), constant_values=3.0),
    "set": lambda: V.at[2].set(1.0),
    "set slices": lambda: X.at[1:3, ::-2].set(jnp.ones(3)),
    "add": lambda: V.at[I].add(jnp.arange(4.0)),
    "add outside": lambda: V.at[I].add(1.0, mode="clip"),
    "multiply mask": lambda: X.at[X > 0].multiply(2),
    "clip weak": lambda: jnp.clip(jnp.asarray(2.0), 0, 1),
    "stack": lambda: jnp.stack([V, V, V[::-1]]),
    "nanmean": lambda: jnp.nanmean(X.at[0, 0].set(jnp.nan), axis=0),
    "split": lambda: rlx.random.split(rlx.random.PRNGKey(7), 5),
    "uniform": lambda: rlx.random.uniform(rlx.random.PRNGKey(7), (3, 2)),
    "normal": lambda: rlx.random.normal(rlx.random.key(1), (11,), jnp.float16),
}


def programs_of(function):
    return next(c.cell_contents for c in function.__closure__ if isinstance(c.cell_contents, dict))


def same(a, b):
    for x, y in zip(rlx.tree.leaves(a), rlx.tree.leaves(b), strict=True):
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("name", CALLS)
def test_later_calls_equal_the_first(name, monkeypatch):
    later = [CALLS[name]() for _ in range(4)]
    monkeypatch.setitem(vars(config), "watched", True)  # every call runs its operations
    plain = CALLS[name]()
    for result in later:
        same(result, plain)
    assert rlx.tree.structure(later[3]) == rlx.tree.structure(plain)


def test_the_second_call_stages_and_later_ones_do_not_run_the_function():
    runs = []

    @replayed
    def f(x, scale):
        runs.append(scale)
        return jnp.sin(x) * scale, {"sum": x.sum()}

    results = [f(V, 2.0) for _ in range(5)]
    assert runs == [2.0, 2.0]  # run, then staged
    for result in results:
        same(result, results[0])
    f(V, 3.0)
    f(X, 2.0)
    assert runs == [2.0, 2.0, 3.0, 2.0]


def test_arguments_that_compare_equal_are_told_apart():
    @replayed
    def f(x, n):
        return x * n if isinstance(n, bool) else x / n

    for _ in range(4):
        assert f(V, 1).dtype == f(V, 1.0).dtype == np.float32
        same(f(V, True), V * True)
        assert f(jnp.ones(()), 0.0).item() == np.inf
        assert f(jnp.ones(()), -0.0).item() == -np.inf


def test_weakness_and_switches_are_part_of_the_call():
    def f():
        return jnp.linspace(0, 1, 3)

    for _ in range(3):
        assert f().dtype == np.float32
        with rlx.enable_x64(True):
            assert f().dtype == np.float64
    weak, strong = jnp.asarray(2.0), jnp.asarray(2.0, jnp.float32)
    assert weak.weak_type
    for _ in range(3):
        assert jnp.clip(weak, 0, 1).weak_type
        assert not jnp.clip(strong, 0, 1).weak_type


def test_values_that_decide_what_is_computed_are_looked_at_each_time():
    @replayed
    def f(x):
        return x + 1 if x.sum() > 0 else x - 1

    for _ in range(4):
        same(f(V * 0 + 1), V * 0 + 2)
        same(f(V * 0 - 1), V * 0 - 2)


def test_errors_and_watched_values_stay():
    for _ in range(3):
        with pytest.raises(ValueError):
            jnp.stack([V, X])
        with pytest.raises(TypeError):
            jnp.var("words")
    zeros = jnp.zeros(3)
    for _ in range(3):
        rlx.nn.logsumexp(zeros / 1)
        jnp.var(zeros[:0])
    with rlx.scoped(debug_nans=True), pytest.raises(NanError):
        jnp.var(zeros[:0])


def test_nothing_runs_where_nothing_may():
    for _ in range(3):
        jnp.var(V)
    with rlx.no_execution():
        for _ in range(2):
            with pytest.raises(SwitchError):
                jnp.var(V)


def test_transforms_see_the_operations():
    for _ in range(3):
        jnp.var(V)
    slope = rlx.grad(jnp.var)(V)
    np.testing.assert_allclose(slope, 2 * (V - V.mean()) / 7, rtol=1e-5)
    assert rlx.vmap(jnp.median)(X).shape == (4,)


def test_results_do_not_share_memory_with_each_other():
    first, second = (jnp.clip(V, -1, 1) for _ in range(2))
    third, fourth = (jnp.clip(V, -1, 1) for _ in range(2))
    arrays = [np.asarray(a) for a in (first, second, third, fourth)]
    assert not any(np.shares_memory(a, b) for n, a in enumerate(arrays) for b in arrays[:n])


def test_threads():
    results = []

    def work():
        for _ in range(50):
            results.append(jnp.var(X, axis=0))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 200
    for r in results:
        same(r, results[0])


def test_the_store_of_programs_is_bounded(monkeypatch):
    monkeypatch.setattr(replay, "_MOST", 8)

    @replayed
    def f(x, n):
        return x * n

    for n in range(100):
        same(f(V, float(n)), V * float(n))
    assert len(programs_of(f)) <= 8


def test_long_lists_are_data():
    @replayed
    def f(numbers):
        return jnp.asarray(numbers) * 2

    for _ in range(3):
        same(f(list(range(300))), jnp.arange(300) * 2)
        assert f([[1.0] * 20] * 20).shape == (20, 20)
    assert not programs_of(f)
