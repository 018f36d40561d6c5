"""The ROCm backend: kernels as HIP through CuPy, for AMD's GPUs."""

from __future__ import annotations

from dataclasses import replace

from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.limits import Limits
from rlx.backends.rocm.dialect import HipDialect
from rlx.backends.rocm.engine import RocmEngine
from rlx.backends.rocm.hiprtc import code_of
from rlx.backends.rocm.products import is_hipblas_product
from rlx.ir.options import LoweringOptions, ProductType

__all__ = ["RocmBackend"]

_SHOWN = "gfx942"  # the architecture that programs are shown for without a GPU
_OF_UNITS = (
    ProductType.of("float16", "float32"),
    ProductType.of("bfloat16", "float32"),
    ProductType.of("int8", "int32"),
    ProductType.of("uint8", "uint32"),
)
_LIMITS = Limits(together=Limits().units)


class RocmBackend(DeviceBackend):
    """An AMD GPU. Without one, programs can be shown, but not run."""

    name = "rocm"
    engine: RocmEngine

    def __init__(self, number: int = 0) -> None:
        super().__init__(RocmEngine(self.name, "ROCm", code_of, _LIMITS, number))

    def numbered(self, number: int) -> RocmBackend:
        """The backend of another GPU."""
        return RocmBackend(number)

    @property
    def lowering(self) -> LoweringOptions:
        """The options: products of narrow numbers if the GPU has matrix cores."""
        options = super().lowering
        held = [kind for kind in _OF_UNITS if self.dialect().fragments(kind.operands) is not None]
        return replace(options, products=replace(options.products, types=(*options.products.types, *held)))

    def dialect(self) -> HipDialect:
        """hipBLAS computes products, except of narrow numbers; rocSOLVER, hipBLAS and hipFFT compute routines."""
        return HipDialect(self.engine.architecture if self.engine.present else _SHOWN, True, is_hipblas_product)
