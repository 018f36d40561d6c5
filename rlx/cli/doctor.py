"""rlx doctor: whether this installation works, and what to do where it does not."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx.backends.cpu.runtime.compile import processor
from rlx.backends.cpu.runtime.folder import Folder
from rlx.backends.cpu.runtime.store import user_folder
from rlx.cli.info import installed
from rlx.cli.mistakes import FAILED, FINE
from rlx.cli.output import as_json, duration, short_path, status_word
from rlx.cli.requirements import allows, requirements
from rlx.errors import RlxError, bytes_text, did_you_mean
from rlx.settings import MEANT, SETTINGS

__all__ = ["Check", "add_options", "checks", "doctor"]

# those that make every call slower
SLOW = ("RLX_CHECK", "RLX_DUMP", "RLX_DISABLE_JIT", "RLX_DEBUG_NANS", "RLX_DEBUG_INFS")
LITTLE_SPACE = 1 << 28  # bytes
LONG_IMPORT, LONG_FIRST_CALL = 3.0, 10.0  # seconds
PATIENCE = 300.0  # seconds for a process

# run in a separate process: import, a first call, and the state of the compiled code
_PROCESS = """
import json, time
import numpy as np
start = time.perf_counter()
import rlx
import rlx.numpy as jnp
imported = time.perf_counter()
x = np.linspace(-1.0, 1.0, 64 * 64, dtype=np.float32).reshape(64, 64)
result = np.asarray(rlx.jit(lambda x: jnp.tanh(x @ x).sum(axis=1) * 2.0 + 1.0)(x))
called = time.perf_counter()
from rlx.backends.cpu.runtime.store import statistics
found = statistics()
error = float(np.abs(result - (np.tanh(x @ x).sum(axis=1) * 2.0 + 1.0)).max())
print(json.dumps([imported - start, called - imported, error, found.compiled, found.loaded]))
"""


class Check(NamedTuple):
    """The subject of a check, its status (ok, warning, failed), the observation, and the remedy."""

    name: str
    status: str
    seen: str
    instead: str = ""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx doctor`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def doctor(options: argparse.Namespace) -> int:
    """Run every check; fails where one does."""
    found = []
    for check in checks():
        found.append(check)
        if not options.json:
            print(f"{status_word(check.status)} {check.name}: {check.seen}", flush=True)
            if check.instead:
                print(f"         {check.instead}", flush=True)
    failed = sum(c.status == "failed" for c in found)
    if options.json:
        print(as_json({"ok": not failed, "checks": [c._asdict() for c in found]}))
    else:
        warned = sum(c.status == "warning" for c in found)
        print(f"{len(found)} checks: {len(found) - failed - warned} ok, {warned} warnings, {failed} failed")
    return FAILED if failed else FINE


def checks() -> Iterator[Check]:
    """Run every check in order; a check that raises has failed."""
    parts: dict[str, Callable[[], Iterator[Check]]] = {
        "packages": _packages, "settings": _settings, "compiler": _compiler, "cache": _cache, "threads": _threads,
        "devices": _devices, "products": _products, "kernels": _kernels,
    }  # fmt: skip
    for name, part in parts.items():
        try:
            yield from part()
        except Exception as error:
            what = error.what if isinstance(error, RlxError) else f"{type(error).__name__}: {error}"
            instead = error.instead if isinstance(error, RlxError) else ""
            yield Check(name, "failed", what, instead or "See the lines above; else report it with `rlx info`.")


def _packages() -> Iterator[Check]:
    for name, versions in requirements():
        there = platform.python_version() if name == "python" else installed(name)
        if not there:
            yield Check(name, "failed", f"not installed; rlx needs {versions}", f'pip install "{name}{versions}"')
        elif allows(versions, there):
            yield Check(name, "ok", f"{there} ({versions})")
        else:
            how = "Use another Python." if name == "python" else f'pip install "{name}{versions}"'
            yield Check(name, "warning", f"{there}, while rlx supports {versions}", how)


def _settings() -> Iterator[Check]:
    """Names that rlx does not read, and switches that make it slow."""
    there = sorted(name for name in os.environ if name.startswith("RLX_"))
    unknown = [name for name in there if name not in SETTINGS]
    for name in unknown:
        yield Check("settings", "warning", f"rlx reads no variable {name}", _meant(name))
    for name in SLOW:
        if os.environ.get(name, "0").lower() not in ("", "0", "false", "off", "no"):
            yield Check("settings", "warning", f"{name} is set: everything is slower", "Unset it when done.")
    if not unknown:
        yield Check("settings", "ok", ", ".join(there) or "none is set")


def _meant(name: str) -> str:
    """What a variable that rlx does not read probably means."""
    meant = MEANT.get(name, "")
    return f"{meant[0].upper()}{meant[1:]}." if meant else did_you_mean(name, SETTINGS) or "Unset it."


def _compiler() -> Iterator[Check]:
    name, _ = processor()
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    yield Check("compiler", "ok", f"LLVM {version} for {llvm.get_process_triple()}, {name}")


def _cache() -> Iterator[Check]:
    path = user_folder()
    if path is None:
        yield Check("cache", "warning", "off: each process compiles anew", "Unset RLX_CACHE.")
        return
    try:
        folder = Folder(path)
        probe = f"{os.urandom(24).hex()}.o"
        folder.write(probe, b"doctor")
        content = folder.read(probe)
        folder.remove(probe)
    except OSError as error:
        reason = f"cannot be made or written ({error.strerror})" if error.strerror else str(error)
        yield Check("cache", "failed", f"{path} {reason}: each process compiles anew", _cache_hint())
        return
    if content != b"doctor":
        yield Check("cache", "failed", f"{path}: what was written is not what is read", _cache_hint())
        return
    status = path.stat()
    free = shutil.disk_usage(path).free
    mode = f"mode {status.st_mode & 0o777:03o}" if os.name == "posix" else "in the user's profile"
    total = sum(file.size for file in folder.files())
    room = f"{bytes_text(total)} in it, {bytes_text(free)} free"
    said = f"{short_path(path)} is this user's, {mode}, can be written; {room}"
    if free < LITTLE_SPACE:
        yield Check("cache", "warning", said, "Make room, or set RLX_CACHE_DIR to a folder on another disk.")
    else:
        yield Check("cache", "ok", said)


def _cache_hint() -> str:
    return "Set RLX_CACHE_DIR to a folder of yours that no other user can write, or RLX_CACHE=0."


def _threads() -> Iterator[Check]:
    try:
        count = rlx.get_num_threads()
    except ValueError as error:
        yield Check("threads", "failed", f"{error}", "Unset RLX_NUM_THREADS, or write a number.")
        return
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = f"{count} of {usable} processors that this process may use"
    if count > usable:
        yield Check("threads", "warning", said, f"More threads than processors are slow: RLX_NUM_THREADS={usable}.")
    else:
        yield Check("threads", "ok", said)


def _devices() -> Iterator[Check]:
    default = rlx.config.device
    for device in dict.fromkeys([default, *(d.platform for d in rlx.devices())]):
        with rlx.default_device(device):
            found = float(rlx.jit(lambda x: x * 2.0 + 1.0)(rlx.numpy.ones(4)).sum())
        said = "the default" if device == default else "there"
        if found == 12.0:
            yield Check(f"device {device}", "ok", f"{said}; computes")
        else:
            yield Check(f"device {device}", "failed", f"computes {found} instead of 12.0", "Report it with `rlx info`.")


def _products() -> Iterator[Check]:
    """Matrix products of the host's library."""
    generator = np.random.default_rng(0)
    for dtype, allowed in (("float32", 1e-4), ("float64", 1e-12)):
        x = generator.standard_normal((96, 96)).astype(dtype)
        error = float(np.abs(np.asarray(rlx.jit(rlx.numpy.matmul)(x, x)) - x @ x).max())
        seen = f"{dtype}, at most {error:.1e} from NumPy's"
        if error <= allowed:
            yield Check("matrix products", "ok", seen)
        else:
            yield Check("matrix products", "failed", seen, "Try RLX_OPENBLAS_CORETYPE=Haswell, and report it.")


