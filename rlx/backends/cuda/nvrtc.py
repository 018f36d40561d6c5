"""NVRTC, CUDA's runtime compiler: it compiles source for an architecture, also on machines without a GPU."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rlx.backends.gpu.runtime_compiler import DeviceCode, RuntimeCompiler
from rlx.installation import install_command

__all__ = ["COMPILER", "FLAGS", "CudaCode", "CudaKernelFacts", "code_of", "compile_program", "options"]

# the same results as on other devices: products are rounded before they are added, quotients and roots correctly,
# and denormal numbers are kept
FLAGS = (
    "--std=c++17", "--device-as-default-execution-space", "--fmad=false", "--prec-div=true", "--prec-sqrt=true",
    "--ftz=false", "--ptxas-options=-v", "--no-cache",
)  # fmt: skip
_CODE = "CUBIN"
_PROPERTIES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores,"
    r" (?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class CudaKernelFacts:
    """The assembler's report on a kernel: registers of a work-item, bytes spilled, stack bytes, shared bytes of a
    group."""

    registers: int
    spilled: int
    stack: int
    shared: int


@dataclass(frozen=True, slots=True)
class CudaCode:
    """A program's code for an architecture, its PTX, and the facts of each kernel."""

    architecture: str
    code: bytes
    ptx: str
    facts: dict[str, CudaKernelFacts]


def _library_paths() -> list[str]:
    """Possible locations of the compiler: pip's packages, then CUDA toolkits, then the system."""
    windows = ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
    names = windows if sys.platform == "win32" else ["libnvrtc.so.13", "libnvrtc.so.12"]
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    inside = ("cu13/lib", "cuda_nvrtc/lib", "cu13/bin", "cuda_nvrtc/bin")
    found = [f / part / name for f in folders for part in inside for name in names]
    return [*(str(p) for p in found if p.exists()), *_of_toolkits(), *names]


def _of_toolkits() -> list[str]:
    """The compiler of a CUDA toolkit, found by the search that CuPy uses."""
    with suppress(ImportError, RuntimeError, OSError):
        pathfinder = importlib.import_module("cuda.pathfinder")
        return [pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path]
    return []


def _header_folders() -> list[str]:
    """The headers of pip's packages and of toolkits, found by the same search."""
    with suppress(ImportError, RuntimeError, OSError):
        pathfinder = importlib.import_module("cuda.pathfinder")
        found = map(pathfinder.find_nvidia_header_directory, ("cudart", "cccl"))
        return list(dict.fromkeys(folder for folder in found if folder))
    return []


def _remedy() -> str:
    return f"{install_command('cuda')} installs it; without a GPU, {install_command('cuda-compile')} does."


COMPILER = RuntimeCompiler("CUDA", "nvrtc", _library_paths, _remedy, _header_folders)


def options(architecture: str) -> tuple[str, ...]:
    """All compiler options for an architecture such as "sm_90"."""
    return (f"--gpu-architecture={architecture}", *FLAGS)


@cache
def code_of(architecture: str) -> DeviceCode:
    """The compiled code of programs that run on an architecture."""
    return DeviceCode(COMPILER, architecture, options(architecture), _CODE)


def compile_program(source: str, architecture: str) -> CudaCode:
    """A program's code for an architecture, its PTX, and the facts of its kernels.

    Raises: DeviceError with the compiler's message.
    """
    (code, ptx), log = COMPILER.compile(source, architecture, options(architecture), (_CODE, "PTX"))
    return CudaCode(architecture, code, ptx.rstrip(b"\0").decode(), _facts(log))


def _facts(log: str) -> dict[str, CudaKernelFacts]:
    found = {}
    for match in _PROPERTIES.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        found[match["name"]] = CudaKernelFacts(
            int(match["registers"]),
            int(match["stores"]) + int(match["loads"]),
            int(match["stack"]),
            int(shared[1]) if shared else 0,
        )
    return found
