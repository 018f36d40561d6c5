"""Jitted functions in forked children, pools of processes, and many Python threads: right results, no deadlock."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp

ROOT = Path(rlx.__file__).resolve().parents[1]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
WORK = """
import os, sys, threading, time
import numpy as np
import rlx, rlx.numpy as jnp

jitted = rlx.jit(lambda x: (jnp.sin(x) @ jnp.cos(x).T).sum() + jnp.sort(jnp.exp(x), axis=0)[0].sum())
X = np.linspace(0, 1, 300 * 300).reshape(300, 300)

def work(n):
    return float(jitted(X * n))

def check(run):
    expected = [work(n) for n in range(4)]
    assert np.allclose(run(), expected, rtol=1e-12)
    assert np.allclose([work(n) for n in range(4)], expected, rtol=1e-12)
    print("done")

if __name__ == "__main__":
"""


def assert_done(folder: Path, body: str, **environment: str) -> None:
    """The work with `body` as its main part, in a process that a deadlock does not outlive."""
    script = folder / "script.py"
    script.write_text(WORK + "\n".join("    " + line for line in body.strip().splitlines()))
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": paths, **environment},
    )
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stdout + found.stderr


# ---------------------------------------------------------------------- pools
@pytest.mark.thorough
def test_workers_receive_jitted_functions_by_value(tmp_path: Path) -> None:
    """loky sends the functions of a main module whole, with the jitted ones that they use."""
    pytest.importorskip("joblib")
    body = """
import joblib
check(lambda: joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(work)(n) for n in range(4)))
"""
    assert_done(tmp_path, body)


@pytest.mark.thorough
def test_a_pool_of_processes_in_threads(tmp_path: Path) -> None:
    """Threads that call jitted functions while one of them waits for processes that do."""
    body = """
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as threads, multiprocessing.get_context("spawn").Pool(2) as pool:
    own = threads.map(work, range(4))
    far = threads.submit(pool.map, work, range(4))
    check(lambda: list(own))
    assert np.allclose(far.result(), [work(n) for n in range(4)], rtol=1e-12)
"""
    assert_done(tmp_path, body)


@pytest.mark.parametrize("number", ["1", "3"])
@pytest.mark.selected(1)
def test_the_number_of_threads_reaches_children(tmp_path: Path, number: str) -> None:
    body = f"""
import multiprocessing
with multiprocessing.get_context("spawn").Pool(1) as pool:
    assert pool.apply(rlx.get_num_threads) == {number}
    check(lambda: pool.map(work, range(4)))
"""
    assert_done(tmp_path, body, RLX_NUM_THREADS=number)


# ---------------------------------------------------------------------- forks at bad moments
CHILD = """
def child(run):
    number = os.fork()
    if number == 0:
        import faulthandler
        faulthandler.dump_traceback_later(20, exit=True)
        run()
        os._exit(0)
    assert os.waitpid(number, 0)[1] == 0, "the child failed or hung"
"""


@needs_fork
def test_a_child_can_call_what_another_thread_was_tracing(tmp_path: Path) -> None:
    """The lock that the thread held is free in the child."""
    body = (
        CHILD
        + """
inside, go_on = threading.Event(), threading.Event()
def slow(x):
    if threading.current_thread() is not threading.main_thread():
        inside.set()
        go_on.wait(60)
    return x * 2
slow = rlx.jit(slow)
thread = threading.Thread(target=slow, args=(np.ones(3),))
thread.start()
inside.wait(60)
child(lambda: slow(np.ones(3)))
go_on.set()
thread.join()
check(lambda: [work(n) for n in range(4)])
"""
    )
    assert_done(tmp_path, body)


@needs_fork
def test_a_child_can_import_what_another_thread_was_importing(tmp_path: Path) -> None:
    """Python leaves the lock of a half imported module to the child; the fork waits for the import instead."""
    body = (
        CHILD
        + """
import importlib
inside = threading.Event()
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "rlx.gguf":
            inside.set()
            time.sleep(0.3)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=importlib.import_module, args=("rlx.gguf",))
