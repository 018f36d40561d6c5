"""Clang as a compiler of HIP: it compiles sources to code objects, also on machines without a GPU.

The device libraries of older releases lack the file with a newer architecture's number; this module writes it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlx.backends.rocm.hiprtc import options
from rlx.errors import DeviceError

__all__ = ["HipCode", "HipKernelFacts", "compile_program", "missing"]

_INSTALL = "On Debian: apt install clang-19 lld-19 rocm-device-libs libamdhip64-dev."
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "/opt/rocm/amdgcn/bitcode")
_HEADERS = ("/usr/include/hip/hip_runtime.h", "/opt/rocm/include/hip/hip_runtime.h")
_FLAGS = (
    "-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-mcode-object-version=5",
    "-include", "hip/hip_runtime.h", "-Rpass-analysis=kernel-resource-usage",
)  # fmt: skip
_SHOWN_LINES = 12
_VERSION = "@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr addrspace(4) constant i32 {}, align 4\n"


@dataclass(frozen=True, slots=True)
class HipKernelFacts:
    """The compiler's report on a kernel: registers of a work-item, bytes spilled, shared bytes of a group."""

    registers: int
    spilled: int
    stack: int
    shared: int


@dataclass(frozen=True, slots=True)
class HipCode:
    """A program's code for an architecture, and the facts of each kernel."""

    architecture: str
    code: bytes
    facts: dict[str, HipKernelFacts]


def _clang() -> str | None:
    names = ("clang-19", "clang-20", "clang-21", "/opt/rocm/llvm/bin/clang")
    return next((found for name in names if (found := shutil.which(name))), None)


def _libraries() -> Path | None:
    return next((Path(p) for p in _LIBRARIES if Path(p, "ockl.bc").exists()), None)


def missing() -> str:
    """The missing parts for compiling HIP here; empty if there are none."""
    lacks = {
        "clang": _clang() is None,
        "AMD's device libraries": _libraries() is None,
        "HIP's headers": not any(map(os.path.exists, _HEADERS)),
    }
    absent = [name for name, is_absent in lacks.items() if is_absent]
    return f"{', '.join(absent)} missing. {_INSTALL}" if absent else ""


def compile_program(source: str, architecture: str) -> HipCode:
    """Code of a program for an architecture such as "gfx942", with the options passed to hiprtc.

    Raises: DeviceError with the compiler's message.
    """
    lacking, clang, libraries = missing(), _clang(), _libraries()
    if lacking or clang is None or libraries is None:
        raise DeviceError(f"HIP cannot be compiled here: {lacking}", _INSTALL)
    with tempfile.TemporaryDirectory(prefix="rlx-hip-") as name:
        folder = Path(name)
        (folder / "unit.hip").write_text(source)
        linked = _with_version(clang, libraries, architecture, folder)
        wanted = [*options(architecture), f"--rocm-device-lib-path={linked}"]
        done = subprocess.run(
            [clang, *_FLAGS, *wanted, "unit.hip", "-o", "unit.co"],
            cwd=folder, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        if done.returncode:
            words = [line for line in done.stderr.splitlines() if "error" in line][:_SHOWN_LINES]
            raise DeviceError(
                f"{clang} refused a program for {architecture}:\n" + "\n".join(words),
                "Please report it with the program; the CPU runs it: rlx.default_device('cpu').",
            )
        return HipCode(architecture, (folder / "unit.co").read_bytes(), _facts(done.stderr))


def _with_version(clang: str, libraries: Path, architecture: str, folder: Path) -> Path:
    """The folder of the device libraries, including the file with the architecture's number."""
    name = architecture.removeprefix("gfx")
    if (libraries / f"oclc_isa_version_{name}.bc").exists():
        return libraries
    linked = folder / "bitcode"
    linked.mkdir()
    for path in libraries.glob("*.bc"):
        (linked / path.name).symlink_to(path)
    number = int(name[:-2]) * 1000 + int(name[-2], 16) * 100 + int(name[-1], 16)
    (folder / "version.ll").write_text(f'target triple = "amdgcn-amd-amdhsa"\n{_VERSION.format(number)}')
    made = linked / f"oclc_isa_version_{name}.bc"
    flags = ("-x", "ir", "-c", "-emit-llvm", "--target=amdgcn-amd-amdhsa", "-nogpulib")
    subprocess.run([clang, *flags, "version.ll", "-o", made], cwd=folder, capture_output=True, check=True)
    return linked


def _facts(remarks: str) -> dict[str, HipKernelFacts]:
    found = {}
    for part in remarks.split("Function Name: ")[1:]:

        def number(label: str, part: str = part) -> int:
            match = re.search(rf"remark: +{re.escape(label)}: (\d+)", part)
            return int(match[1]) if match else 0

        found[part.split()[0]] = HipKernelFacts(
            number("VGPRs"), number("VGPRs Spill"), number("ScratchSize [bytes/lane]"), number("LDS Size [bytes/block]")
        )
    return found
