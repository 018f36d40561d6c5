"""The MLX backend: plans as functions of mlx.core, for Apple silicon and, by mlx[cpu], for Linux."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.base import Backend, Executable, PlannedExecutable, failed_run
from rlx.backends.claims import Claims
from rlx.backends.mlx.blocks import BLOCKS, fits
from rlx.backends.mlx.library import UNITS, MlxDevice, MxArray, at_work, begun, computing_on
from rlx.backends.mlx.memory import MlxMemory, MlxStorage
from rlx.backends.mlx.metal import is_wanted, metal_kernel, why_not_metal
from rlx.backends.mlx.mistakes import described
from rlx.backends.mlx.program import PlanFunction, host_cause, traced_parts, why_not_compiled
from rlx.backends.mlx.views import flat
from rlx.device_memory import Memory
from rlx.errors import DeviceError
from rlx.ir.kernels import Branch, Buffer, Callback, Contract, Kernel, Library, Loops, Plan, Scan, Sort, While
from rlx.ir.options import ChunkLimits, LoweringOptions, RowLimits
from rlx.ir.show_plan import describe_plan, show_plan
from rlx.ir.types import supported_dtypes
from rlx.storage import Device, Storage

__all__ = ["MlxBackend", "MlxExecutable"]

_WIDE = frozenset((np.dtype(np.float64), np.dtype(np.complex128)))
_KINDS: frozenset[type[Kernel]] = frozenset((Loops, Contract, Sort, Library, Scan, While, Branch, Callback))


class MlxExecutable(PlannedExecutable):
    """A plan as a function of MLX's arrays."""

    def __init__(self, plan: Plan, unit: MlxDevice) -> None:
        self.plan = plan
        self.unit = unit
        with computing_on(unit):
            self.function = PlanFunction(plan)

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs; the results are computed asynchronously."""
        with computing_on(self.unit):
            return self._begun(self._results(inputs))

    def run_giving(self, inputs: list[Storage]) -> list[Storage]:
        """Run, and empty the list before MLX computes: it reuses arrays that only its graph references."""
        with computing_on(self.unit):
            results = self._results(inputs)
            inputs.clear()
            return self._begun(results)

    def _results(self, inputs: Sequence[Storage]) -> list[MxArray]:
        """The results before they are computed, except steps that the host has to wait for."""
        try:
            with at_work():
                arrays = [_elements(s, b) for s, b in zip(inputs, self.plan.inputs, strict=True)]
            results, error = self.function(arrays, ()), None
        except (RuntimeError, MemoryError) as raised:  # from a step that the host waited for
            results, error = [], raised
        if error is not None:
            raise described(error)
        with at_work():
            return [flat(r) for r in results]

    def _begun(self, results: list[MxArray]) -> list[Storage]:
        error = begun(results)
        return [MlxStorage(array, self.failed, error) for array in results]

    def failed(self, error: BaseException) -> BaseException:
        """The error that waiting for a result raises, instead of MLX's error."""
        return failed_run(described(error), self.plan.kernels)

    def texts(self) -> dict[str, str]:
        """The plan, its kernels, the traced functions, and the kernels that run on the host, with reasons."""
        host = [f"{_name(kernel)}: {cause}" for kernel, cause in self.function.host_steps]
        host += [f"{_name(kernel)}: stepped by the host" for kernel in self.function.host_loops]
        with computing_on(self.unit):
            reason = why_not_compiled()
        compiled = "compiled by mx.compile on the main thread" if reason is None else f"not compiled: {reason}"
        return {
            "plan": show_plan(self.plan),
            "kernels": describe_plan(self.plan),
            "mlx": f"{self.function.traced} traced functions, {compiled}",
            "host": "\n".join(host),
            **self._metal(),
        }

    def _metal(self) -> dict[str, str]:
        """The source of rlx's Metal kernels, if they are enabled."""
        if not is_wanted():
            return {}
        nests = [k for part in traced_parts(self.function) for k in part.kernels if isinstance(k, Loops)]
        made = [metal_kernel(k) for k in nests if why_not_metal(k) is None]
        return {"metal": "\n\n".join(f"// {m.name}\n{m.header}\n{m.source}" for m in made)}


def _elements(storage: Storage, buffer: Buffer) -> MxArray:
    assert isinstance(storage, MlxStorage)
    return storage.typed(buffer.dtype)


def _name(kernel: object) -> str:
    label = getattr(kernel, "label", "") or getattr(kernel, "routine", "")
    return f"{type(kernel).__name__.lower()} {label}".strip()


class MlxBackend(Backend):
    """Compiles plans to functions of mlx.core, traced at their first call. unit: by default MLX's default device."""

    name = "mlx"

    def __init__(self, number: int = 0) -> None:
        self.unit = UNITS[number]
        self._memory = MlxMemory(Device("mlx", number, self.unit.name), self.unit)

    @property
    def units(self) -> tuple[str, ...]:
        """MLX's GPU, if there is one, and the processor."""
        return tuple(unit.name for unit in UNITS)

    def on(self, unit: str) -> Backend:
        """The backend of MLX's GPU or of its processor. Raises DeviceError."""
        if unit in ("0", self.unit.name):
            return self
        if unit not in self.units:
            which = " and ".join(f"mlx:{name}" for name in self.units)
            raise DeviceError(f"There is no device 'mlx:{unit}': MLX has {which} here.", "Use one of these, or 'mlx'.")
        return MlxBackend(self.units.index(unit))

    @property
    def memory(self) -> Memory:
        """MLX's memory."""
        return self._memory

    @property
    def lowering(self) -> LoweringOptions:
        """Kernels run whole, neither tile by tile nor in chunks, and stored values are not recomputed.

        Storing a value costs nothing, and repeating an operation does; a short row is one operation like a long one.
        """
        return LoweringOptions(
            least_row_tiles=0,
            wide_running_sums=False,
            chunks=ChunkLimits(counts=()),
            rows=RowLimits(short=0),
            unroll_reduction=0,
            recompute_cost=0,
            repeat_cost=0,
            free_cost=0,
            load_cost=0,
        )

    @property
    def claims(self) -> Claims:
        """Claims no row tiles; the blocks that MLX has a function for; and no float64 on a GPU."""
        dtypes = supported_dtypes - _WIDE if self.unit.name == "gpu" else supported_dtypes
        return Claims(kinds=_KINDS, dtypes=dtypes, blocks=frozenset(BLOCKS), fits=fits)

    def host_reason(self, kernel: Kernel) -> str | None:
        """The reason that a kernel runs on the host, in NumPy; None if MLX runs it."""
        with computing_on(self.unit):
            return host_cause(kernel)

    def compile(self, plan: Plan) -> Executable:
        """Compile the plan to a function."""
        return MlxExecutable(plan, self.unit)
