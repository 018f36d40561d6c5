"""Processes that live long, work in pools, or die in the middle of something."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import psutil
import pytest

import rlx
import rlx.numpy as rnp

X = np.linspace(-1, 1, 300 * 200, dtype=np.float32).reshape(300, 200)


def work(seed: int) -> float:
    """A product, a row kernel and a scan, with threads of their own."""
    f = rlx.jit(rlx.value_and_grad(lambda w: (rlx.nn.softmax(rnp.tanh(X @ w), -1) ** 2).sum()))
    value, slope = f(np.full((200, 50), 0.01 * seed, np.float32))
    total = rlx.jit(lambda x: rlx.lax.scan(lambda c, r: (c * 0.5 + r.sum(), c), 0.0, x)[0])(X)
    return float(value + slope.sum() + total)


def resident() -> int:
    """Bytes of this process in memory."""
    return psutil.Process().memory_info().rss


def expected() -> list[float]:
    return [work(seed) for seed in range(4)]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_jobs_of_joblib(backend):
    found = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(work)(seed) for seed in range(4))
    assert found == pytest.approx(expected(), rel=1e-5)


def test_threads_that_all_call():
    wanted = expected()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, [0, 1, 2, 3] * 6)) == pytest.approx(wanted * 6, rel=1e-5)


def test_many_calls_leave_memory_flat():
    f = rlx.jit(lambda x, state: (x * 2.0 + state["a"], {"a": state["a"] + 1.0}))
    x, state = rnp.zeros(1000), {"a": rnp.zeros(1000)}
    for _ in range(5_000):
        _, state = f(x, state)
    before = resident()
    for _ in range(100_000):
        _, state = f(x, state)
    assert resident() - before < 8 << 20
    assert float(state["a"][0]) == 105_000.0


@pytest.mark.thorough
def test_traces_that_are_forgotten_leave_memory_flat():
    def trace(count: int) -> None:
        for n in range(count):
            rlx.jit(lambda x, n=n: rnp.sin(x) * float(n))(X)
            if n % 50 == 49:
                rlx.clear_caches()

    trace(200)
    before = resident()
    trace(400)
    assert resident() - before < 40 << 20


@pytest.mark.thorough
def test_compiling_takes_time_in_proportion_to_the_program():
    def seconds(length: int) -> float:
        def f(x, w):
            for n in range(length):
                x = rnp.tanh(x @ w) + rnp.cumsum(x, 1) * 0.01 if n % 8 == 0 else x * 1.01 + w
            return x

        start = time.process_time()
        rlx.inspect(f)(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)).plan  # noqa: B018
        return time.process_time() - start

    seconds(200)
    short, long = seconds(1000), seconds(4000)  # about 2500 and 10,000 equations
    assert long < 8 * short


@pytest.mark.thorough
def test_a_process_killed_while_it_fills_the_cache_harms_nobody(tmp_path):
    text = (
        "import numpy as np, rlx, rlx.numpy as rnp\n"
        "print('ready', flush=True)\n"
        "for n in range(1000):\n"
        "    rlx.jit(lambda x: rnp.sin(x) ** (2 + n % 7) + rnp.reshape(x, (-1, 2 + n % 4)).sum())(np.ones(60, 'f4'))\n"
    )
    environment = os.environ | {"RLX_CACHE_DIR": str(tmp_path), "RLX_PROGRESS": "0"}
    for delay in (0.15, 0.3, 0.6):
        process = subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    check = "import numpy as np, rlx, rlx.numpy as n\nprint(rlx.jit(lambda x: n.sin(x) ** 2)(np.ones(3, 'f4')).sum())"
    done = subprocess.run([sys.executable, "-c", check], env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(3 * np.sin(1.0) ** 2, rel=1e-5)
    assert not done.stderr


@pytest.mark.thorough
def test_two_versions_share_a_folder(tmp_path):
    """Each looks for entries of its own sources only."""
    text = (
        "import sys, numpy as np\n"
        "from rlx.backends.cpu.runtime import store\n"
        "if sys.argv[1] == 'other': store._sources = b'another version'\n"
        "import rlx\n"
        "print(float(rlx.jit(lambda x: x * 3.5)(np.ones(3, 'f4')).sum()), store.statistics().compiled)\n"
    )
    environment = os.environ | {"RLX_CACHE_DIR": str(tmp_path)}

    def run(version: str) -> str:
        command = [sys.executable, "-c", text, version]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first, other = run("this"), run("other")
    assert first == other == "10.5 2\n"
    assert run("this") == run("other") == "10.5 0\n"
    assert any(Path(tmp_path).rglob("*"))
