"""Plans run by the interpreter of kernel code: every launch of a device's program, without the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.program import DeviceProgram
from rlx.backends.gpu.steps import LaunchStep
from rlx.backends.reference.kernels import Memory, RunPlan, run_kernel
from rlx.backends.reference.run import run_plan
from rlx.code.running import run_code
from rlx.ir.kernels import Buffer, Kernel, Plan
from rlx.ir.types import element_dtype


class InterpretedProgram:
    """A device program; `ran` counts its launches by strategy, and the kernels that the reference ran instead."""

    def __init__(self, plan: Plan, dialect: DeviceDialect, limits: Limits) -> None:
        self.plan = plan
        self.program = DeviceProgram(plan, dialect, limits)
        self.ran: Counter[str] = Counter()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, as flat arrays."""
        outputs = [np.zeros(b.size, b.dtype) for b in self.plan.outputs]
        run_plan(self.plan, [np.array(x) for x in inputs], outputs, self._kernel)
        return outputs

    def _kernel(self, kernel: Kernel, memory: Memory, run: RunPlan) -> None:
        steps = self.program.steps.get(kernel)
        if steps is None or not all(step.code for step in steps):
            self.ran[f"reference: {type(kernel).__name__}"] += 1
            run_kernel(kernel, memory, run)
            return
        scratch = {b: _of_kernel(b) for step in steps for b in step.arrays if b not in memory}
        for step in steps:
            self.ran[step.strategy] += 1
            arrays = {
                parameter.name: _flat(memory.get(buffer, scratch.get(buffer)), parameter.dtype)
                for parameter, buffer in zip(step.parameters, step.arrays, strict=True)
            }
            if step.groups:
                self.launch(step, arrays)

    def launch(self, step: LaunchStep, arrays: Mapping[str, np.ndarray]) -> None:
        """Run one launch."""
        run_code(step.code, arrays, step.groups, step.items)


def _of_kernel(buffer: Buffer) -> np.ndarray:
    """Memory that is in no plan, or a constant of a loop's body."""
    return buffer.elements.copy() if buffer.role == "constant" else np.zeros(buffer.size, buffer.dtype)


def _flat(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The real elements of an array, or its bytes, as the parameter of a kernel has them."""
    return array.view(np.uint8 if dtype == np.uint8 else element_dtype(array.dtype))
