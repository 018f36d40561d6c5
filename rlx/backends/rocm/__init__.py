"""The ROCm backend: kernels as HIP through CuPy, for AMD's GPUs."""

from __future__ import annotations

from rlx.backends.cuda.engine import CupyEngine
from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.rocm.dialect import HipDialect

__all__ = ["RocmBackend"]

_FLAGS = ("-O3", "-ffp-contract=off", "-std=c++17")


class RocmBackend(DeviceBackend):
    """A GPU of AMD's. Without one, programs can be shown, but not run."""

    name = "rocm"

    def __init__(self, number: int = 0) -> None:
        super().__init__(CupyEngine(self.name, "ROCm", _FLAGS, Limits(), number))

    def numbered(self, number: int) -> RocmBackend:
        """Another GPU."""
        return RocmBackend(number)

    def dialect(self) -> DeviceDialect:
        """Products are kernels of our own: no library was tried."""
        return HipDialect()
