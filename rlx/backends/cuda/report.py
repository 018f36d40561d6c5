"""Reports on compiled CUDA programs: registers, occupancy, instructions."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from rlx.backends.cuda.nvrtc import CudaCode, CudaKernelFacts

__all__ = ["disassembly", "occupancy", "register_table"]

_REGISTERS = 1 << 16  # registers of a multiprocessor
_GRAIN = 256  # warps allocate registers in units of this many
_WARP = 32
_BOUNDS = re.compile(r"\.entry (?P<name>\w+)\(.*?\.maxntid (?P<items>\d+)", re.DOTALL)
# warps and bytes of shared memory of a multiprocessor, by architecture
_MULTIPROCESSORS = {
    "sm_75": (32, 64 << 10), "sm_80": (64, 164 << 10), "sm_86": (48, 100 << 10), "sm_89": (48, 100 << 10),
    "sm_90": (64, 228 << 10), "sm_100": (64, 228 << 10), "sm_120": (48, 100 << 10),
}  # fmt: skip


def occupancy(facts: CudaKernelFacts, items: int, architecture: str) -> float:
    """The share of a multiprocessor's warps that groups of a kernel can fill.

    >>> from rlx.backends.cuda.nvrtc import CudaKernelFacts
    >>> occupancy(CudaKernelFacts(registers=64, spilled=0, stack=0, shared=0), 256, "sm_90")
    0.5
    """
    warps, memory = _MULTIPROCESSORS.get(architecture, _MULTIPROCESSORS["sm_90"])
    each = -(-items // _WARP)
    portion = -(-facts.registers * _WARP // _GRAIN) * _GRAIN
    by_registers = _REGISTERS // max(portion * each, 1)
    by_memory = memory // facts.shared if facts.shared else warps
    return min(warps // each, by_registers, by_memory) * each / warps


def register_table(compiled: CudaCode) -> str:
    """A line for each kernel."""
    items = {match["name"]: int(match["items"]) for match in _BOUNDS.finditer(compiled.ptx)}
    return "\n".join(
        f"{name} ({compiled.architecture}): {facts.registers} registers, {facts.spilled} bytes spilled,"
        f" {facts.shared} bytes shared, occupancy {occupancy(facts, items.get(name, _WARP), compiled.architecture):.0%}"
        for name, facts in compiled.facts.items()
    )


def _tool() -> str | None:
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    beside = [str(f / part) for f in folders for part in ("cu13/bin/nvdisasm",) if (f / part).exists()]
    return beside[0] if beside else shutil.which("nvdisasm")


def disassembly(compiled: CudaCode) -> str:
    """Machine instructions; empty if nvdisasm is not installed."""
    tool = _tool()
    if tool is None:
        return ""
    with tempfile.TemporaryDirectory(prefix="rlx-sass-") as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(compiled.code + b"\0")  # NVRTC omits the last byte
        done = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, errors="replace", check=False)
        return done.stdout
