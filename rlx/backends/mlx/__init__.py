"""The MLX backend: plans as functions of mlx.core, for Apple silicon and, by mlx[cpu], for Linux."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.base import Backend, Executable
from rlx.backends.claims import Claims
from rlx.backends.mlx.border import received, returned
from rlx.backends.mlx.library import at_work, is_on_gpu
from rlx.backends.mlx.program import PlanFunction, host_cause, why_not_compiled
from rlx.ir.kernels import Branch, Callback, Contract, Kernel, Library, Loops, Plan, Scan, Sort, While
from rlx.ir.options import ChunkLimits, LoweringOptions
from rlx.ir.show_plan import describe_plan, show_plan
from rlx.ir.types import supported_dtypes
from rlx.storage import Storage

__all__ = ["MlxBackend", "MlxExecutable"]

_WIDE = frozenset((np.dtype(np.float64), np.dtype(np.complex128)))
_KINDS: frozenset[type[Kernel]] = frozenset((Loops, Contract, Sort, Library, Scan, While, Branch, Callback))


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
    """Compiles plans to functions of mlx.core, traced at their first call."""

    name = "mlx"

    @property
    def lowering(self) -> LoweringOptions:
        """Kernels run whole: neither band by band nor in chunks."""
        return LoweringOptions(least_bands=0, chunks=ChunkLimits(counts=()))

    @property
    def claims(self) -> Claims:
        """No bands, and on a GPU no float64."""
        return Claims(kinds=_KINDS, dtypes=supported_dtypes - _WIDE if is_on_gpu() else supported_dtypes)

    def host_reason(self, kernel: Kernel) -> str | None:
        """Why a kernel runs on the host, in NumPy; None if MLX runs it."""
        return host_cause(kernel)

    def compile(self, plan: Plan) -> Executable:
        """A function of the plan."""
        return MlxExecutable(plan)
