"""The CUDA C++ dialect, for the runtime compiler: without headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import ClassVar

import numpy as np

from rlx.backends.c.types import memory_type
from rlx.backends.cuda.library import ROUTINES, why_not_routine
from rlx.backends.cuda.nccl import takes
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.epilogues import LibraryProduct, epilogue_of
from rlx.backends.gpu.fragments import LANE, NUMBER, Chain, Fragments
from rlx.backends.loops.words import LanguageWords
from rlx.code.tree import LOOSE, Array
from rlx.ir.fused_products import FusedProduct
from rlx.ir.kernels import Collective, Instruction, Library

__all__ = ["CUDA_WORDS", "CudaDialect"]

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
_ATOMICS = {
    "add": ("atomicAdd", ("int32", "uint32", "uint64", "float32", "float64")),
    "min": ("atomicMin", ("int32", "uint32", "int64", "uint64")),
    "max": ("atomicMax", ("int32", "uint32", "int64", "uint64")),
    "and": ("atomicAnd", ("int32", "uint32", "uint64")),
    "or": ("atomicOr", ("int32", "uint32", "uint64")),
    "xor": ("atomicXor", ("int32", "uint32", "uint64")),
}

CUDA_WORDS = LanguageWords(
    head=_HEAD,  # types and limits, since there are no headers
    kernel='extern "C" __global__ void __launch_bounds__({items}{roomy})',
    item="(int)threadIdx.x",
    group="blockIdx.x",
    groups="gridDim.x",
    barrier="__syncthreads();",
    fence="__threadfence();",  # it includes writes that a barrier made visible to the work-item before
    watched="*(volatile uint32_t *)({pointer})",  # a volatile load bypasses the multiprocessor's cache
    shuffle="__shfl_xor_sync(0xffffffffu, {value}, {distance}, {warp})",
    exchange=dict.fromkeys(("uint32_t", "uint64_t"), "atomicCAS({place}, {before}, {after})"),
    atomics=_ATOMICS,
    group_space="__shared__",
    # recordings pass memory that holds the address, and the inverted bits of the offset. Without the conversion the
    # compiler does not know that the address is in global memory
    place="__cvta_global_to_generic("
    "{start} < 0 ? *(const uint64_t *){memory} + ~{start} : (uint64_t){memory} + {start})",
)

# dimensions beyond the second, and words that depend on the whole grid
_LAUNCH_WORDS = re.compile(
    r"\b(?:blockIdx|gridDim)\b(?!\s*\.\s*[xy]\b)|\bcooperative_groups\b|%n?c(?:ta|luster)|%gridid"
)
# the user's kernel becomes a function, with the launch bounds of the kernel that calls it
_AS_FUNCTION = """\
#undef __global__
#undef __launch_bounds__
#define __global__ __device__
#define __launch_bounds__(...)
#line 1
"""
_ADDRESS = """
struct rlx_address {
    unsigned char *at;
    template <class T> __device__ operator T *() const { return reinterpret_cast<T *>(at); }
};
"""
_LEFT = ((LANE // 4, LANE % 4), (LANE // 4 + 8, LANE % 4))
# by dtype: the name of the multiplied type, and the type of sums
_HELD = {
    "float16": ("f16", "float32"), "bfloat16": ("bf16", "float32"), "float32": ("tf32", "float32"),
    "int8": ("s8", "int32"), "uint8": ("u8", "uint32"),
    "float8_e4m3fn": ("e4m3", "float32"), "float8_e5m2": ("e5m2", "float32"),
}  # fmt: skip
_NARROWEST_FLOATS = ("float8_e4m3fn", "float8_e5m2")  # which only newer units have
_TENSOR_CORES = {
    dtype: Fragments(
        name, 32, 8, (*_LEFT, *((row, word + 4) for row, word in _LEFT)),
        ((LANE // 4, LANE % 4), (LANE // 4, LANE % 4 + 4)), 4, LANE // 4 + NUMBER // 2 * 8, LANE % 4 * 2 + NUMBER % 2,
        chain=Chain(2, 1, turned=False) if name in ("f16", "bf16") else None, summed_in=summed_in,
        moves=name in ("f16", "bf16"),
    )
    for dtype, (name, summed_in) in _HELD.items()
}  # fmt: skip
# pairs of 16-bit floats that memory adds, and the first architecture that does
_ADDED = {"float16": ("f16x2", 700), "bfloat16": ("bf16x2", 900)}
_DEPTHS = {"tf32": 8, "f16": 16, "bf16": 16}  # the depth of a fragment; fragments of bytes have 32
_INTEGER_SUMS = {"s8": "int32_t", "u8": "uint32_t"}


def _fragment_product(name: str) -> str:
    """The function with which a warp multiplies fragments."""
    kind, sums, register = "float", "f32", "f"
    if name in _INTEGER_SUMS:
        kind, sums, register = _INTEGER_SUMS[name], "s32", "r"
    shape = f"m16n8k{_DEPTHS.get(name, 32)}"
    results = ", ".join(f'"+{register}"(sums[{number}])' for number in range(4))
    return f"""\
