"""The OpenCL backend: kernels as OpenCL C, for GPUs and processors that have a runtime."""

from __future__ import annotations

from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.opencl.dialect import OpenCLDialect
from rlx.backends.opencl.engine import OpenCLEngine, devices

__all__ = ["OpenCLBackend"]


class OpenCLBackend(DeviceBackend):
    """The first OpenCL device: a GPU if there is one."""

    name = "opencl"
    engine: OpenCLEngine

    def __init__(self) -> None:
        super().__init__(OpenCLEngine(devices()[0]))

    def dialect(self) -> DeviceDialect:
        """With shuffles where the device has sub-groups."""
        return OpenCLDialect(self.engine.shuffles, self.engine.limits.warp)
