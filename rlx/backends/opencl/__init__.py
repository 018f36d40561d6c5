"""The OpenCL backend: kernels as OpenCL C, for GPUs and processors that have a runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx.backends.claims import Claims
from rlx.backends.gpu.backend import DeviceBackend
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.options import SMALL_ORDER
from rlx.backends.opencl.dialect import OpenCLDialect
from rlx.backends.opencl.engine import OpenCLEngine, devices
from rlx.ir.types import supported_dtypes

__all__ = ["OpenCLBackend"]

# routines whose small cases are loops that one group runs; other devices have libraries. Rotations take sweeps
_LOOPS = (("qr", SMALL_ORDER), ("packed_qr", SMALL_ORDER), ("eigh", SMALL_ORDER // 2), ("svd", SMALL_ORDER // 2))


class OpenCLBackend(DeviceBackend):
    """An OpenCL device; GPUs are counted first."""

    name = "opencl"
    engine: OpenCLEngine

    def __init__(self, number: int = 0) -> None:
        super().__init__(OpenCLEngine(devices()[number], number))

    def numbered(self, number: int) -> OpenCLBackend:
        """The backend of another device."""
        return OpenCLBackend(number)

    @property
    def claims(self) -> Claims:
        """All dtypes, except those with 64-bit floats if the device has none; small factorisations as loops."""
        wide = frozenset() if self.engine.has_doubles else {np.dtype(np.float64), np.dtype(np.complex128)}
        claims = super().claims
        return replace(claims, dtypes=supported_dtypes - wide, loops_up_to=(*claims.loops_up_to, *_LOOPS))

    def dialect(self) -> DeviceDialect:
        """The dialect: with shuffles if the device has sub-groups, and with CLBlast's products if it is selected."""
        engine = self.engine
        return OpenCLDialect(engine.shuffles, engine.limits.warp, engine.has_doubles, engine.has_clblast)
