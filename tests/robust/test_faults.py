"""An exception at every call in the store, the compiler and rlx.save: the process goes on, the next call is right.

The scenes are in fault_scenes.py. Each runs in a process of its own, so that a crash is a test that fails. A run takes
every `step`-th point, and those that it leaves out are for other days.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# scene, kind of faults, every how many points
SCENES = [
    ("new codes", "interrupt", 1),
    ("new codes", "failure", 13),
    ("new codes", "disk", 2),
    ("codes on disk", "interrupt", 1),
    ("codes on disk", "failure", 7),
    ("codes on disk", "disk", 2),
    ("jit", "interrupt", 29),
    ("jit", "failure", 97),
    ("jit", "disk", 27),
]
SAVING = [
    ("safetensors", "interrupt", 9),
    ("safetensors", "failure", 3),
    ("safetensors", "disk", 1),
    ("npz", "interrupt", 17),
    ("npz", "failure", 3),
    ("npz", "disk", 1),
]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python process that knows rlx and the files here."""
    paths = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": paths, "RLX_CHECK": "0", **environment},
    )


@pytest.mark.selected(1)
@pytest.mark.parametrize(("scene", "kind", "step"), SCENES, ids=lambda value: str(value))
def test_compiled_code(scene: str, kind: str, step: int) -> None:
    play(scene, kind, step)


@pytest.mark.parametrize(("scene", "kind", "step"), SAVING, ids=lambda value: str(value))
@pytest.mark.selected(1)
def test_saving(scene: str, kind: str, step: int) -> None:
    play(scene, kind, step)


def play(scene: str, kind: str, step: int) -> None:
    """A scene ends well, and there were faults in it."""
    first = datetime.date.today().toordinal() % step
    done = run(str(HERE / "fault_scenes.py"), scene, kind, str(first), str(step))
    assert done.returncode == 0, f"{done.returncode}: {done.stdout} {done.stderr[-3000:]}"
    word, number = done.stdout.split()
    assert word == "faults" and int(number) > 1


SIGNALS = """
import gc, random, signal, sys, time
import numpy as np
import rlx, rlx.numpy as jnp

def interrupt(*arguments):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
random.seed(int(sys.argv[1]))
x = np.arange(64.0)
interrupted, end = 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    k = random.random()
    def program(a):
        for i in range(6):
            a = jnp.sort(jnp.sin(a * (k + i)) + a[::-1]) if i % 3 else jnp.cumsum(jnp.tanh(a * k + i), 0)
        return a.sum() + rlx.lax.scan(lambda c, r: (jnp.tanh(c + r) * k, c), a[0], a)[0]
    function = rlx.jit(rlx.grad(program) if random.random() < 0.5 else program)
    try:
        signal.setitimer(signal.ITIMER_REAL, random.random() * 0.2 + 1e-4)
        function(x)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    gc.collect()
    np.testing.assert_allclose(rlx.jit(lambda a: (jnp.sin(a) * 2 + k).sum())(x), (np.sin(x) * 2 + k).sum())
print("interrupted" if interrupted else "never")
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="needs setitimer")
@pytest.mark.parametrize("cache", ["0", "1"])
def test_signals_at_random_moments(cache: str, tmp_path: Path) -> None:
    """Real ones, in tracing, lowering, compiling and running."""
    done = run("-c", SIGNALS, cache, "3", RLX_CACHE=cache, RLX_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), f"{done.returncode}: {done.stderr[-3000:]}"
    assert not list(tmp_path.rglob(".*.o*"))
