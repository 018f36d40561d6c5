"""The OpenCL backend: kernels as OpenCL C, for GPUs and processors that have a runtime."""

from __future__ import annotations

from rlx.backends.base import Backend, Executable
from rlx.backends.gpu.executable import DeviceExecutable, device_host_reason
from rlx.backends.gpu.memory import DeviceMemory
from rlx.backends.gpu.options import lowering_options
from rlx.backends.opencl.engine import OpenCLEngine, devices
from rlx.device_memory import Memory
from rlx.ir.kernels import Kernel, Plan
from rlx.ir.options import LoweringOptions
from rlx.storage import Device

__all__ = ["OpenCLBackend"]


class OpenCLBackend(Backend):
    """The first OpenCL device: a GPU if there is one."""

    name = "opencl"

    def __init__(self) -> None:
        self.engine = OpenCLEngine(devices()[0])
        self._memory = DeviceMemory(Device(self.name), self.engine)

    @property
    def memory(self) -> Memory:
        """The device's own: arrays stay there between calls."""
        return self._memory

    @property
    def lowering(self) -> LoweringOptions:
        """Those of devices with work-groups."""
        return lowering_options(self.engine.limits)

    def host_reason(self, kernel: Kernel) -> str | None:
        """Steps of loops are queued by the host; what OpenCL C has no words for runs there."""
        return device_host_reason(kernel, self.engine.dialect())

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan's kernels."""
        return DeviceExecutable(plan, self._memory, self.engine.dialect())
