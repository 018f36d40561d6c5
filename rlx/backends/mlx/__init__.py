"""The MLX backend: plans as functions of mlx.core, for Apple silicon and, by mlx[cpu], for Linux."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.base import Backend, Executable
from rlx.backends.mlx.border import received, returned
from rlx.backends.mlx.library import at_work, is_on_gpu
from rlx.backends.mlx.program import PlanFunction, why_not_compiled
from rlx.errors import DeviceError
from rlx.ir.kernels import Plan
from rlx.ir.options import LoweringOptions
from rlx.ir.show_plan import describe_plan, nested_plans, show_plan
from rlx.storage import Storage

__all__ = ["MlxBackend", "MlxExecutable"]


class MlxExecutable(Executable):
    """A plan as a function of MLX's arrays."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.function = PlanFunction(plan)

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs; results lie where MLX put them."""
        with at_work():
            arrays = received(inputs, self.plan.inputs)
        results = self.function(arrays, ())
        with at_work():
            return returned(results, self.plan.outputs, self.function.constants.values())

    def texts(self) -> dict[str, str]:
        """The plan, its kernels, what is traced, and what runs on the host and why."""
        host = [f"{_name(kernel)}: {cause}" for kernel, cause in self.function.host_steps]
        host += [f"{_name(kernel)}: stepped by the host" for kernel in self.function.host_loops]
        reason = why_not_compiled()
        compiled = "compiled by mx.compile on the main thread" if reason is None else f"not compiled: {reason}"
        return {
            "plan": show_plan(self.plan),
            "kernels": describe_plan(self.plan),
            "mlx": f"{self.function.traced} traced functions, {compiled}",
            "host": "\n".join(host),
        }


def _name(kernel: object) -> str:
    label = getattr(kernel, "label", "") or getattr(kernel, "routine", "")
    return f"{type(kernel).__name__.lower()} {label}".strip()


class MlxBackend(Backend):
    """Compiles plans to functions of mlx.core."""

    name = "mlx"

    @property
    def lowering(self) -> LoweringOptions:
        """Kernels run whole: neither band by band nor in chunks."""
        return LoweringOptions(least_bands=0, chunk_elements=1 << 62)

    def compile(self, plan: Plan) -> Executable:
        """A function of the plan, traced at its first call. Raises DeviceError for float64 on a GPU."""
        if is_on_gpu():
            _refuse_double(plan)
        return MlxExecutable(plan)


def _refuse_double(plan: Plan) -> None:
    for buffer in plan.buffers:
        if buffer.dtype in (np.dtype(np.float64), np.dtype(np.complex128)):
            raise DeviceError(
                f"The program computes in {buffer.dtype}, which the GPU of the device 'mlx' has not.",
                "Use float32 (rlx.numpy.float32, complex64), or compute it on the CPU: rlx.jit(f, device='cpu').",
            )
    for kernel in plan.kernels:
        for inner in nested_plans(kernel):
            _refuse_double(inner)
