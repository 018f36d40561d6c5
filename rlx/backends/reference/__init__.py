"""The reference backend: the semantics of plans, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.base import Backend, Executable, PlannedExecutable
from rlx.backends.reference.kernels import GARBAGE
from rlx.backends.reference.run import run_plan
from rlx.ir.kernels import Plan
from rlx.ir.show_plan import describe_plan, show_plan
from rlx.ir.verify_plan import verify_plan
from rlx.storage import Storage, allocate

__all__ = ["ReferenceBackend", "ReferenceExecutable"]


class ReferenceExecutable(PlannedExecutable):
    """A verified plan, interpreted kernel by kernel."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs."""
        arrays = [
            storage.view((buffer.size,), buffer.dtype)
            for storage, buffer in zip(inputs, self.plan.inputs, strict=True)
        ]
        storages = [allocate(buffer.nbytes) for buffer in self.plan.outputs]
        outputs = []
        for storage, buffer in zip(storages, self.plan.outputs, strict=True):
            storage.view((buffer.nbytes,), np.dtype(np.uint8)).fill(GARBAGE)
            outputs.append(storage.view((buffer.size,), buffer.dtype))
        run_plan(self.plan, arrays, outputs)
        return storages

    def texts(self) -> dict[str, str]:
        """The plan as Python source that rebuilds it, one line per kernel, and the kernels as Python."""
        from rlx.backends.numba.listing import plan_listing  # the other backend is only needed for texts

        return {
            "plan": show_plan(self.plan),
            "kernels": describe_plan(self.plan),
            "loops": plan_listing(self.plan),
        }


class ReferenceBackend(Backend):
    """Verifies plans and interprets them with NumPy."""

    name = "reference"

    def compile(self, plan: Plan) -> Executable:
        """Verify the plan; nothing is compiled."""
        verify_plan(plan)
        return ReferenceExecutable(plan)