def _kernels() -> Iterator[Check]:
    """A program compiled by a process without a cache, then twice by processes with it."""
    alone = _process(RLX_CACHE="0")
    yield _kernel_check("first process", alone, "compiled")
    if user_folder() is None or alone.status == "failed":
        return
    _process()
    second = _process()
    checked = _kernel_check("next process", second, "read from the cache")
    if checked.status == "ok" and second.compiled:
        seen = f"{checked.seen}, but {second.compiled} kernels were compiled again"
        checked = Check(checked.name, "failed", seen, "Look at the cache above: code is not kept.")
    yield checked


class _Run(NamedTuple):
    """The report of a process; without a report `status` is failed, and `text` gives the reason."""

    status: str
    text: str = ""
    imported: float = 0.0
    called: float = 0.0
    error: float = 0.0
    compiled: int = 0
    loaded: int = 0


def _process(**variables: str) -> _Run:
    """Run the program in a new Python that finds the same rlx."""
    paths = [str(Path(rlx.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}
    environment.pop("RLX_DUMP", None)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROCESS], env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return _Run("failed", f"it takes longer than {PATIENCE:.0f} s")
    if done.returncode:
        raised = re.findall(r"^[\w.]*(?:Error|Exception)\b.*", done.stderr, re.MULTILINE)
        end = f"it ended with {done.returncode}: {done.stderr.strip()[-200:]}"
        return _Run("failed", raised[-1] if raised else end)
    return _Run("ok", done.stderr.strip(), *json.loads(done.stdout.splitlines()[-1]))


def _kernel_check(name: str, run: _Run, how: str) -> Check:
    if run.status == "failed":
        return Check(name, "failed", run.text, "Run `python -c 'import rlx'`, and report it with `rlx info`.")
    seen = f"import {duration(run.imported)}, first call {duration(run.called)}, kernels {how}"
    if not run.error < 1e-3:
        return Check(name, "failed", f"{seen}; the result is {run.error:.1e} off", "Report it with `rlx info`.")
    if run.imported > LONG_IMPORT or run.called > LONG_FIRST_CALL:
        return Check(name, "warning", seen, "The disk or the machine is slow or busy: try again when it is idle.")
    return Check(name, "ok", seen)
