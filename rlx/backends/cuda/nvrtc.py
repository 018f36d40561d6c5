"""CUDA's runtime compiler, by ctypes: texts become code for an architecture, on machines without a GPU, too."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlx.errors import DeviceError

__all__ = ["FLAGS", "Compiled", "KernelFacts", "compile_program", "installed"]

# the same results as other devices': products are rounded before they are added, quotients and roots correctly
FLAGS = (
    "--std=c++17", "--device-as-default-execution-space", "--fmad=false", "--prec-div=true", "--prec-sqrt=true",
    "--ftz=false", "--ptxas-options=-v", "--no-cache",
)  # fmt: skip
_SHOWN_LINES = 12
_INSTALL = "pip install 'rlx[cuda]' brings it; without a GPU, pip install 'rlx[cuda-compile]' does."
_PROPERTIES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores,"
    r" (?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What the assembler says of a kernel: registers of an item, bytes that did not fit in them, bytes of a group."""

    registers: int
    spilled: int
    stack: int
    shared: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program's code for an architecture, its PTX, and what is known of each kernel."""

    architecture: str
    code: bytes
    ptx: str
    facts: dict[str, KernelFacts]


def _library_paths() -> list[str]:
    """Where pip, and then the system, keeps the compiler."""
    windows = ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
    names = windows if sys.platform == "win32" else ["libnvrtc.so.13", "libnvrtc.so.12"]
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    inside = ("cu13/lib", "cuda_nvrtc/lib", "cu13/bin", "cuda_nvrtc/bin")
    found = [f / part / name for f in folders for part in inside for name in names]
    return [*(str(p) for p in found if p.exists()), *names]


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    for path in _library_paths():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise DeviceError("CUDA's runtime compiler, libnvrtc, is not installed.", _INSTALL)


def installed() -> bool:
    """Whether there is a compiler."""
    try:
        _nvrtc()
    except DeviceError:
        return False
    return True


def _checked(status: int) -> None:
    if status:
        words = _nvrtc().nvrtcGetErrorString(status).decode()
        raise DeviceError(f"CUDA's runtime compiler failed: {words}.", _INSTALL)


def _taken(program: ctypes.c_void_p, what: str) -> bytes:
    library, size = _nvrtc(), ctypes.c_size_t()
    _checked(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value + 1)
    _checked(getattr(library, f"nvrtcGet{what}")(program, data))
    return data.raw[: size.value]


def compile_program(source: str, architecture: str, flags: Sequence[str] = FLAGS) -> Compiled:
    """Code of a program for an architecture such as "sm_90". Raises DeviceError with the compiler's words."""
    library, program = _nvrtc(), ctypes.c_void_p()
    _checked(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"rlx.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={architecture}".encode(), *(flag.encode() for flag in flags)]
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _taken(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            words = "\n".join(log.splitlines()[:_SHOWN_LINES])
            raise DeviceError(
                f"CUDA's compiler refused a program for {architecture}:\n{words}",
                "Please report it with the program; the CPU runs it: rlx.default_device('cpu').",
            )
        code, ptx = _taken(program, "CUBIN"), _taken(program, "PTX").rstrip(b"\0").decode()
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return Compiled(architecture, code, ptx, _facts(log))


def _facts(log: str) -> dict[str, KernelFacts]:
    found = {}
    for match in _PROPERTIES.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        found[match["name"]] = KernelFacts(
            int(match["registers"]),
            int(match["stores"]) + int(match["loads"]),
            int(match["stack"]),
            int(shared[1]) if shared else 0,
        )
    return found
