"""The words of OpenCL C."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.c.types import register_type
from rlx.backends.gpu.dialect import DeviceDialect

__all__ = ["OpenCLDialect"]

_HEAD = """\
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef char int8_t; typedef uchar uint8_t; typedef short int16_t; typedef ushort uint16_t;
typedef int int32_t; typedef uint uint32_t; typedef long int64_t; typedef ulong uint64_t;
#define INT64_C(number) number##L
#define UINT64_C(number) number##UL
#define INT32_MIN INT_MIN
#define INT64_MIN LONG_MIN
"""
# functions of C's library whose names say that they are float's: OpenCL's take either
_OVERLOADED = "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor" \
    " fma fmod log log1p log2 nextafter pow rint sin sinh sqrt tan tanh trunc".split()
_WORDS = """kernel global local constant private read_only write_only read_write half uchar ushort uint ulong size_t
    image1d_t image2d_t image3d_t sampler_t event_t pipe vec_type_hint work_group_size_hint barrier select any all dot
    cross distance length normalize clamp degrees mix radians step smoothstep sign mad rotate upsample abs min max clz
    popcount shuffle printf add_sat sub_sat hadd rhadd prefetch"""


class OpenCLDialect(DeviceDialect):
    """OpenCL C 1.2."""

    reserved = CDialect.reserved | frozenset(_WORDS.split())

    def __init__(self) -> None:
        super().__init__()
        self._atomics: dict[str, tuple[str, np.dtype]] = {}

    language = "OpenCL C"
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
        atomics = [self._atomic_text(name, *kind) for name, kind in self._atomics.items()]  # which may call helpers
        text = "\n\n".join([self.helper_text(), *atomics, *kernels.values(), ""])
        names = [name for name in _OVERLOADED if f"{name}f(" in text]
        return "\n".join([_HEAD, *(f"#define {name}f {name}" for name in names), text])

    def atomic_helper(self, reducer: str, dtype: np.dtype) -> str:
        """Compare and exchange, until nobody came between."""
        name = f"atomic_{reducer}_{dtype.name}"
        self._atomics[name] = (reducer, dtype)
        return name

    def _atomic_text(self, name: str, reducer: str, dtype: np.dtype) -> str:
        kind = register_type(dtype)
        result = self.combine(reducer, dtype, "before.number", "value")
        return f"""\
static inline void {name}(volatile __global {kind} *place, {kind} value) {{
    volatile __global uint *word = (volatile __global uint *)place;
    union {{ uint bits; {kind} number; }} before, after;
    before.bits = atomic_cmpxchg(word, 0u, 0u);
    for (;;) {{
        after.number = {result};
        const uint seen = atomic_cmpxchg(word, before.bits, after.bits);
        if (seen == before.bits) break;
        before.bits = seen;
    }}
}}"""
