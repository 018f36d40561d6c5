"""The OpenCL C dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.c.types import register_type
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.opencl.clblast import is_clblast_product
from rlx.ir.fused_products import FusedProduct

__all__ = ["OpenCLDialect"]

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
_OVERLOADED = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor"
    " fma fmod log log1p log2 nextafter pow rint sin sinh sqrt tan tanh trunc".split()
)
_WORDS = """kernel global local constant private read_only write_only read_write half uchar ushort uint ulong size_t
    image1d_t image2d_t image3d_t sampler_t event_t pipe vec_type_hint work_group_size_hint barrier select any all dot
    cross distance length normalize clamp degrees mix radians step smoothstep sign mad rotate upsample abs min max clz
    popcount shuffle printf add_sat sub_sat hadd rhadd prefetch"""
_ATOMICS = {"add": "atomic_add", "min": "atomic_min", "max": "atomic_max", "and": "atomic_and", "or": "atomic_or"}

# dimensions beyond the second, and local memory: a kernel that uses them cannot be called from another kernel
_LAUNCH_WORDS = re.compile(
    r"\b(?:__)?local\b|\bget_(?:work_dim|\w*linear_id)\b"
    r"|\bget_(?:global_id|global_size|global_offset|group_id|num_groups)\b(?!\s*\(\s*[01]\s*\))"
)


class OpenCLDialect(DeviceDialect):
    """OpenCL C 1.2; with `shuffles`, also the sub-groups of version 3.0, as warps of `warp` items.

    doubles: whether the device has 64-bit floats, in which special functions are computed. products: whether CLBlast
    computes products.
    """

    reserved = CDialect.reserved | frozenset(_WORDS.split())

    device = "opencl"
    language = "OpenCL C"
    global_space = "__global"
    group_pointer = "__local"
    group_space = "__local"
    unroll = "__attribute__((opencl_unroll_hint))"
    launch_words = _LAUNCH_WORDS

    def __init__(self, shuffles: bool = False, warp: int = 32, doubles: bool = True, products: bool = False) -> None:
        super().__init__(shuffles)
        self.warp = warp
        self.doubles = doubles
        self.products = products

    def has_function(self, name: str) -> bool:
        """Special functions need 64-bit floats."""
        return self.doubles and super().has_function(name)

    def library_product(self, fused: FusedProduct) -> LibraryProduct | None:
        """CLBlast computes the product if `products` is true; it has no epilogues."""
        alone = fused.reader is None and self.products and is_clblast_product(fused.contract)
        return LibraryProduct("CLBlast", fused.contract) if alone else None

    def kernel_mark(self, items: int, roomy: int = 0) -> str:
        """A kernel with a fixed group size."""
        warps = f" __attribute__((intel_reqd_sub_group_size({self.warp})))" if self.shuffles else ""
        return f"__kernel __attribute__((reqd_work_group_size({items}, 1, 1))){warps} void"

    def unrolled(self, count: int, loop: str) -> tuple[str, ...]:
        """No unroll hint: with it, compilation took twice the time."""
        return (loop,)

    def group_number(self) -> str:
        """get_group_id."""
        return "get_group_id(0)"

    def number_in_group(self) -> str:
        """get_local_id."""
        return "(int)get_local_id(0)"

    def barrier(self) -> str:
        """A barrier of the group's and the device's memory."""
        return "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"

    def group_count(self) -> str:
        """get_num_groups."""
        return "get_num_groups(0)"

    def fence(self) -> str:
        """A fence. Version 1.2 specifies it for the items of one group only; beyond that the runtime decides."""
        return "mem_fence(CLK_GLOBAL_MEM_FENCE);"

    def watched(self, pointer: str) -> str:
        """An atomic that does not change the value."""
        return f"atomic_or((volatile __global uint32_t *)({pointer}), 0u)"

    def shuffle(self, dtype: np.dtype, value: str, distance: str, warp: int) -> str:
        """The shuffle of sub-groups."""
        kind = register_type(dtype)
        wide = "int" if dtype.kind == "b" or dtype.itemsize < 4 else kind
        text = f"sub_group_shuffle_xor(({wide}){value}, (uint){distance})"
        return text if wide == kind else f"(({kind}){text})"

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

    def program_head(self, text: str) -> str:
        """Types, and functions with the names of C's library."""
        names = [name for name in _OVERLOADED if f"{name}f(" in text]
        return "\n".join([_HEAD, *(f"#define {name}f {name}" for name in names)])

    def compare_exchange(self, word: str, place: str, before: str, after: str) -> str:
        """The compare-and-swap of 32 or 64 bits."""
        name = "atomic_cmpxchg" if word == "uint32_t" else "atom_cmpxchg"
        return f"{name}((volatile __global {word} *){place}, ({word}){before}, ({word}){after})"

    def atomic_function(self, reducer: str, dtype: np.dtype) -> str | None:
        """The atomics of 32-bit integers."""
        return _ATOMICS.get(reducer) if dtype.name in ("int32", "uint32") else None
