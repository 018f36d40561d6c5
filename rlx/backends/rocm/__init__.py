"""The ROCm backend: kernels as HIP through CuPy, for AMD's GPUs."""

from __future__ import annotations

from dataclasses import replace

from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.limits import Limits
from rlx.backends.rocm.dialect import HipDialect
from rlx.backends.rocm.engine import RocmEngine
from rlx.backends.rocm.products import is_hipblas_product
from rlx.ir.options import LoweringOptions, ProductType

__all__ = ["RocmBackend"]

_SHOWN = "gfx942"  # what programs are shown for where there is no GPU
_OF_UNITS = (
    ProductType.of("float16", "float32"),
    ProductType.of("bfloat16", "float32"),
    ProductType.of("int8", "int32"),
    ProductType.of("uint8", "uint32"),
)
_LIMITS = Limits(together=Limits().units)
_FLAGS = ("-O3", "-ffp-contract=off", "-std=c++17")


class RocmBackend(DeviceBackend):
    """A GPU of AMD's. Without one, programs can be shown, but not run."""

    name = "rocm"
    engine: RocmEngine

    def __init__(self, number: int = 0) -> None:
        super().__init__(RocmEngine(self.name, "ROCm", _FLAGS, _LIMITS, number))

    def numbered(self, number: int) -> RocmBackend:
        """Another GPU."""
        return RocmBackend(number)

    @property
    def lowering(self) -> LoweringOptions:
        """With products of narrow numbers where the GPU has matrix cores."""
        options = super().lowering
        held = [kind for kind in _OF_UNITS if self.dialect().fragments(kind.operands) is not None]
        return replace(options, products=replace(options.products, types=(*options.products.types, *held)))

    def dialect(self) -> HipDialect:
        """hipBLAS multiplies, but for narrow numbers; routines are rocSOLVER's, hipBLAS's and hipFFT's."""
        return HipDialect(self.engine.architecture if self.engine.present else _SHOWN, True, is_hipblas_product)
