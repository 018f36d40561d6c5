"""Several Python threads at once; Ctrl-C in the middle of native loops."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx import lax


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
        sys.exit("the loop ended by itself")
    thread.join()
    return took
"""

LOOPS = {
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
}


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process itself")
@pytest.mark.parametrize("name", LOOPS)
def test_interrupt_stops_a_native_loop_within_a_second(name: str) -> None:
    """And what was compiled, and the thread pool, work afterwards, and can be interrupted again."""
    code = (
        AFTERWARDS
        + textwrap.dedent(LOOPS[name])
        + textwrap.dedent(
            """
        f.lower(*arguments).compile()
        took = [interrupted(lambda: f(*arguments)) for _ in range(2)]
        assert min(took) < 1.0, took  # a busy machine may delay one
        g = rlx.jit(lambda x: (x @ x.T).sum() + jnp.sin(x).sum())
        x = np.ones((300, 300))
        assert abs(float(g(x)) - (300.0**3 + np.sin(1.0) * 90000)) < 1e-6
        assert int(rlx.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0))(5)) == 10
        print("usable", took)
        """
        )
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
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
