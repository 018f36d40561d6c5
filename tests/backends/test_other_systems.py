"""The run-time system as other systems and processors have it: compiled for them; what POSIX has, run here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlx.backends.cpu.runtime.store import user_folder

# a process that believes to be elsewhere: the run-time system is made for the system that it finds
COMPILED = """
import platform, sys
import llvmlite.binding as llvm
import numpy
system, machine, triple = sys.argv[1:]
sys.platform, platform.machine = system, lambda: machine
from rlx.backends.cpu.runtime.parts import PARTS_OF_RUNTIME, runtime_text
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
target = llvm.Target.from_triple(triple).create_target_machine()
for part in PARTS_OF_RUNTIME:
    module = llvm.parse_assembly(runtime_text(part))
    module.triple = triple
    module.verify()
    print(part, len(target.emit_object(module)) > 200, *sorted(f.name for f in module.functions if f.is_declaration))
"""

SYSTEMS = [
    ("linux", "x86_64", "x86_64-unknown-linux-gnu", {"syscall", "pthread_create", "llvm.x86.sse2.pause"}),
    ("linux", "aarch64", "aarch64-unknown-linux-gnu", {"syscall", "pthread_create", "llvm.aarch64.hint"}),
    ("darwin", "arm64", "arm64-apple-darwin", {"pthread_cond_wait", "pthread_create", "llvm.aarch64.hint"}),
    ("win32", "AMD64", "x86_64-pc-windows-msvc", {"WaitOnAddress", "CreateThread", "llvm.x86.sse2.pause"}),
]


@pytest.mark.parametrize(("system", "machine", "triple", "wanted"), SYSTEMS, ids=[s[2] for s in SYSTEMS])
@pytest.mark.selected(1)
def test_the_run_time_system_is_code_for_others(system: str, machine: str, triple: str, wanted: set[str]) -> None:
    """Every part is an object file of theirs, and calls what they have."""
    command = [sys.executable, "-c", COMPILED, system, machine, triple]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["core", "products", "control", "sorting", "clock", "calls"]
    assert all(line[1] == "True" for line in lines)
    called = {name for line in lines for name in line[2:]}
    assert wanted <= called
    foreign = {"syscall", "pthread_cond_wait", "WaitOnAddress"} - wanted
    assert not foreign & called


POSIX = """
import sys
from pathlib import Path
import time
import numpy as np
sys.platform = "freebsd14"  # none that has sleeping of its own
import rlx, rlx.numpy as jnp
from rlx.backends.cpu.runtime.parts import runtime_text
assert "pthread_cond_wait" in runtime_text("core") and "syscall" not in runtime_text("core")
rlx.set_num_threads(3)
f = rlx.jit(lambda x: jnp.sin(x).sum(1))
x = np.linspace(0, 1, 400_000).reshape(400, 1000)
expected = np.sin(x).sum(1)
for n in range(60):  # in between all workers fall asleep
    assert np.allclose(f(x), expected, rtol=1e-5)
    time.sleep(0.001 * (n % 3))
from rlx.backends.cpu.runtime.threads import worker_count
print(*worker_count())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere it is what runs always")
def test_threads_sleep_on_a_condition() -> None:
    """What macOS and other systems have, run on Linux."""
    done = subprocess.run([sys.executable, "-c", POSIX], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    started, running = map(int, done.stdout.split())
    assert started == 2
    assert running == 2


@pytest.mark.parametrize(
    ("system", "variable", "place"),
    [
        ("linux", "XDG_CACHE_HOME", "there/rlx/native"),
        ("linux", "", "home/.cache/rlx/native"),
        ("darwin", "", "home/Library/Caches/rlx/native"),
        ("win32", "LOCALAPPDATA", "there/rlx/native"),
        ("win32", "", "home/AppData/Local/rlx/native"),
    ],
)
def test_the_cache_lies_where_the_system_wants_it(
    system: str, variable: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RLX_CACHE", "RLX_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "there"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(sys, "platform", system)
    assert user_folder() == tmp_path / place


LONG = """
import sys, rlx, rlx.numpy as jnp
from rlx.backends.cpu.runtime.store import statistics
print(float(rlx.jit(lambda x: jnp.tanh(x).sum())(jnp.zeros(100))), statistics().compiled > 0)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has such paths only if it is told so")
def test_the_cache_may_lie_deep(tmp_path: Path) -> None:
    """Behind a path of over 260 characters, from which the next process takes what this one compiled."""
    folder = tmp_path.joinpath(*["a" * 60] * 5)
    folder.mkdir(parents=True)
    environment = {**os.environ, "RLX_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", LONG]
    runs = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout.split() for run in runs] == [["0.0", "True"], ["0.0", "False"]], runs
