"""The CUDA backend: kernels as CUDA C++ through CuPy, for NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.engine import CupyEngine
from rlx.backends.cuda.nvrtc import FLAGS, compile_program, installed
from rlx.backends.cuda.report import disassembly, register_table
from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.cost import H100
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.ir.options import LoweringOptions, ProductType

__all__ = ["CudaBackend"]

_SHOWN = "sm_90"  # what programs are shown for where there is no GPU
_TENSOR_CORES = 80
_OF_UNITS = (
    ProductType.of("float16", "float32"),
    ProductType.of("bfloat16", "float32"),
    ProductType.of("float32", tf32=True),
)
_OF_ASSEMBLER = ("--ptxas-options", "--no-cache")  # flags that CuPy has no use for


class CudaBackend(DeviceBackend):
    """A GPU of NVIDIA's. Without one, programs can be compiled and shown, but not run."""

    name = "cuda"
    card = H100
    engine: CupyEngine

    def __init__(self, number: int = 0) -> None:
        flags = [flag for flag in FLAGS if not flag.startswith(_OF_ASSEMBLER)]
        super().__init__(CupyEngine(self.name, "CUDA", flags, Limits(), number))

    def numbered(self, number: int) -> CudaBackend:
        """Another GPU."""
        return CudaBackend(number)

    @property
    def _architecture(self) -> str:
        return self.engine.architecture if self.engine.present else _SHOWN

    @property
    def _has_tensor_cores(self) -> bool:
        """Whether fragments of 16-bit floats and of tf32 are multiplied in one step: from sm_80 on."""
        return int(self._architecture.removeprefix("sm_")) >= _TENSOR_CORES

    @property
    def lowering(self) -> LoweringOptions:
        """With products of 16-bit floats, and of float32 as tf32, where the GPU has units for them."""
        options = super().lowering
        if not self._has_tensor_cores:
            return options
        return replace(options, products=replace(options.products, types=(*options.products.types, *_OF_UNITS)))

    def dialect(self) -> DeviceDialect:
        """cuBLAS multiplies, but for 16-bit floats; routines are cuSOLVER's, cuBLAS's and cuFFT's."""
        return CudaDialect(products=True, tensor_cores=self._has_tensor_cores, routines=True)

    def compiled_texts(self, source: str) -> Mapping[str, str]:
        """PTX, the machine's instructions, and what each kernel needs, for the GPU or for one that is not there."""
        if not installed():
            return {}
        compiled = compile_program(source, self._architecture)
        shown = {"registers": register_table(compiled), "ptx": compiled.ptx}
        return shown | ({"sass": text} if (text := disassembly(compiled)) else {})