thread.start()
inside.wait(60)
child(lambda: importlib.import_module("rlx.gguf").dequantize)
importlib.import_module("rlx.gguf")
thread.join()
threading.Thread(target=importlib.import_module, args=("rlx.onnx",)).start()
check(lambda: [work(n) for n in range(4)])
"""
    )
    assert_done(tmp_path, body)


@pytest.mark.thorough
@needs_fork
def test_children_of_a_process_whose_threads_compile(tmp_path: Path) -> None:
    """Neither locks of Python nor those inside LLVM are left to them."""
    body = (
        CHILD
        + """
stop = []
def keep_compiling(number):
    while not stop:
        number += 2
        rlx.jit(lambda x: jnp.sin(x) * (1.0 + number) + jnp.tanh(x * number).sum())(np.ones(5 + number % 7))
        rlx.clear_caches()
threads = [threading.Thread(target=keep_compiling, args=(n,)) for n in range(2)]
for thread in threads:
    thread.daemon = True  # a failed child must not leave this process to them
    thread.start()
for n in range(12):
    time.sleep(0.02)
    child(lambda: rlx.jit(lambda x: jnp.exp(x) * (3.0 + n) + jnp.cos(x).sum())(np.ones(50 + n)))
stop.append(1)
for thread in threads: thread.join()
check(lambda: [work(n) for n in range(4)])
"""
    )
    assert_done(tmp_path, body, RLX_CACHE="0")


# ---------------------------------------------------------------------- threads
def test_threads_mix_everything_while_their_number_changes() -> None:
    """Kernels, products, sorts, factorisations and callbacks that call jitted functions again."""
    inner = rlx.jit(lambda x: (x @ x.T).sum(axis=0))
    before = rlx.get_num_threads()

    @rlx.jit
    def outer(x: rlx.Array) -> rlx.Array:
        called = rlx.pure_callback(lambda v: np.asarray(inner(v)), rlx.ShapeDtypeStruct((80,), "float64"), x)
        root = jnp.linalg.cholesky(x @ x.T + 80 * jnp.eye(80))
        return jnp.sort(jnp.sin(x).ravel())[:80] + called + root.sum(axis=0)

    x = np.random.default_rng(0).normal(size=(80, 80))
    expected = np.sort(np.sin(x).ravel())[:80] + (x @ x.T).sum(axis=0)
    expected += np.linalg.cholesky(x @ x.T + 80 * np.eye(80)).sum(axis=0)

    def call(turn: int) -> None:
        if turn % 5 == 0:
            rlx.set_num_threads(1 + turn % 3)
        np.testing.assert_allclose(outer(x), expected, rtol=1e-9)

    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(call, range(60), timeout=60))
    finally:
        rlx.set_num_threads(before)


def test_threads_begin_together() -> None:
    """The first calls of many functions at once: each is compiled, none waits for ever."""
    functions = [rlx.jit(lambda x, n=n: jnp.tanh(x * n).sum() + n) for n in range(8)]
    barrier = threading.Barrier(8)

    def call(n: int) -> float:
        barrier.wait(100)
        return float(functions[n](np.ones(10)))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(call, range(8), timeout=60))
    np.testing.assert_allclose(found, [10 * np.tanh(n) + n for n in range(8)], rtol=1e-12)


# ---------------------------------------------------------------------- pickles
@rlx.jit
def of_a_module(x: rlx.Array) -> rlx.Array:
    """A jitted function that its module holds by name."""
    return x + 1


def plain(x: rlx.Array, n: int) -> rlx.Array:
    """A function that is jitted under another name."""
    return x * n


def test_jitted_functions_are_pickled_and_copied() -> None:
    """By name, or with their options; what was traced stays behind."""
    assert pickle.loads(pickle.dumps(of_a_module)) is of_a_module
    assert copy.deepcopy(of_a_module) is of_a_module
    jitted = rlx.jit(plain, static_argnums=1, donate_argnums=0)
    jitted(jnp.ones(2), 3)
    for again in (pickle.loads(pickle.dumps(jitted)), copy.deepcopy(jitted)):
        assert again.roles[2:5] == ((1,), ("n",), (0,))
        assert again.cache_info().misses == 0  # what was traced belongs to the function, which is the same
        x = jnp.ones(2)
        np.testing.assert_array_equal(again(x, 3), [3.0, 3.0])
        assert x.is_deleted()


@needs_fork
def test_a_fork_while_every_lock_is_held() -> None:
    """Locks are found by what they are, so that a new one is tested when it is written."""
    held = [sys.executable, str(Path(__file__).with_name("held_locks.py"))]
    done = subprocess.run(held, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
