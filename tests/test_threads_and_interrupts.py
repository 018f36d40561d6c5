"""Several Python threads at once; Ctrl-C in the middle of native work."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax
from rlx.call import jitted
from rlx.call.compiled import CompiledProgram


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """work(0) ... work(count - 1) at the same time; raises what any of them raised."""
    results: list[Any] = [None] * count
    failures: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(i: int) -> None:
        try:
            barrier.wait()
            results[i] = work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failures, failures
    return results


def test_one_function_from_many_threads_is_traced_once() -> None:
    """And every thread gets its own result."""
    traces = []

    @rlx.jit
    def f(x: Any) -> Any:
        traces.append(1)
        return jnp.sin(x).sum() + x[0]

    found = in_threads(8, lambda i: [float(f(np.full(100, float(i)))) for _ in range(20)])
    for i, values in enumerate(found):
        np.testing.assert_allclose(values, np.sin(float(i)) * 100 + i, rtol=1e-12)
    assert len(traces) == 1


def test_a_slow_function_is_traced_and_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other threads come while the first one traces, and again while it compiles."""
    traces, compiled = [], []

    @rlx.jit
    def f(x: Any) -> Any:
        traces.append(1)
        time.sleep(0.2)  # other threads run meanwhile
        return jnp.tanh(x) * 3.25 + x

    made = CompiledProgram.__init__

    def slow(self: Any, *args: Any, **kwargs: Any) -> None:
        compiled.append(1)
        time.sleep(0.2)
        made(self, *args, **kwargs)

    monkeypatch.setattr(jitted.CompiledProgram, "__init__", slow)

    def work(i: int) -> list[float]:
        return np.asarray(f(np.full(3, float(i)))).tolist()

    found = in_threads(4, work)
    for i, values in enumerate(found):
        np.testing.assert_allclose(values, np.tanh(float(i)) * 3.25 + i, rtol=1e-12)
    assert (len(traces), len(compiled)) == (1, 1)


def test_different_signatures_at_once() -> None:
    """Traces of several threads do not mix."""
    f = rlx.jit(lambda x: (x * jnp.arange(x.shape[0])).sum())
    found = in_threads(6, lambda i: float(f(np.ones(i + 1))))
    assert found == [i * (i + 1) / 2 for i in range(6)]
    assert f.cache_info().currsize == 6


def test_transforms_in_threads() -> None:
    """Builders, switches and named axes belong to a thread."""

    def work(i: int) -> float:
        with rlx.scoped(default_float=np.dtype("f8" if i % 2 else "f4")):
            x = jnp.ones(3) * i
            y = rlx.grad(lambda v: rlx.vmap(lambda a: lax.psum(a * a, "i"), axis_name="i")(v).sum())(x)
            assert x.dtype == (np.float64 if i % 2 else np.float32)
            return float(y[0])

    assert in_threads(6, work) == [6.0 * i for i in range(6)]


def test_a_failure_in_one_thread_leaves_the_others_alone() -> None:
    """The failed call raises there, and works again."""
    f = rlx.jit(lambda x, y: x + y)

    def work(i: int) -> float:
        if i % 2:
            with pytest.raises(rlx.errors.ShapeError):
                f(np.ones(2), np.ones(3))
        return float(f(np.ones(2), np.full(2, float(i)))[0])

    assert in_threads(4, work) == [1.0, 2.0, 3.0, 4.0]


def test_clearing_caches_while_others_call() -> None:
    """A cleared function is traced again, never wrong."""
    f = rlx.jit(lambda x: x * 3 + 1)

    def work(i: int) -> bool:
        if i == 0:
            for _ in range(5):
                rlx.clear_caches()
            return True
        return all(float(f(float(n))) == 3.0 * n + 1 for n in range(50))

    assert all(in_threads(4, work))


# ---------------------------------------------------------------------- Ctrl-C
AFTERWARDS = """
import os, signal, sys, threading, time
import numpy as np
import rlx, rlx.numpy as jnp
from rlx import lax

def curves(x):
    for _ in range(60):
        x = jnp.sin(x) + jnp.cos(x * 1.1)
    return x

def interrupted(work):
    # Ctrl-C half a second into `work`; how long the stop took
    sent = []
    def send():
        time.sleep(0.5)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        work()
    except KeyboardInterrupt:
        took = time.perf_counter() - sent[0]
    else:
        sys.exit("it ended by itself")
    thread.join()
    return took
"""

