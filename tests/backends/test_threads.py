"""The thread pool: regions, several launchers, oversubscription, fork, sleeping workers."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time

import numpy as np
import pytest
from loop_plans import FLOAT
from native_plans import add_plan, run_python

from rlx.backends.cpu import CpuBackend
from rlx.backends.cpu.runtime import threads
from rlx.backends.cpu.runtime.entry import load_runtime
from rlx.backends.cpu.runtime.frame import FIRST_SLOT, GENERATION, POOL, SKIPPED
from rlx.storage import from_numpy

TASK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)


@pytest.fixture(autouse=True)
def restored_threads():
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def launch(function, tasks, limit, context=0):
    """A region whose tasks are Python calls (they take the GIL in whatever thread runs them)."""
    native = LAUNCH(load_runtime().addresses["launch"])
    address = ctypes.cast(function, ctypes.c_void_p).value
    frame = np.zeros(FIRST_SLOT, np.int64)
    frame[POOL] = threads.pool_address()
    native(frame.ctypes.data, address, context, tasks, limit)


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 64])
def test_every_task_runs_once(number, tasks):
    threads.set_num_threads(number)
    done = []
    launch(TASK(lambda context, task: done.append((context, task))), tasks, 64, context=7)
    assert sorted(done) == [(7, n) for n in range(tasks)]


def test_tasks_run_at_the_same_time():
    threads.set_num_threads(3)
    meeting = threading.Barrier(3, timeout=100)
    launch(TASK(lambda context, task: meeting.wait()), 3, 64)
    assert not meeting.broken


def test_the_limit_holds():
    threads.set_num_threads(4)
    seen = set()

    def task(context, number):
        seen.add(threading.get_native_id())
        time.sleep(0.001)

    launch(TASK(task), 20, 2)
    assert len(seen) <= 2


def test_small_regions_wake_nobody_at_first():
    threads.set_num_threads(2)
    nothing = TASK(lambda context, task: None)
    launch(nothing, 2, 64)
    time.sleep(0.01)
    threads._pool[SKIPPED] = 0
    regions = int(threads._pool[GENERATION])
    for _ in range(4):
        launch(nothing, 2, 2)
    assert threads._pool[GENERATION] == regions
    launch(nothing, 2, 2)
    assert threads._pool[GENERATION] == regions + 1


def test_a_region_inside_a_region_runs_in_order():
    threads.set_num_threads(3)
    done = []
    inner = TASK(lambda context, task: done.append((context, task)))
    launch(TASK(lambda context, task: launch(inner, 4, 4, task)), 3, 3)
    assert sorted(done) == [(a, b) for a in range(3) for b in range(4)]
    for a in range(3):
        assert [pair for pair in done if pair[0] == a] == [(a, b) for b in range(4)]


def test_many_launchers_at_once():
    """Regions of all sizes from several threads, with more threads than processors."""
    threads.set_num_threads(6)
    size = 120_000
    executable = CpuBackend().compile(add_plan(size, 1))
    data = np.arange(size, dtype=FLOAT)
    wrong = []

    def call():
        for turn in range(150):
            (result,) = executable.run([from_numpy(data), from_numpy(data)])
            if not np.array_equal(result.view((size,), FLOAT), data + data):
                wrong.append(turn)
            if turn % 10 == 0:
                time.sleep(0.0005)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for turn in range(30):
        threads.set_num_threads(1 + turn % 6)
        time.sleep(0.002)
    for caller in callers:
        caller.join(60)
    assert not wrong
    assert not any(caller.is_alive() for caller in callers)


def test_the_number_of_threads_is_checked():
    for number in (0, -1, 10_000):
        with pytest.raises(ValueError, match="The number of threads is 1 to"):
            threads.set_num_threads(number)
    for number in (2.0, "2", True, None):
        with pytest.raises(TypeError, match="The number of threads is an integer"):
            threads.set_num_threads(number)
    threads.set_num_threads(np.int64(3))
    assert threads.get_num_threads() == 3


@pytest.mark.thorough
def test_environment():
    text = "from rlx.backends.cpu.runtime import threads; print(threads.get_num_threads())"
    assert run_python(text, RLX_NUM_THREADS="3").stdout == "3\n"
    assert "RLX_NUM_THREADS must be" in run_python(text, RLX_NUM_THREADS="many").stderr
    assert int(run_python(text).stdout) >= 1


PARALLEL_CALL = """
import os, sys, threading, time, numpy as np
import rlx.backends.cpu.runtime.system as system
if "portable" in sys.argv: system.current_system = system.posix
from native_plans import add_plan
from rlx.backends.cpu import CpuBackend
from rlx.backends.cpu.runtime import threads
from rlx.storage import from_numpy
threads.set_num_threads(3)
executable = CpuBackend().compile(add_plan(400_000, 1))
data = np.arange(400_000, dtype=np.float32)
def call():
    (result,) = executable.run([from_numpy(data), from_numpy(data)])
    assert np.array_equal(result.view((400_000,), np.dtype(np.float32)), data + data)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork():
    """A child starts workers of its own, also when it is forked in the middle of regions."""
    text = PARALLEL_CALL + """
call()
assert threads.worker_count()[0] == 2
stop = []
def keep_calling():
    while not stop: call()
other = threading.Thread(target=keep_calling)
other.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        assert threads.worker_count() == (0, 0)
        for _ in range(20): call()
        assert threads.worker_count()[0] == 2
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.append(1)
other.join()
call()
print("done")
"""
    done = run_python(text)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs pthreads")
@pytest.mark.parametrize("system", ["native", "portable"])
@pytest.mark.selected(1)
def test_workers_sleep_and_wake(system, tmp_path):
    text = f"import sys; sys.argv.append({system!r})" + PARALLEL_CALL + """
for _ in range(300): call()
began = time.process_time()
time.sleep(0.3)
assert time.process_time() - began < 0.1, "idle workers spin"
for _ in range(20):
    call()
    time.sleep(0.002)
print(threads.worker_count())
"""
    done = run_python(text, RLX_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "(2, 2)\n"), done.stderr
