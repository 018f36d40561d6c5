"""The OpenCL C dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.loops.words import LanguageWords
from rlx.backends.opencl.clblast import is_clblast_product
from rlx.ir.fused_products import FusedProduct

__all__ = ["OPENCL_WORDS", "OpenCLDialect"]

_HEAD = """\
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
typedef char int8_t; typedef uchar uint8_t; typedef short int16_t; typedef ushort uint16_t;
typedef int int32_t; typedef uint uint32_t; typedef long int64_t; typedef ulong uint64_t;
#define INT64_C(number) number##L
#define UINT64_C(number) number##UL
#define INT32_MIN INT_MIN
#define INT64_MIN LONG_MIN
"""
# functions of C's library that have a float variant by name: OpenCL's functions are overloaded
_OVERLOADED = tuple(
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor"
    " fma fmod log log1p log2 nextafter pow rint sin sinh sqrt tan tanh trunc".split()
)
_KERNEL = "__kernel __attribute__((reqd_work_group_size({items}, 1, 1)))"
OPENCL_WORDS = LanguageWords(
    head=_HEAD,
    kernel=f"{_KERNEL} void",
    item="(int)get_local_id(0)",
    group="get_group_id(0)",
    groups="get_num_groups(0)",
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    fence="mem_fence(CLK_GLOBAL_MEM_FENCE);",  # specified for the work-items of one group only
    watched="atomic_or((volatile __global uint32_t *)({pointer}), 0u)",  # an atomic that does not change the value
    shuffle="sub_group_shuffle_xor({value}, (uint){distance})",
    exchange={
        "uint32_t": "atomic_cmpxchg((volatile __global uint32_t *){place}, {before}, {after})",
        "uint64_t": "atom_cmpxchg((volatile __global uint64_t *){place}, {before}, {after})",
    },
    atomics={op: (f"atomic_{op}", ("int32", "uint32")) for op in ("add", "min", "max", "and", "or")},
    global_space="__global",
    group_pointer="__local",
    group_space="__local",
    unroll="__attribute__((opencl_unroll_hint))",
    unroll_by="",  # with it, compilation took twice the time
    overloaded=_OVERLOADED,
)

# dimensions beyond the second, and local memory: a kernel that uses them cannot be called from another kernel
_LAUNCH_WORDS = re.compile(
    r"\b(?:__)?local\b|\bget_(?:work_dim|\w*linear_id)\b"
    r"|\bget_(?:global_id|global_size|global_offset|group_id|num_groups)\b(?!\s*\(\s*[01]\s*\))"
)


class OpenCLDialect(DeviceDialect):
    """OpenCL C 1.2; with `shuffles`, also the sub-groups of version 3.0, as warps of `warp` work-items.

    doubles: whether the device has 64-bit floats, in which special functions are computed. products: whether CLBlast
    computes products.
    """

    device = "opencl"
    language = "OpenCL C"
    words = OPENCL_WORDS
    launch_words = _LAUNCH_WORDS

    def __init__(self, shuffles: bool = False, warp: int = 32, doubles: bool = True, products: bool = False) -> None:
        super().__init__(shuffles)
        if shuffles:
            kernel = f"{_KERNEL} __attribute__((intel_reqd_sub_group_size({warp}))) void"
            self.words = replace(OPENCL_WORDS, kernel=kernel)
        self.doubles = doubles
        self.products = products

    def has_function(self, name: str) -> bool:
        """Special functions need 64-bit floats."""
        return self.doubles and super().has_function(name)

    def library_product(self, fused: FusedProduct) -> LibraryProduct | None:
        """CLBlast computes the product if `products` is true; it has no epilogues."""
        alone = fused.reader is None and self.products and is_clblast_product(fused.contract)
        return LibraryProduct("CLBlast", fused.contract) if alone else None

    def kernel_of_batch(self, source: str, name: str, called: str, block: Sequence[int], starts: Sequence[str]) -> str:
        """A kernel that calls the user's: kernels are functions, and pointers convert to void pointers."""
        arrays = range(len(starts))
        parameters = ", ".join(f"__global uchar *memory{n}, const long start{n}" for n in arrays)
        arguments = ", ".join(f"(__global void *)(memory{n} + start{n} + {starts[n]})" for n in arrays)
        sizes = ", ".join(map(str, block))
        return f"""{source}
__kernel __attribute__((reqd_work_group_size({sizes}))) void {name}({parameters}) {{
    const ulong element = get_group_id(2);
    {called}({arguments});
}}
"""
