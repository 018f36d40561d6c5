"""The OpenCL backend: kernels as OpenCL C, for GPUs and processors that have a runtime."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from rlx.backends.base import Backend, Executable
from rlx.backends.gpu.launches import LaunchProgram
from rlx.backends.loops.program import host_reason
from rlx.backends.opencl.dialect import OpenCLDialect
from rlx.backends.opencl.engine import OpenCLEngine, devices
from rlx.ir.kernels import Branch, Kernel, Plan, Scan, While
from rlx.ir.options import LoweringOptions
from rlx.ir.show_plan import describe_plan, show_host_steps, show_plan
from rlx.storage import Storage, allocate

__all__ = ["OpenCLBackend", "OpenCLExecutable"]


class OpenCLExecutable(Executable):
    """A plan's launches. Calls take turns: they share a queue."""

    def __init__(self, plan: Plan, engine: OpenCLEngine, lock: threading.Lock) -> None:
        self.plan = plan
        self._engine = engine
        self._lock = lock
        self._program = LaunchProgram(plan, engine, OpenCLDialect)

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs."""
        with self._lock:
            engine = self._engine
            given = [
                engine.borrow(storage.view((buffer.nbytes,), np.dtype(np.uint8)))
                for storage, buffer in zip(inputs, self.plan.inputs, strict=True)
            ]
            views = [engine.allocate(buffer.nbytes) for buffer in self.plan.outputs]
            self._program.run(self.plan, given, views)
            storages = [allocate(buffer.nbytes) for buffer in self.plan.outputs]
            for storage, view, buffer in zip(storages, views, self.plan.outputs, strict=True):
                engine.read(view, storage.view((buffer.nbytes,), np.dtype(np.uint8)))
            engine.finish()
            return storages

    def texts(self) -> dict[str, str]:
        """The plan, its kernels, and the program that was compiled."""
        return {
            "plan": show_plan(self.plan),
            "kernels": describe_plan(self.plan),
            "opencl": self._program.source,
            "host": show_host_steps(self.plan, _host_reason),
        }


class OpenCLBackend(Backend):
    """The first OpenCL device: a GPU if there is one."""

    name = "opencl"

    def __init__(self) -> None:
        self._engine = OpenCLEngine(devices()[0])
        self._lock = threading.Lock()

    @property
    def lowering(self) -> LoweringOptions:
        """Kernels fill the device one after the other."""
        return LoweringOptions(least_row_tiles=0)

    def host_reason(self, kernel: Kernel) -> str | None:
        """Steps of loops are queued by the host; what OpenCL C has no words for runs there."""
        return _host_reason(kernel)

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan's kernels."""
        return OpenCLExecutable(plan, self._engine, self._lock)


def _host_reason(kernel: Kernel) -> str | None:
    if isinstance(kernel, (Scan, While)):
        return "the host queues each step"
    if isinstance(kernel, Branch):
        return "the host reads which branch is taken"
    return host_reason(kernel, OpenCLDialect())
