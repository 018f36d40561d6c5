"""The wgpu backend: kernels as WGSL, for Vulkan, Metal, DirectX 12 and, as exported text, browsers."""

from __future__ import annotations

from dataclasses import replace

from rlx.backends.base import Executable, shown_lines
from rlx.backends.claims import Claims
from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.executable import DeviceExecutable
from rlx.backends.wgpu.dialect import DOUBLES, LONGS, WgslDialect
from rlx.backends.wgpu.engine import WgpuEngine
from rlx.code.cost import loop_iterations
from rlx.errors import DeviceError
from rlx.ir.kernels import Plan
from rlx.ir.types import supported_dtypes

__all__ = ["WgpuBackend"]


class WgpuBackend(DeviceBackend):
    """An adapter of wgpu; GPUs are counted first. Without one, programs can be shown, but not run."""

    name = "wgpu"
    engine: WgpuEngine

    def __init__(self, number: int = 0) -> None:
        super().__init__(WgpuEngine(number))

    def numbered(self, number: int) -> WgpuBackend:
        """The backend of another adapter."""
        return WgpuBackend(number)

    @property
    def claims(self) -> Claims:
        """Dtypes of 32 bits and less, and those of 64 bits that the adapter has."""
        features = self.engine.features
        missing = (frozenset() if features.doubles else DOUBLES) | (frozenset() if features.longs else LONGS)
        return replace(super().claims, dtypes=supported_dtypes - missing)

    def compile(self, plan: Plan) -> Executable:
        """Compile a plan's kernels. Raises DeviceError for loops that the driver would not finish."""
        made = super().compile(plan)
        assert isinstance(made, DeviceExecutable)
        most = self.engine.limits.turns
        for kernel, steps in made.program.steps.items() if most else ():
            if any(loop_iterations(step.code, step.groups) > most for step in steps):
                raise DeviceError(
                    f"The driver {self.engine.named} ends the loops of a launch after {most:,} iterations, and a"
                    f" launch of {getattr(kernel, 'label', 'a kernel')!r} has more.",
                    "Use smaller arrays, a GPU, or the CPU: jit(device='cpu').",
                    shown_lines(getattr(kernel, "origins", ())),
                )
        return made

    def dialect(self) -> DeviceDialect:
        """WGSL, with the adapter's features."""
        return WgslDialect(self.engine.features)
