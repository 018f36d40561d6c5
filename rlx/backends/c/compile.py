"""Units of C compiled by the system's compiler to shared libraries, which are cached on disk with other native code.

The environment variable CC names the compiler; the default is the first of cc, gcc and clang. The store
(backends/cpu/runtime/store.py) reads, checks and keeps the libraries, keyed by source, compiler and flags.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.c.source import ENTRY, unit_source
from rlx.backends.cpu.runtime.store import CodeStore, digest_of, user_folder
from rlx.backends.loops.executable import CompiledUnit
from rlx.backends.loops.program import SourceUnit
from rlx.errors import DeviceError
from rlx.forks import reopen_after_fork

__all__ = ["FLAGS", "Compiler", "compile_unit", "compiler"]

# -fno-strict-aliasing: temporaries of different types share the arena.
# -fno-trapping-math: floating-point exception flags are not read
FLAGS = (
    "-std=c99", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-fPIC",
    "-shared",
)  # fmt: skip
# flags that improve code, if the compiler supports them
_WANTED = (("-march=native",), ("-fopenmp-simd", "-DRLX_OPENMP_SIMD"))
_SHOWN_LINES = 12
_DEFAULTS = ("cc", "gcc", "clang")

_kept: list[Any] = []  # code stays mapped for the life of the process


class Identity(NamedTuple):
    """Everything that compiled code depends on, besides its source."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    platform: str
    macros: str  # predefined macros, which include the compiler's version and the processor


class Compiler:
    """A C compiler that produces native code for a store."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        taken = [flags for flags in _WANTED if self._run(*flags, *_MACROS).returncode == 0]
        self.flags = [*FLAGS, *(flag for flags in taken for flag in flags)]
        macros = self._run(*self.flags, *_MACROS)
        if macros.returncode != 0:
            raise DeviceError(
                f"{shlex.join(self.command)} is not a C compiler that accepts {' '.join(FLAGS)}:\n"
                f"{_first_lines(macros.stderr)}",
                "Install gcc or clang, or set the environment variable CC to another compiler.",
            )
        self.identity = Identity(self.command, tuple(self.flags), sys.platform, macros.stdout)

    def _run(self, *arguments: str, folder: str | None = None) -> subprocess.CompletedProcess[str]:
        # in a separate session, so that Ctrl-C does not interrupt it: the store waits for a started compilation
        return subprocess.run(
            [*self.command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            cwd=folder, start_new_session=True, check=False,
        )  # fmt: skip

    def fingerprint(self) -> bytes:
        """The compiler, its version, its flags, the target processor."""
        return digest_of(self.identity)

    def compile(self, text: str, symbol: str) -> tuple[bytes, int]:
        """Compile C source to a shared library and load it. Raises DeviceError if the compiler rejects it."""
        with _private_folder() as folder:
            (folder / "unit.c").write_text(text)
            done = self._run(*self.flags, "unit.c", "-o", "unit.so", "-lm", folder=str(folder))
            if done.returncode != 0:
                raise _refused(self.command, done, text)
            data = (folder / "unit.so").read_bytes()
            return data, _loaded(folder / "unit.so", symbol)

    def load(self, data: bytes, symbol: str) -> int:
        """Load a shared library."""
        with _private_folder() as folder:
            path = folder / "unit.so"
            path.write_bytes(data)
            try:
                return _loaded(path, symbol)
            except (OSError, AttributeError) as error:
                raise RuntimeError(f"a library cannot be loaded: {error}") from None


_MACROS = ("-dM", "-E", "-x", "c", os.devnull)


@contextmanager
def _private_folder() -> Generator[Path]:
    """A temporary folder that only this user can access."""
    with tempfile.TemporaryDirectory(prefix="rlx-c-") as folder:
        yield Path(folder)


def _loaded(path: Path, symbol: str) -> int:
    """The address of a function in a shared library, whose file is no longer needed."""
    library = ctypes.CDLL(str(path))
    _kept.append(library)
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    assert address is not None
    return address


def _first_lines(text: str) -> str:
    lines = text.splitlines()
    more = [f"... and {len(lines) - _SHOWN_LINES} lines more"] if len(lines) > _SHOWN_LINES else []
    return "\n".join([*lines[:_SHOWN_LINES], *more])


def _refused(command: Sequence[str], done: subprocess.CompletedProcess[str], text: str) -> DeviceError:
    """The compiler's error, with the path of the stored source."""
    place = "it could not be stored"
    with suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="rlx-c-refused-"))
        (folder / "unit.c").write_text(text)
        place = f"it is stored in {folder / 'unit.c'}"
    said = _first_lines(done.stderr) or f"exit status {done.returncode}"
    return DeviceError(
        f"{shlex.join(command)} could not compile the source of a program; {place}:\n{said}",
        "If the disk is full or the compiler is broken, fix that, or set CC to another one. Otherwise this is a bug in "
        "rlx: report it with that file; meanwhile the program runs on the device 'cpu'.",
    )


# ------------------------------------------------------------------ the compiler of this process
def compiler() -> Compiler:
    """The compiler named by CC, or the system's. Raises DeviceError if there is none."""
    return _compiler(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _compiler(chosen: str, path: str) -> Compiler:
    if chosen.strip():
        command = shlex.split(chosen)
        if shutil.which(command[0], path=path) is None:
            raise DeviceError(
                f"The environment variable CC names {command[0]!r}, which does not exist.",
                "Set CC to a C compiler such as gcc or clang, or unset it.",
            )
        return Compiler(command)
    for name in _DEFAULTS:
        if shutil.which(name, path=path) is not None:
            return Compiler([name])
    raise DeviceError(
        "The device 'c' needs a C compiler, and none of cc, gcc and clang was found.",
        "Install one (Debian, Ubuntu: apt install gcc; macOS: xcode-select --install), or set the environment variable "
        "CC to it.",
    )


_stores: dict[bytes, CodeStore] = {}
_lock = threading.Lock()
reopen_after_fork(sys.modules[__name__])


def _store() -> CodeStore:
    """The store of the current compiler's libraries."""
    made = compiler()
    store = _stores.get(made.fingerprint())
    if store is None:
        with _lock:
            store = _stores.setdefault(made.fingerprint(), CodeStore(user_folder(), maker=made))
    return store


_ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def compile_unit(unit: SourceUnit) -> CompiledUnit:
    """The unit's entry; it runs without the GIL."""
    text = unit_source(unit)
    key = hashlib.blake2b(text.encode(), digest_size=32).digest()
    entry = _ENTRY_TYPE(_store().address(key, ENTRY, lambda: text))
    addresses = ctypes.c_void_p * len(unit.entry.parameters)

    def run(*arrays: np.ndarray) -> None:
        entry(addresses(*(array.__array_interface__["data"][0] for array in arrays)))

    return run
