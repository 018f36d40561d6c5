"""hiprtc, ROCm's runtime compiler: it compiles sources for a GPU."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from rlx.backends.gpu.runtime_compiler import DeviceCode, RuntimeCompiler

__all__ = ["COMPILER", "FLAGS", "code_of", "options"]

# the same results as on other devices: products are rounded before they are added, and denormal numbers are kept
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-gpu-flush-denormals-to-zero")
_INSTALL = (
    "Install ROCm 7: its hiprtc compiles rlx's programs. If it is not in a system folder, set ROCM_HOME to"
    " its folder (such as /opt/rocm)."
)


def _roots() -> list[Path]:
    chosen = [os.environ[name] for name in ("ROCM_HOME", "ROCM_PATH") if os.environ.get(name)]
    return [Path(folder) for folder in (*chosen, "/opt/rocm")]


def _library_paths() -> list[str]:
    """Possible locations of the compiler: ROCm's folder, then the system."""
    if sys.platform == "win32":
        return ["hiprtc0700.dll"]
    names = ("libhiprtc.so.7", "libhiprtc.so")
    inside = [folder / "lib" / name for folder in _roots() for name in names]
    return [*(str(path) for path in inside if path.exists()), *names]


def _header_folders() -> list[str]:
    folders = (folder / "include" for folder in _roots())
    return [str(folder) for folder in folders if folder.is_dir()]


COMPILER = RuntimeCompiler("ROCm", "hiprtc", _library_paths, lambda: _INSTALL, _header_folders)


def options(architecture: str) -> tuple[str, ...]:
    """All compiler options for an architecture such as "gfx942"."""
    return (f"--offload-arch={architecture}", *FLAGS)


@cache
def code_of(architecture: str) -> DeviceCode:
    """The compiled code of programs that run on an architecture."""
    return DeviceCode(COMPILER, architecture, options(architecture), "Code")
