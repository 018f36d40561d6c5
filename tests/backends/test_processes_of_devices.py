"""What every device but the reference does when a process is interrupted, forks, or ends while a thread computes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from test_views import DEVICES, OPENCL, device_named

MARKS = {"opencl": OPENCL, "numba": pytest.mark.thorough}  # Numba compiles for ten seconds
devices = pytest.mark.parametrize("device", [pytest.param(d, marks=MARKS.get(d, ())) for d in DEVICES[1:]])
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process itself")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
USE = """
import os, signal, sys, threading, time, warnings
import numpy as np
import rlx, rlx.numpy as jnp
from rlx import lax

warnings.simplefilter("ignore", DeprecationWarning)  # of forks among threads
device, x = sys.argv[1], np.ones((64, 64), np.float32)
f = rlx.jit(lambda x: jnp.tanh(x @ x).sum(), device=device)
expected = float(f(x))
"""


def printed(device: str, code: str) -> str:
    """What a program prints that uses a device, which must end well and complain of nothing."""
    done = subprocess.run(
        [sys.executable, "-c", USE + textwrap.dedent(code), device_named(device)],
        capture_output=True, text=True, timeout=240, env={**os.environ, "RLX_LOG_COMPILES": "0"},
    )  # fmt: skip
    assert done.returncode == 0 and not [line for line in done.stderr.splitlines() if "compil" not in line], done
    return done.stdout


@devices
@needs_signals
@pytest.mark.parametrize("kind", ["while", "scan"])
def test_an_interrupt_ends_a_loop(kind: str, device: str) -> None:
    """The loop has no end of its own. The device can be used afterwards; OpenCL's cannot drop what is queued."""
    code = f"""
    if {kind!r} == "while":
        loop = lambda x: lax.while_loop(lambda s: s[1] < 10**15, lambda s: (jnp.sin(s[0]) + 1, s[1] + 1), (x, 0))[0]
    else:
        loop = lambda x: lax.fori_loop(0, 10**12, lambda i, c: jnp.sin(c) + 1, x)
    g = rlx.jit(loop, device=device)
    g.lower(x[0]).compile()
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        np.asarray(g(x[0]))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    if device == "opencl":
        os._exit(0)
    assert float(f(x)) == expected
    """
    assert printed(device, code) == "interrupted\n"


@devices
@needs_fork
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.selected(1)
def test_a_forked_child_computes_or_is_told_why_not(busy: bool, device: str) -> None:
    """Also where another thread computes while the process forks."""
    code = f"""
    def compute():
        while True:
            float(f(x))
    if {busy}:
        threading.Thread(target=compute, daemon=True).start()
        time.sleep(0.1)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = str(float(f(x)) == expected)
        except rlx.errors.DeviceError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    print(open(read).read(), flush=True)
    assert os.waitpid(child, 0)[1] == 0
    os._exit(float(f(x)) != expected)
    """
    said = printed(device, code)
    if device in ("mlx", "opencl"):
        assert repr(device) in said and "spawn" in said
    else:
        assert said == "True\n"


@devices
@pytest.mark.selected(1)
def test_a_process_ends_while_a_thread_computes(device: str) -> None:
    """Loops without an end are ended; OpenCL's queue is awaited."""
    code = """
    steps = 10**7 if device == "opencl" else 10**15
    loop = lambda x: lax.while_loop(lambda s: s[1] < steps, lambda s: (jnp.sin(s[0]) + 1, s[1] + 1), (x, 0))[0]
    g = rlx.jit(loop, device=device)
    g.lower(x[0]).compile()
    threading.Thread(target=lambda: np.asarray(g(x[0])), daemon=True).start()
    time.sleep(0.5)
    """
    assert printed(device, code) == ""