LONG_WORK = {
    "a while loop": """
        advance = lambda s: (s[0] + 1, jnp.sin(s[1]))
        f = rlx.jit(lambda x: lax.while_loop(lambda s: s[0] < 10**12, advance, (jnp.int64(0), x))[1])
        arguments = (jnp.float64(0.5),)
    """,
    "a scan over large products": """
        f = rlx.jit(lambda x: lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, None, length=10**9)[0])
        arguments = (jnp.asarray(np.eye(128)),)
    """,
    "a reverse pass": """
        loop = lambda x: lax.while_loop(lambda s: s[0] < 10**9, lambda s: (s[0] + 1, jnp.sin(s[1]) + x), (0, x))[1]
        f = rlx.jit(rlx.grad(loop))
        arguments = (jnp.float64(0.5),)
    """,
    # each of these is one kernel of several seconds
    "one elementwise kernel": """
        f = rlx.jit(curves)
        arguments = (jnp.linspace(0, 1, 50_000_000),)
    """,
    "one elementwise kernel on one thread": """
        rlx.set_num_threads(1)
        f = rlx.jit(curves)
        arguments = (jnp.linspace(0, 1, 50_000_000),)
    """,
    "one kernel of row sums": """
        f = rlx.jit(lambda x: jnp.sin(x[:, None] + x).sum(1))
        arguments = (jnp.linspace(0, 1, 120_000),)
    """,
    "one matrix product": """
        f = rlx.jit(lambda x: x @ x)
        arguments = (jnp.ones((12000, 12000), jnp.float32),)
    """,
    "row tiles": """
        f = rlx.jit(lambda x, w, b, v: curves(x @ w + b) @ v)
        arguments = (jnp.ones((300_000, 64)), jnp.ones((64, 128)), jnp.ones(128), jnp.ones((128, 32)))
    """,
    "a batch of factorisations": """
        f = rlx.jit(lambda x: jnp.linalg.svd(x)[1])
        arguments = (jnp.tile(jnp.sin(jnp.arange(65536.0)).reshape(256, 256), (1000, 1, 1)),)
    """,
    # nothing looks for Ctrl-C inside of these: they are abandoned, and end behind the main thread
    "one sort": """
        f = rlx.jit(jnp.argsort)
        arguments = (jnp.sin(np.arange(2e7)),)
    """,
    "one factorisation": """
        f = rlx.jit(jnp.linalg.eigvalsh)
        arguments = (jnp.sin(jnp.arange(16e6)).reshape(4000, 4000),)
    """,
}


@pytest.mark.selected(1)
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process itself")
@pytest.mark.parametrize("name", LONG_WORK)
def test_interrupt_stops_native_work(name: str) -> None:
    """Within half a second; a loaded machine may need longer to run a thread that has just been woken.

    What was compiled, and the thread pool, work afterwards, and can be interrupted again.
    """
    code = (
        AFTERWARDS
        + textwrap.dedent(LONG_WORK[name])
        + textwrap.dedent(
            """
        f.lower(*arguments).compile()
        # no end is in sight but that of the interrupt
        took = [interrupted(lambda: f(*arguments)) for _ in range(2)]
        g = rlx.jit(lambda x: (x @ x.T).sum() + jnp.sin(x).sum())
        x = np.ones((300, 300))
        assert abs(float(g(x)) - (300.0**3 + np.sin(1.0) * 90000)) < 1e-6
        assert int(rlx.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0))(5)) == 10
        print("usable", took)
        """
        )
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "usable" in done.stdout


def test_an_interrupt_while_tracing_leaves_no_builder_open() -> None:
    """KeyboardInterrupt in the user's function is an exception like any other."""

    def f(x: Any, stop: bool) -> Any:
        if stop:
            raise KeyboardInterrupt
        return x + 1

    g = rlx.jit(f, static_argnums=1)
    with pytest.raises(KeyboardInterrupt):
        rlx.grad(lambda x: g(x, True))(1.0)
    assert float(g(1.0, False)) == 2.0
    assert isinstance(jnp.add(1.0, 1.0).item(), float)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process itself")
def test_an_interrupted_kernel_leaves_its_arguments() -> None:
    """A donated array too: it is given away by calls that return."""
    code = AFTERWARDS + textwrap.dedent("""
        f = rlx.jit(curves, donate_argnums=0)
        x = jnp.linspace(0, 1, 50_000_000)
        before = np.array(x)
        took = interrupted(lambda: f(x))
        assert np.array_equal(x, before)
        np.testing.assert_array_equal(rlx.jit(curves)(x[:1000]), f(x)[:1000])
        print("usable", took)
        """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "usable" in done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process itself")
def test_abandoned_work_holds_its_memory() -> None:
    """It reads and writes nothing that later calls use; the process ends when it has ended."""
    code = AFTERWARDS + textwrap.dedent("""
        f = rlx.jit(lambda x: x[jnp.argsort(x)] * 2.0, donate_argnums=0)
        x = jnp.sin(np.arange(2e7))
        before = np.array(x)
        took = interrupted(lambda: f(x))
        results = [np.array(jnp.full(20_000_000, np.float64(n))) for n in range(4)]
        assert all((result == n).all() for n, result in enumerate(results))
        assert np.array_equal(x, before)
        assert np.array_equal(f(x), 2.0 * np.sort(before))
        print("usable", took)
        """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "usable" in done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timers that send signals")
def test_handlers_that_return_let_the_work_go_on() -> None:
    """They run in the midst of it, may use rlx themselves, and the result is whole."""
    code = AFTERWARDS + textwrap.dedent("""
        f = rlx.jit(curves)
        x = jnp.linspace(0, 1, 10_000_000)
        expected = np.array(f(x))
        sums = []
        signal.signal(signal.SIGALRM, lambda *_: sums.append(float(jnp.sin(jnp.ones(100_000)).sum())))
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        found = np.array(f(x))
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert np.array_equal(found, expected)
        assert sums and np.allclose(sums, 1e5 * np.sin(1.0)), sums
        print("usable", len(sums))
        """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "usable" in done.stdout
