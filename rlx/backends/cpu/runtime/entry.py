"""The run-time system of this process: addresses of its steps, and the call from Python into it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from rlx.backends.cpu.runtime import executor, known_calls, signals, system
from rlx.backends.cpu.runtime.compile import define_symbols
from rlx.backends.cpu.runtime.native import External
from rlx.backends.cpu.runtime.parts import PARTS_OF_RUNTIME, runtime_text
from rlx.backends.cpu.runtime.store import default_store, fingerprint
from rlx.interrupts import in_background
from rlx.storage import Storage

__all__ = ["Call", "Runtime", "RuntimeCode", "load_runtime", "start_loading"]

Call = Callable[[int, Sequence[Storage], list[Storage]], list[Storage]]
METH_FASTCALL = 0x0080


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class Runtime:
    """Native addresses by name, and `call(frame address, inputs, outputs) -> outputs`."""

    addresses: Mapping[str, int]
    call: Call
    definition: Any  # CPython refers to it as long as `call` lives


def _libraries() -> list[Any]:
    libraries: list[Any] = [ctypes.pythonapi]
    if sys.platform == "win32":
        libraries += [ctypes.CDLL("kernel32"), ctypes.CDLL("kernelbase")]
    else:
        libraries.append(ctypes.CDLL(None))
    return libraries


@lru_cache(maxsize=1)
def bind_externals() -> None:
    """Pass LLVM the addresses of the C functions that the run-time system calls."""
    libraries = _libraries()
    addresses: dict[str, int] = {}
    for module in (executor, known_calls, signals, system):
        for value in vars(module).values():
            if isinstance(value, External):
                for library in libraries:
                    function = getattr(library, value.name, None)
                    if function is not None:
                        addresses[value.name] = ctypes.cast(function, ctypes.c_void_p).value or 0
                        break
    define_symbols(addresses)


def _builtin(address: int) -> tuple[Call, Any]:
    """A native function as a Python one (METH_FASTCALL)."""
    definition = _MethodDefinition(b"call", address, METH_FASTCALL, b"Run a plan on a frame.")
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return make(ctypes.addressof(definition), None, None), definition


@dataclass(frozen=True)
class RuntimeCode:
    """A part of the run-time system as code to compile, as kernels are."""

    part: str
    symbol: str = "rlx_runtime"

    @property
    def key(self) -> bytes:
        """The key of the code in the store."""
        return b"runtime " + self.part.encode() + fingerprint()

    @property
    def ir(self) -> str:
        """LLVM IR text."""
        bind_externals()
        return runtime_text(self.part)

    def filler(self) -> int:
        """The address of the function that tells the others' addresses."""
        bind_externals()
        return default_store().address(self.key, self.symbol, lambda: self.ir)


class _Addresses(dict[str, int]):
    """Native addresses by name; a part of the run-time system is loaded when one of its names is first used."""

    def __missing__(self, name: str) -> int:
        part = next(p for p, functions in PARTS_OF_RUNTIME.items() if name in {f.name for f in functions})
        names = [function.name for function in PARTS_OF_RUNTIME[part]]
        words = (ctypes.c_int64 * len(names))()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(RuntimeCode(part).filler())(ctypes.addressof(words))
        self.update(zip(names, words, strict=True))
        return self[name]


def _load(part: str) -> None:
    code = RuntimeCode(part)
    with contextlib.suppress(Exception):  # the error is raised again when the code is needed
        if not default_store().on_disk(code.key):
            code.filler()


_loading: list[AbstractContextManager[Any]] = []  # locks, held while a part is being loaded


def start_loading(part: str = "core") -> None:
    """Compile a part of the run-time system, if it is not on disk, while Python traces and lowers."""
    _loading.append(in_background(partial(_load, part)))


def _finish_loading() -> None:
    """Before a fork: no thread is left in the middle of loading libraries, whose locks the child would keep."""
    while _loading:
        with _loading.pop():
            pass


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_loading)


@lru_cache(maxsize=1)
def load_runtime() -> Runtime:
    """The run-time system; its parts come from disk, or are compiled, when they are wanted."""
    addresses = _Addresses()
    call, definition = _builtin(addresses["entry"])
    return Runtime(addresses, call, definition)
