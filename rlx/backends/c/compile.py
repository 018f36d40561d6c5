"""Units of C compiled by the system's compiler to shared libraries, which are kept on disk with other native code.

The environment variable CC names the compiler, else it is the first of cc, gcc and clang that is there. What it makes
is read, checked and kept by the store (backends/cpu/runtime/store.py) under the text, the compiler and its flags.
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
from typing import Any

import numpy as np

from rlx.backends.c.source import ENTRY, unit_source
from rlx.backends.cpu.runtime.store import Store, user_folder
from rlx.backends.loops.executable import CompiledUnit
from rlx.backends.loops.program import Unit
from rlx.errors import DeviceError

__all__ = ["FLAGS", "Compiler", "compile_unit", "compiler"]

# -fno-strict-aliasing: temporaries of different types take turns in the arena.
# -fno-trapping-math: nobody reads the flags that operations on numbers raise
FLAGS = (
    "-std=c99", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-fPIC",
    "-shared",
)  # fmt: skip
# what makes code better where the compiler has it
_WANTED = (("-march=native",), ("-fopenmp-simd", "-DRLX_OPENMP_SIMD"))
_SHOWN_LINES = 12
_DEFAULTS = ("cc", "gcc", "clang")

_kept: list[Any] = []  # code stays mapped for the life of the process


class Compiler:
    """A C compiler, as a maker of native code for a store."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        taken = [flags for flags in _WANTED if self._run(*flags, *_MACROS).returncode == 0]
        self.flags = [*FLAGS, *(flag for flags in taken for flag in flags)]
        macros = self._run(*self.flags, *_MACROS)
        if macros.returncode != 0:
            raise DeviceError(
                f"{shlex.join(self.command)} is no C compiler that takes {' '.join(FLAGS)}:\n"
                f"{_first_lines(macros.stderr)}",
                "Install gcc or clang, or set the environment variable CC to another compiler.",
            )
        digest = hashlib.blake2b(digest_size=32)
        for part in (*self.command, *self.flags, sys.platform, macros.stdout):  # macros say version and processor
            digest.update(part.encode() + b"\0")
        self._fingerprint = digest.digest()

    def _run(self, *arguments: str, folder: str | None = None) -> subprocess.CompletedProcess[str]:
        # in a session of its own, so that Ctrl-C does not stop it half way: the store waits for what it began
        return subprocess.run(
            [*self.command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            cwd=folder, start_new_session=True, check=False,
        )  # fmt: skip

    def fingerprint(self) -> bytes:
        """The compiler, its version, its flags, the processor that it compiles for."""
        return self._fingerprint

    def compile(self, text: str, symbol: str) -> tuple[bytes, int]:
        """A shared library of a file of C, loaded. Raises DeviceError for what the compiler refuses."""
        with _private_folder() as folder:
            (folder / "unit.c").write_text(text)
            done = self._run(*self.flags, "unit.c", "-o", "unit.so", "-lm", folder=str(folder))
            if done.returncode != 0:
                raise _refused(self.command, done, text)
            data = (folder / "unit.so").read_bytes()
            return data, _loaded(folder / "unit.so", symbol)

    def load(self, data: bytes, symbol: str) -> int:
        """A shared library loaded again."""
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
    """A folder that nobody else can enter, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="rlx-c-") as folder:
        yield Path(folder)


def _loaded(path: Path, symbol: str) -> int:
    """The address of a function of a shared library, whose file is not needed any more."""
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
    """What the compiler said, with the text where somebody can look at it."""
    place = "it could not be kept"
    with suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="rlx-c-refused-"))
        (folder / "unit.c").write_text(text)
        place = f"it is kept as {folder / 'unit.c'}"
    said = _first_lines(done.stderr) or f"exit status {done.returncode}"
    return DeviceError(
        f"{shlex.join(command)} could not compile the text of a program; {place}:\n{said}",
        "If the disk is full or the compiler broken, see to that, or set CC to another one. Else it is a defect of "
        "rlx: report it with that file; on the device 'cpu' the program runs meanwhile.",
    )


# ------------------------------------------------------------------ the compiler of this process
def compiler() -> Compiler:
    """The compiler that CC names, or the system's. Raises DeviceError where there is none."""
    return _compiler(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _compiler(chosen: str, path: str) -> Compiler:
    if chosen.strip():
        command = shlex.split(chosen)
        if shutil.which(command[0], path=path) is None:
            raise DeviceError(
                f"The environment variable CC names {command[0]!r}, which is not there.",
                "Set CC to a C compiler such as gcc or clang, or unset it.",
            )
        return Compiler(command)
    for name in _DEFAULTS:
        if shutil.which(name, path=path) is not None:
            return Compiler([name])
    raise DeviceError(
        "The device 'c' needs a C compiler, and none of cc, gcc and clang is there.",
        "Install one (Debian, Ubuntu: apt install gcc; macOS: xcode-select --install), or set the environment variable "
        "CC to it.",
    )


_stores: dict[bytes, Store] = {}
_lock = threading.Lock()


def _store() -> Store:
    """The store of what the current compiler makes."""
    made = compiler()
    store = _stores.get(made.fingerprint())
    if store is None:
        with _lock:
            store = _stores.setdefault(made.fingerprint(), Store(user_folder(), maker=made))
    return store


_ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def compile_unit(unit: Unit) -> CompiledUnit:
    """The unit's entry; it runs without the GIL."""
    text = unit_source(unit)
    key = hashlib.blake2b(text.encode(), digest_size=32).digest()
    entry = _ENTRY_TYPE(_store().address(key, ENTRY, lambda: text))
    addresses = ctypes.c_void_p * len(unit.entry.parameters)

    def run(*arrays: np.ndarray) -> None:
        entry(addresses(*(array.__array_interface__["data"][0] for array in arrays)))

    return run
