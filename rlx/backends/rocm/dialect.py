"""The HIP dialect: its differences from CUDA's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from rlx.backends.cuda.dialect import CUDA_WORDS, CudaDialect
from rlx.backends.cuda.library import ROUTINES
from rlx.backends.gpu.epilogues import LibraryProduct
from rlx.backends.gpu.fragments import FRAGMENT_WORDS, LANE, NUMBER, Chain, Fragments
from rlx.code.tree import Number
from rlx.ir.fused_products import FusedProduct
from rlx.ir.kernels import Collective

__all__ = ["HIP_WORDS", "HipDialect"]

# hiprtc's built-in header, the only one that it includes, has integer types of these names in a namespace only
_BEGIN = """\
#pragma clang force_cuda_host_device begin
#ifdef __HIPCC_RTC__
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t; typedef unsigned long long uint64_t;
#endif
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

HIP_WORDS = replace(
    CUDA_WORDS,
    head=_BEGIN,  # types and limits, which hiprtc lacks
    # on some GPUs, parts of the device have separate caches
    watched="__hip_atomic_load({pointer}, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)",
    shuffle="__shfl_xor({value}, {distance}, {warp})",
)

# by dtype: the name of the multiplied type, and the type of sums
_NAMES = {
    "float16": ("f16", "float32"), "bfloat16": ("bf16", "float32"),
    "int8": ("i8", "int32"), "uint8": ("u8", "uint32"),
}  # fmt: skip
_MFMA = ((LANE % 16, LANE // 16 * 2), (LANE % 16, LANE // 16 * 2 + 1))
# work-items at distance 16 have the same words
_WMMA = tuple((LANE % 16, Number(LANE.dtype, word)) for word in range(FRAGMENT_WORDS))
_HALVES = {dtype: _NAMES[dtype][0] for dtype in ("float16", "bfloat16")}
_FENCE = 'asm volatile("" : "+v"(made) : : "memory");'
_CHAIN = Chain(1, 16, turned=True)  # a column of sums is a column of the next right matrix


def _unit(kind: str, dtype: str, name: str) -> Fragments:
    """The matrix unit of CDNA ("mfma") or of RDNA 3 ("wmma"), for operands of a dtype."""
    chain = _CHAIN if _NAMES[dtype][1] == "float32" else None
    if kind == "mfma":
        row, words, items, sums = LANE // 16 * 4 + NUMBER, _MFMA, 64, 4
    else:
        row, words, items, sums = NUMBER * 2 + LANE // 16, _WMMA, 32, 8
    return Fragments(f"{kind}_{name}", items, 16, words, words, sums, row, LANE % 16, chain, _NAMES[dtype][1])


# by the beginning of an architecture's name; CDNA only multiplies signed 8-bit integers
_MATRIX_CORES = {
    ("gfx90a",): {dtype: _unit("mfma", dtype, name) for dtype, name in (*_HALVES.items(), ("int8", "i8"))},
    ("gfx94",): {dtype: _unit("mfma", dtype, name) for dtype, name in (*_HALVES.items(), ("int8", "i8k32"))},
    ("gfx11",): {dtype: _unit("wmma", dtype, name) for dtype, (name, _) in _NAMES.items()},
}


def _function(
    name: str, sums: str, count: int, words: int, types: Sequence[str], steps: Sequence[str], fence: str = ""
) -> str:
    """The function with which a wavefront multiplies fragments: it adds to `made`, a work-item's sums as a vector.

    sums: their type. The words of the two matrices are a0, a1, ... and b0, b1, ... fence: a statement after the steps.
    """
    head = "\n".join([*types, f"typedef {sums} {name}_sums __attribute__((ext_vector_type({count})));"])
    given = ", ".join(f"uint32_t {side}{number}" for side in "ab" for number in range(words))
    body = "\n".join(f"    {step}" for step in (*(f"made = {step};" for step in steps), fence) if step)
    return f"""\
{head}
static __device__ inline void fragment_product_{name}({sums} *sums, {given}) {{
    {name}_sums made = {{{', '.join(f'sums[{number}]' for number in range(count))}}};
{body}
    for (int number = 0; number < {count}; ++number) sums[number] = made[number];
}}"""


def _words(side: str, count: int, first: int = 0) -> str:
    return ", ".join(f"{side}{number}" for number in range(first, first + count))


def _float_product(name: str, builtin: str, words: int, sums: int, more: str, fence: str = "") -> str:
    """The function for a builtin of clang's on vectors of 16-bit floats."""
    numbers = f"{'_Float16' if name.endswith('_f16') else 'short'} {name}_numbers"
    types = [
        f"typedef {numbers} __attribute__((ext_vector_type({2 * words})));",
        f"typedef uint32_t {name}_words __attribute__((ext_vector_type({words})));",
    ]
    left, right = (
        f"__builtin_bit_cast({name}_numbers, ({name}_words){{{_words(side, words)}}})" for side in "ab"
    )
    return _function(name, "float", sums, words, types, [f"{builtin}({left}, {right}, made{more})"], fence)


def _mfma(name: str) -> str:
    """The function for CDNA. A step may take any bytes, if it takes the same ones of both matrices."""
    if name == "i8":
        builtin = "__builtin_amdgcn_mfma_i32_16x16x16i8"
        steps = [f"{builtin}((int)a{word}, (int)b{word}, made, 0, 0, 0)" for word in range(2)]
        return _function("mfma_i8", "int32_t", 4, 2, (), steps)
    if name == "i8k32":
        both = ", ".join(f"(long)((uint64_t){side}1 << 32 | {side}0)" for side in "ab")
        step = f"__builtin_amdgcn_mfma_i32_16x16x32_i8({both}, made, 0, 0, 0)"
        return _function("mfma_i8k32", "int32_t", 4, 2, (), [step])
    kind = {"f16": "f16", "bf16": "bf16_1k"}[name]
    return _float_product(f"mfma_{name}", f"__builtin_amdgcn_mfma_f32_16x16x16{kind}", 2, 4, ", 0, 0, 0")


def _wmma(name: str) -> str:
    """The function for RDNA 3, in wavefronts of 32. A step takes 16 bytes of a row.

    Without a fence, clang loads the words of all products first and runs out of registers.
    """
    if name not in ("i8", "u8"):
        builtin = f"__builtin_amdgcn_wmma_f32_16x16x16_{name}_w32"
        return _float_product(f"wmma_{name}", builtin, FRAGMENT_WORDS, 8, "", _FENCE)
    kind, words = f"wmma_{name}_words", FRAGMENT_WORDS // 2
    signed, sums = ("true", "int32_t") if name == "i8" else ("false", "uint32_t")
    steps = []
    for first in (0, words):
        left, right = (f"{signed}, ({kind}){{{_words(f'(int){side}', words, first)}}}" for side in "ab")
        steps.append(f"__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32({left}, {right}, made, false)")
    types = [f"typedef int {kind} __attribute__((ext_vector_type({words})));"]
    return _function(f"wmma_{name}", sums, 8, FRAGMENT_WORDS, types, steps, _FENCE)


def _loose(name: str) -> str:
    """The function that is one instruction and flushes denormal numbers."""
    return f"static __device__ inline float loose_{name}(float x) {{ return __builtin_amdgcn_{name}f(x); }}"


def _packed(name: str) -> str:
    """The function that rounds two numbers to a word of two numbers of the device's type."""
    assert name == "f16"
    return """\
static __device__ inline uint32_t packed_f16(float low, float high) {
    typedef _Float16 packed_numbers __attribute__((ext_vector_type(2)));
    const packed_numbers numbers = {(_Float16)low, (_Float16)high};
    return __builtin_bit_cast(uint32_t, numbers);
}"""


class HipDialect(CudaDialect):
    """HIP. Wavefronts have 32 or 64 work-items; in both cases, 32 work-items share a row.

    architecture: of the GPU, such as "gfx942"; it determines the matrix cores.
    """

    device: ClassVar[str] = "rocm"
    language: ClassVar[str] = "HIP"
    words = HIP_WORDS
    own_functions: ClassVar[Mapping[str, Callable[[str], str]]] = {
        "fragment_product_mfma": _mfma, "fragment_product_wmma": _wmma, "packed": _packed,
        "loose": _loose,
    }  # fmt: skip

    def __init__(
        self,
        architecture: str = "",
        routines: bool = False,
        products: Callable[[LibraryProduct], bool] | None = None,
    ) -> None:
        super().__init__(products, routines=routines)
        self.architecture = architecture

    def fragments(self, dtype: np.dtype) -> Fragments | None:
        """Matrix cores of 16-bit floats and of 8-bit integers."""
        cores = (found for names, found in _MATRIX_CORES.items() if self.architecture.startswith(names))
        return next(cores, {}).get(dtype.name)

    def packed(self, dtype: np.dtype, low: str, high: str) -> str:
        """float16 is a type of the device, bfloat16 is not."""
        own = dtype == np.float16
        return f"{self.helper('packed_f16')}({low}, {high})" if own else super().packed(dtype, low, high)

    def library_product(self, fused: FusedProduct) -> LibraryProduct | None:
        """hipBLAS takes the product if `products` does, but not inside a launch."""
        found = LibraryProduct("hipBLAS", fused.contract, reader=fused.reader)
        return found if self.products is not None and not self.shared_launch and self.products(found) else None

    def routine_library(self, routine: str) -> str:
        """rocSOLVER, hipBLAS, hipFFT."""
        return ROUTINES[routine].rocm

    def exchanges(self, kernel: Collective) -> bool:
        """Collectives use the host: RCCL has not been tried."""
        return False
