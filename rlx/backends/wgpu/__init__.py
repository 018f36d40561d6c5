"""The wgpu backend: kernels as WGSL, for Vulkan, Metal, DirectX 12 and, as exported text, browsers."""

from __future__ import annotations

from dataclasses import replace

from rlx.backends.claims import Claims
from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.wgpu.dialect import DOUBLES, LONGS, WgslDialect
from rlx.backends.wgpu.engine import WgpuEngine
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

    def dialect(self) -> DeviceDialect:
        """WGSL, with the adapter's features."""
        return WgslDialect(self.engine.features)
