"""The CUDA backend: kernels as CUDA C++ through CuPy, for NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.engine import CupyEngine
from rlx.backends.cuda.nvrtc import FLAGS, compile_program, installed
from rlx.backends.cuda.report import disassembly, register_table
from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits

__all__ = ["CudaBackend"]

_SHOWN = "sm_90"  # what programs are shown for where there is no GPU
_OF_ASSEMBLER = ("--ptxas-options", "--no-cache")  # flags that CuPy has no use for


class CudaBackend(DeviceBackend):
    """The first GPU of NVIDIA's. Without one, programs can be compiled and shown, but not run."""

    name = "cuda"
    engine: CupyEngine

    def __init__(self) -> None:
        flags = [flag for flag in FLAGS if not flag.startswith(_OF_ASSEMBLER)]
        super().__init__(CupyEngine(self.name, "CUDA", flags, Limits()))

    def dialect(self) -> DeviceDialect:
        """cuBLAS multiplies, where there is a GPU."""
        return CudaDialect(products=True)

    def compiled_texts(self, source: str) -> Mapping[str, str]:
        """PTX, the machine's instructions, and what each kernel needs, for the GPU or for one that is not there."""
        if not installed():
            return {}
        compiled = compile_program(source, self.engine.architecture if self.engine.present else _SHOWN)
        shown = {"registers": register_table(compiled), "ptx": compiled.ptx}
        return shown | ({"sass": text} if (text := disassembly(compiled)) else {})
