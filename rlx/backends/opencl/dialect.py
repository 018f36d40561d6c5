"""The words of OpenCL C."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.backends.gpu.dialect import DeviceDialect

__all__ = ["OpenCLDialect"]

_HEAD = """\
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef char int8_t; typedef uchar uint8_t; typedef short int16_t; typedef ushort uint16_t;
typedef int int32_t; typedef uint uint32_t; typedef long int64_t; typedef ulong uint64_t;
"""


class OpenCLDialect(DeviceDialect):
    """OpenCL C 1.2."""

    kernel_mark = "__kernel"
    global_space = "__global"
    group_space = "__local"

    def group_number(self) -> str:
        """get_group_id."""
        return "get_group_id(0)"

    def item_number(self) -> str:
        """get_global_id."""
        return "get_global_id(0)"

    def number_in_group(self) -> str:
        """get_local_id."""
        return "(int)get_local_id(0)"

    def barrier(self) -> str:
        """Of both memories."""
        return "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"

    def program(self, kernels: Mapping[str, str]) -> str:
        """Types, helper functions, kernels."""
        return "\n\n".join([_HEAD, self.helper_text(), *kernels.values(), ""])
