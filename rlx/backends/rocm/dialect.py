"""The words of HIP, in which they differ from CUDA's."""

from __future__ import annotations

from typing import ClassVar

from rlx.backends.cuda.dialect import CudaDialect
from rlx.ir.kernels import Collective

__all__ = ["HipDialect"]

_BEGIN = """\
#pragma clang force_cuda_host_device begin
#ifndef INT64_C
#define INT64_C(number) number##LL
#define UINT64_C(number) number##ULL
#endif
#ifndef INT64_MIN
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807LL - 1)
#endif
#ifndef NAN
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#endif
"""


class HipDialect(CudaDialect):
    """HIP. Wavefronts have 32 or 64 items; what shares a row is 32 of them, whichever it is."""

    device: ClassVar[str] = "rocm"
    language: ClassVar[str] = "HIP"

    def exchanges(self, kernel: Collective) -> bool:
        """By way of the host: nobody has tried RCCL."""
        return False

    def _shuffled(self, value: str, distance: str, warp: int) -> str:
        return f"__shfl_xor({value}, {distance}, {warp})"

    def program_head(self, text: str) -> str:
        """HIP's headers have the types."""
        return _BEGIN
