"""The CUDA backend: kernels as CUDA C++ through CuPy, for NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.engine import CupyEngine
from rlx.backends.cuda.nvrtc import COMPILER, code_of, compile_program
from rlx.backends.cuda.products import is_library_product
from rlx.backends.cuda.report import disassembly, register_table
from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.cost import H100
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.graphs import MOST_LAUNCHES
from rlx.backends.gpu.limits import Limits
from rlx.config import config
from rlx.ir.options import LoweringOptions, ProductType

__all__ = ["CudaBackend"]

_SHOWN = "sm_90"  # the architecture that programs are shown for without a GPU
_LIMITS = Limits(together=Limits().units, graph_launches=MOST_LAUNCHES)  # of an H100
# the numbers that tensor cores multiply, by the first architecture that has them
_OF_UNITS = {
    80: (
        ProductType.of("float16", "float32"),
        ProductType.of("bfloat16", "float32"),
        ProductType.of("float32", tf32=True),
        ProductType.of("int8", "int32"),
        ProductType.of("uint8", "uint32"),
    ),
    89: (ProductType.of("float8_e4m3fn", "float32"), ProductType.of("float8_e5m2", "float32")),
}
_TENSOR_CORES, _NARROWEST_FLOATS = _OF_UNITS


class CudaBackend(DeviceBackend):
    """A GPU of NVIDIA's. Without one, programs can be compiled and shown, but not run."""

    name = "cuda"
    card = H100
    engine: CupyEngine

    def __init__(self, number: int = 0) -> None:
        super().__init__(CupyEngine(self.name, "CUDA", code_of, _LIMITS, number))

    def numbered(self, number: int) -> CudaBackend:
        """The backend of another GPU."""
        return CudaBackend(number)

    @property
    def _architecture(self) -> str:
        return self.engine.architecture if self.engine.present else _SHOWN

    @property
    def _capability(self) -> int:
        """The number of the architecture."""
        return int(self._architecture.removeprefix("sm_"))

    @property
    def lowering(self) -> LoweringOptions:
        """The options: products of narrow numbers, and of float32 as tf32, if the GPU has units for them."""
        options = super().lowering
        held = (t for capability, types in _OF_UNITS.items() if self._capability >= capability for t in types)
        return replace(options, products=replace(options.products, types=(*options.products.types, *held)))

    def dialect(self) -> DeviceDialect:
        """cuBLASLt computes products: if there is a GPU, the library is asked whether it takes a product.

        cuSOLVER, cuBLAS and cuFFT compute routines.
        """
        units, narrowest = self._capability >= _TENSOR_CORES, self._capability >= _NARROWEST_FLOATS
        return CudaDialect(self._makes, units, narrowest, config.excess_precision, routines=True)

    def _makes(self, product: LibraryProduct) -> bool:
        return is_library_product(product) and (not self.engine.present or self.engine.makes(product))

    def compiled_texts(self, source: str) -> Mapping[str, str]:
        """PTX, machine instructions, and the resources of each kernel, for the GPU or for a missing one."""
        if not COMPILER.present:
            return {}
        compiled = compile_program(source, self._architecture)
        shown = {"registers": register_table(compiled), "ptx": compiled.ptx}
        return shown | ({"sass": text} if (text := disassembly(compiled)) else {})
