"""The words of CUDA C++, as its runtime compiler takes them: without headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from rlx.backends.c.dialect import CDialect
from rlx.backends.c.types import register_type
from rlx.backends.cuda.library import ROUTINES, why_not_routine
from rlx.backends.cuda.nccl import takes
from rlx.backends.cuda.products import is_cublas_product
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.fragments import Fragments
from rlx.ir.kernels import Collective, Contract, Library

__all__ = ["CudaDialect"]

_HEAD = """\
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t; typedef unsigned long long uint64_t;
#define INT64_C(number) number##LL
#define UINT64_C(number) number##ULL
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807LL - 1)
#ifndef NAN
#define NAN __int_as_float(0x7fc00000)
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
"""
_WORDS = """threadIdx blockIdx blockDim gridDim warpSize clock norm rhypot rsqrt rcbrt sinpi cospi sincospi normcdf
    normcdfinv erfcx erfinv erfcinv cyl_bessel_i0 cyl_bessel_i1 max min dim3 float4 int4 uint4 double2 saturate assert
    printf malloc free exit abort abs div signbit"""
_ATOMICS = {
    "add": ("atomicAdd", ("int32", "uint32", "uint64", "float32", "float64")),
    "min": ("atomicMin", ("int32", "uint32", "int64", "uint64")),
    "max": ("atomicMax", ("int32", "uint32", "int64", "uint64")),
    "and": ("atomicAnd", ("int32", "uint32", "uint64")),
    "or": ("atomicOr", ("int32", "uint32", "uint64")),
    "xor": ("atomicXor", ("int32", "uint32", "uint64")),
}


_LEFT = (("lane / 4", "lane % 4"), ("lane / 4 + 8", "lane % 4"))
_TENSOR_CORES = {
    dtype: Fragments(
        name, 32, 8, (*_LEFT, *((row, f"{word} + 4") for row, word in _LEFT)),
        (("lane / 4", "lane % 4"), ("lane / 4", "lane % 4 + 4")), 4, "lane / 4 + {0} / 2 * 8", "lane % 4 * 2 + {0} % 2",
        chained=name != "tf32",
    )
    for dtype, name in {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}.items()
}  # fmt: skip


def _fragment_product(name: str) -> str:
    """The function that a warp multiplies fragments by."""
    shape = "m16n8k8" if name == "tf32" else "m16n8k16"
    return f"""\
static __device__ void fragment_product_{name}(
    float *sums, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f) {{
    asm volatile("mma.sync.aligned.{shape}.row.col.f32.{name}.{name}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
                 "{{%8, %9}}, {{%0, %1, %2, %3}};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
}}"""


def _packed(name: str) -> str:
    """The function that rounds two numbers to a word."""
    return f"""\
static __device__ uint32_t packed_{name}(float low, float high) {{
    uint32_t word;
    asm("cvt.rn.{name}x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}}"""


class CudaDialect(DeviceDialect):
    """CUDA C++. Functions are the device's where nothing else is said: the compiler is told so."""

    reserved = CDialect.reserved | frozenset(_WORDS.split())

    device: ClassVar[str] = "cuda"
    language: ClassVar[str] = "CUDA C++"
    # functions of what only this language has, by the beginning of their names; what follows it is a unit's name
    own_functions: ClassVar[Mapping[str, Callable[[str], str]]] = {
        "fragment_product": _fragment_product, "packed": _packed,
    }  # fmt: skip

    def __init__(self, products: bool = False, tensor_cores: bool = False, routines: bool = False) -> None:
        super().__init__()
        self.products = products
        self.routines = routines
        self.tensor_cores = tensor_cores

    def fragments(self, dtype: np.dtype) -> Fragments | None:
        """Tensor cores, where `tensor_cores` says that there are some of these: from sm_80 on."""
        return _TENSOR_CORES.get(dtype.name) if self.tensor_cores else None

    def fragment_product(self, fragments: Fragments) -> str:
        """mma.sync."""
        return self.helper(f"fragment_product_{fragments.name}")

    def packed(self, dtype: np.dtype, low: str, high: str) -> str:
        """One instruction where there are tensor cores."""
        if not self.tensor_cores:
            return super().packed(dtype, low, high)
        return f"{self.helper(f'packed_{_TENSOR_CORES[dtype.name].name}')}({low}, {high})"

    def helper_text(self) -> str:
        """With the language's own."""
        parts = {name: name.rpartition("_") for name in self.helpers}
        known = self.own_functions
        own = {name: known[kind](unit) for name, (kind, _, unit) in parts.items() if kind in known}
        return "\n\n".join([*own.values(), self.spelled(name for name in self.helpers if name not in own)])

    def multiplies(self, kernel: Contract) -> bool:
        """Whether cuBLAS does: where `products` says so."""
        return self.products and is_cublas_product(kernel)

    def why_not_routine(self, kernel: Library) -> str | None:
        """None where CuPy has it, and `routines` says that it is asked."""
        return why_not_routine(kernel) if self.routines else super().why_not_routine(kernel)

    def library_of(self, kernel: Contract | Library) -> str:
        """cuBLAS, cuSOLVER, cuFFT."""
        if isinstance(kernel, Contract):
            return "cuBLAS" if self.multiplies(kernel) else ""
        return "" if self.why_not_routine(kernel) else ROUTINES[kernel.routine].cuda

    def exchanges(self, kernel: Collective) -> bool:
        """Whether NCCL does, where every process has a GPU of its own."""
        return takes(kernel.exchange, kernel.input.buffer.dtype)

    group_space = "__shared__"

    def kernel_mark(self, items: int, roomy: bool = False) -> str:
        """A name that is not mangled; registers are given out for groups of this size."""
        return f'extern "C" __global__ void __launch_bounds__({items}{", 1" if roomy else ""})'

    def group_number(self) -> str:
        """blockIdx."""
        return "blockIdx.x"

    def number_in_group(self) -> str:
        """threadIdx."""
        return "(int)threadIdx.x"

    def barrier(self) -> str:
        """Of a block."""
        return "__syncthreads();"

    def shuffle(self, dtype: np.dtype, value: str, distance: str, warp: int) -> str:
        """All of a warp take part."""
        kind = register_type(dtype)
        wide = "int" if dtype.kind == "b" or dtype.itemsize < 4 else kind
        text = self._shuffled(f"({wide}){value}", distance, warp)
        return text if wide == kind else f"(({kind}){text})"

    def _shuffled(self, value: str, distance: str, warp: int) -> str:
        return f"__shfl_xor_sync(0xffffffffu, {value}, {distance}, {warp})"

    def program_head(self, text: str) -> str:
        """Types and limits, which no header says."""
        return _HEAD

    def compare_exchange(self, word: str, place: str, before: str, after: str) -> str:
        """Of 32 bits, and of 64."""
        return f"atomicCAS({place}, ({word}){before}, ({word}){after})"

    def atomic_function(self, reducer: str, dtype: np.dtype) -> str | None:
        """Those of the hardware."""
        name, dtypes = _ATOMICS.get(reducer, ("", ()))
        return name if dtype.name in dtypes else None
