"""What is sound after a call that failed while it ran: donated arrays, caches, the pool of threads, memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import psutil
import pytest

import rlx
import rlx.numpy as jnp


class Refusal(Exception):
    """What the callbacks of these tests raise."""


def failing(donate: bool) -> tuple[Any, list[bool]]:
    """A jitted function of large arrays whose callback raises when it is told to."""
    fails = [True]

    def look(v: np.ndarray) -> np.ndarray:
        if fails[0]:
            raise Refusal("mine")
        return np.asarray(v)

    def step(state: dict[str, rlx.Array], x: rlx.Array) -> dict[str, rlx.Array]:
        product = state["w"] @ x
        seen = rlx.pure_callback(look, rlx.ShapeDtypeStruct(product.shape, product.dtype), product)
        return {"w": state["w"] + jnp.tanh(seen)}

    return rlx.jit(step, donate_argnums=0 if donate else ()), fails


def test_a_call_that_fails_while_it_runs_leaves_donated_arrays() -> None:
    """They hold what they held, and the same function works on them afterwards."""
    step, fails = failing(donate=True)
    w = np.random.default_rng(0).normal(size=(200, 200))
    state, x = {"w": jnp.asarray(w)}, jnp.asarray(np.eye(200) * 0.5)
    for _ in range(3):
        with pytest.raises(Refusal, match="mine"):
            step(state, x)
    assert not state["w"].is_deleted()
    np.testing.assert_array_equal(state["w"], w)
    fails[0] = False
    np.testing.assert_allclose(step(state, x)["w"], w + np.tanh(w * 0.5), rtol=1e-12)
    assert state["w"].is_deleted()
    assert step.cache_info().misses == 1


def test_calls_that_fail_leave_memory_flat() -> None:
    """Temporaries and results of a call that did not end are given back."""
    step, _ = failing(donate=False)
    state, x = {"w": jnp.ones((400, 400))}, jnp.eye(400)

    def fail(count: int) -> None:
        for _ in range(count):
            with pytest.raises(Refusal):
                step(state, x)

    fail(20)
    before = psutil.Process().memory_info().rss
    fail(100)  # 1.3 MB each
    assert psutil.Process().memory_info().rss - before < 16 << 20


INTERRUPTED = """
import os, signal, threading, time
import numpy as np
import rlx, rlx.numpy as jnp

signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupted(work, after):
    def send():
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=send)
    try:
        thread.start()
        while True:
            work()
    except KeyboardInterrupt:
        thread.join()

def chain(x):
    for n in range(300):
        x = jnp.tanh(x @ x.T) * (0.5 + n)
    return x

def compile_anew():
    rlx.clear_caches()
    rlx.jit(chain)(np.eye(3))

kernel = rlx.jit(lambda x: (jnp.sin(x[:, None]) * jnp.cos(x) * jnp.tanh(x[:, None] + x)).sum())
x = np.linspace(0, 1, 6000)
expected = float(kernel(x))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process itself")
@pytest.mark.parametrize("during", ["one long kernel", "a compilation"])
@pytest.mark.selected(1)
def test_an_interrupt(during: str) -> None:
    """It arrives, at the end of a kernel; pool, store and function are sound. (In this process jax may swallow it.)"""
    steps = {
        "one long kernel": "interrupted(lambda: kernel(x), after)\n    assert np.isclose(kernel(x), expected)",
        "a compilation": "interrupted(compile_anew, after)\n    assert np.isfinite(rlx.jit(chain)(np.eye(3))).all()",
    }
    code = f"{INTERRUPTED}for after in (0.03, 0.1, 0.3):\n    {steps[during]}\nprint('sound')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "sound\n", done.stderr