static __device__ void fragment_product_{name}(
    {kind} *sums, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f) {{
    asm volatile("mma.sync.aligned.{shape}.row.col.{sums}.{name}.{name}.{sums} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
                 "{{%8, %9}}, {{%0, %1, %2, %3}};"
                 : {results}
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


def _load_matrix(count: str, turned: str = "") -> str:
    """The function that loads a work-item's words of matrices of 8 x 8 numbers."""
    words = ", ".join(f"%{number}" for number in range(int(count)))
    results = ", ".join(f'"=r"(words[{number}])' for number in range(int(count)))
    return f"""\
static __device__ void load{"_turned" if turned else ""}_matrix_{count}(uint32_t *words, const void *row) {{
    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 {{{words}}}, [%{count}];"
                 : {results} : "r"((uint32_t)__cvta_generic_to_shared(row)) : "memory");
}}"""


def _async_copy(nbytes: str) -> str:
    """The function that begins a copy of bytes, or of zeros."""
    cached = "cg" if nbytes == "16" else "ca"
    return f"""\
static __device__ void async_copy_{nbytes}(void *place, const void *source, bool holds) {{
    asm volatile("cp.async.{cached}.shared.global [%0], [%1], {nbytes}, %2;"
                 : : "r"((uint32_t)__cvta_generic_to_shared(place)), "l"(source), "r"(holds ? {nbytes} : 0) : "memory");
}}"""


def _loose(name: str) -> str:
    """The function that is one instruction and flushes denormal numbers."""
    return f"""\
static __device__ float loose_{name}(float x) {{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}}"""


class CudaDialect(DeviceDialect):
    """CUDA C++. Functions without a qualifier are device functions: a compiler option says so.

    products: whether cuBLASLt takes a product; None if it is missing. tensor_cores: whether fragments are multiplied in
    one instruction; narrowest_floats: also fragments of 8-bit floats. excess_precision: the setting of that name.
    """

    device: ClassVar[str] = "cuda"
    language: ClassVar[str] = "CUDA C++"
    words = CUDA_WORDS
    # functions that only this language has, by the prefix of their names; the rest of the name is a unit's
    own_functions: ClassVar[Mapping[str, Callable[[str], str]]] = {
        "fragment_product": _fragment_product, "packed": _packed, "load_matrix": _load_matrix,
        "load_turned_matrix": partial(_load_matrix, turned=".trans"), "async_copy": _async_copy, "loose": _loose,
    }  # fmt: skip

    def __init__(
        self,
        products: Callable[[LibraryProduct], bool] | None = None,
        tensor_cores: bool = False,
        narrowest_floats: bool = False,
        excess_precision: bool = False,
        routines: bool = False,
    ) -> None:
        super().__init__()
        self.products = products
        self.routines = routines
        self.tensor_cores = tensor_cores
        self.narrowest_floats = narrowest_floats
        self.excess_precision = excess_precision

    def fragments(self, dtype: np.dtype) -> Fragments | None:
        """Tensor cores, if there are any: from sm_80 on, for 8-bit floats from sm_89 on."""
        there = self.tensor_cores and (self.narrowest_floats or dtype.name not in _NARROWEST_FLOATS)
        return _TENSOR_CORES.get(dtype.name) if there else None

    def fragment_product(self, fragments: Fragments) -> str:
        """mma.sync."""
        return self.helper(f"fragment_product_{fragments.name}")

    def packed(self, dtype: np.dtype, low: str, high: str) -> str:
        """One instruction if there are tensor cores."""
        if not self.tensor_cores:
            return super().packed(dtype, low, high)
        return f"{self.helper(f'packed_{_TENSOR_CORES[dtype.name].name}')}({low}, {high})"

    def load_matrix(self, target: Array, row: str, turned: bool) -> str:
        """ldmatrix."""
        function = self.helper(f"load{'_turned' if turned else ''}_matrix_{target.shape[0]}")
        return f"{function}({target.name}, {row});"

    def async_copy(self, array: Array, place: str, source: str, size: int, condition: str | None) -> str:
        """cp.async."""
        function = self.helper(f"async_copy_{size * array.dtype.itemsize}")
        return f"{function}({place}, {source}, {condition or 'true'});"

    def close_copies(self) -> tuple[str, ...]:
        """cp.async.commit_group."""
        return ('asm volatile("cp.async.commit_group;" : : : "memory");',)

    def await_copies(self, newer: int) -> tuple[str, ...]:
        """cp.async.wait_group."""
        return (f'asm volatile("cp.async.wait_group {newer};" : : : "memory");',)

    def operation(self, instruction: Instruction, arguments: Sequence[str], dtypes: Sequence[np.dtype]) -> str:
        """Single instructions for operations of float32 that may have them."""
        if instruction.attribute is LOOSE and dtypes[0] == np.float32:
            if instruction.op == "max":
                return f"fmaxf({', '.join(arguments)})"
            return f"{self.helper(f'loose_{instruction.op}')}({arguments[0]})"
        return super().operation(instruction, arguments, dtypes)

    def atomic_text(self, name: str, reducer: str, dtype: np.dtype) -> str:
        """One instruction for a sum of 16-bit floats, where the architecture has it: two are added, one of them -0."""
        text = super().atomic_text(name, reducer, dtype)
        unit = _ADDED.get(dtype.name)
        if reducer != "add" or unit is None:
            return text
        kind, first = unit
        code = self._call("encode", [dtype], "value")
        return f"""\
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= {first}
static inline void {name}({memory_type(dtype)} *place, float value) {{
    const uint32_t code = (uint16_t){code};
    const uint32_t word = (size_t)place & 2 ? code << 16 | 0x8000u : code | 0x80000000u;
    asm volatile("red.global.add.noftz.{kind} [%0], %1;" : : "l"((size_t)place & ~(size_t)2), "r"(word) : "memory");
}}
#else
{text}
#endif"""

    def helper_text(self, helpers: Iterable[str]) -> str:
        """Add the functions that only this language has."""
        parts = {name: name.rpartition("_") for name in helpers}
        known = self.own_functions
        own = {name: known[kind](unit) for name, (kind, _, unit) in parts.items() if kind in known}
        return "\n\n".join([*own.values(), self.spelled(name for name in parts if name not in own)])

    def library_product(self, fused: FusedProduct) -> LibraryProduct | None:
        """cuBLASLt takes the product if `products` does, but not inside a launch."""
        epilogue = epilogue_of(fused, self.excess_precision)
        if self.shared_launch or self.products is None or (epilogue is None and fused.reader is not None):
            return None
        found = LibraryProduct("cuBLASLt", fused.contract, epilogue, fused.reader)
        return found if self.products(found) else None

    def why_not_routine(self, kernel: Library) -> str | None:
        """None if CuPy has the routine and `routines` is true."""
        return why_not_routine(kernel) if self.routines else super().why_not_routine(kernel)

    def routine_library(self, routine: str) -> str:
        """cuBLAS, cuSOLVER, cuFFT."""
        return ROUTINES[routine].cuda

    def exchanges(self, kernel: Collective) -> bool:
        """Whether NCCL executes the collective: if every process has its own GPU."""
        return takes(kernel.exchange, kernel.input.buffer.dtype)

    launch_words = _LAUNCH_WORDS

    def kernel_of_batch(self, source: str, name: str, called: str, block: Sequence[int], starts: Sequence[str]) -> str:
        """A call with arguments that are addresses, for any parameter types of the user's kernel."""
        arrays = range(len(starts))
        parameters = ", ".join(f"unsigned char *memory{n}, const long long start{n}" for n in arrays)
        arguments = ", ".join(f"rlx_address{{memory{n} + start{n} + {starts[n]}}}" for n in arrays)
        return f"""{_AS_FUNCTION}{source}{_ADDRESS}
extern "C" __attribute__((global)) void __attribute__((launch_bounds({prod(block)}))) {name}({parameters}) {{
    const unsigned long long element = blockIdx.z;
    {called}({arguments});
}}
"""
