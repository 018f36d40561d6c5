"""The words of HIP, in which they differ from CUDA's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from rlx.backends.cuda.dialect import CudaDialect
from rlx.backends.cuda.library import ROUTINES
from rlx.backends.gpu.fragments import FRAGMENT_WORDS, Fragments
from rlx.ir.kernels import Collective, Contract, Library

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


_NAMES = {"float16": "f16", "bfloat16": "bf16"}
_MFMA = (("lane % 16", "lane / 16 * 2"), ("lane % 16", "lane / 16 * 2 + 1"))
_WMMA = tuple(("lane % 16", str(word)) for word in range(FRAGMENT_WORDS))  # items 16 apart have the same words
# by the beginning of an architecture's name
_MATRIX_CORES = {
    ("gfx90a", "gfx94"): {
        dtype: Fragments(f"mfma_{name}", 64, 16, _MFMA, _MFMA, 4, "lane / 16 * 4 + {0}", "lane % 16")
        for dtype, name in _NAMES.items()
    },
    ("gfx11",): {
        dtype: Fragments(f"wmma_{name}", 32, 16, _WMMA, _WMMA, 8, "{0} * 2 + lane / 16", "lane % 16")
        for dtype, name in _NAMES.items()
    },
}


def _matrix_product(name: str, builtin: str, words: int, sums: int, more: str) -> str:
    """The function that a wavefront multiplies fragments by: `words` of either matrix, and clang's own function."""
    numbers = f"{'_Float16' if name.endswith('_f16') else 'short'} {name}_numbers"
    arguments = [f"uint32_t {side}{number}" for side in "ab" for number in range(words)]
    a, b = (", ".join(f"{side}{number}" for number in range(words)) for side in "ab")
    return f"""\
typedef {numbers} __attribute__((ext_vector_type({2 * words})));
typedef uint32_t {name}_words __attribute__((ext_vector_type({words})));
typedef float {name}_sums __attribute__((ext_vector_type({sums})));
static __device__ inline void fragment_product_{name}(float *sums, {', '.join(arguments)}) {{
    const {name}_words left = {{{a}}}, right = {{{b}}};
    {name}_sums made = {{{', '.join(f'sums[{number}]' for number in range(sums))}}};
    made = {builtin}(__builtin_bit_cast({name}_numbers, left), __builtin_bit_cast({name}_numbers, right), made{more});
    for (int number = 0; number < {sums}; ++number) sums[number] = made[number];
}}"""


def _mfma(name: str) -> str:
    """Of CDNA."""
    kind = {"f16": "f16", "bf16": "bf16_1k"}[name]
    return _matrix_product(f"mfma_{name}", f"__builtin_amdgcn_mfma_f32_16x16x16{kind}", 2, 4, ", 0, 0, 0")


def _wmma(name: str) -> str:
    """Of RDNA 3, in wavefronts of 32."""
    return _matrix_product(f"wmma_{name}", f"__builtin_amdgcn_wmma_f32_16x16x16_{name}_w32", FRAGMENT_WORDS, 8, "")


class HipDialect(CudaDialect):
    """HIP. Wavefronts have 32 or 64 items; what shares a row is 32 of them, whichever it is.

    architecture: the GPU's, as "gfx942"; it says which matrix cores there are.
    """

    device: ClassVar[str] = "rocm"
    language: ClassVar[str] = "HIP"
    own_functions: ClassVar[Mapping[str, Callable[[str], str]]] = {
        "fragment_product_mfma": _mfma, "fragment_product_wmma": _wmma,
    }  # fmt: skip

    def __init__(self, architecture: str = "", routines: bool = False) -> None:
        super().__init__(routines=routines)
        self.architecture = architecture

    def fragments(self, dtype: np.dtype) -> Fragments | None:
        """Matrix cores of 16-bit floats."""
        cores = (found for names, found in _MATRIX_CORES.items() if self.architecture.startswith(names))
        return next(cores, {}).get(dtype.name)

    def library_of(self, kernel: Contract | Library) -> str:
        """rocSOLVER, hipBLAS, hipFFT; products are rlx's own."""
        if isinstance(kernel, Contract) or self.why_not_routine(kernel):
            return ""
        return ROUTINES[kernel.routine].rocm

    def exchanges(self, kernel: Collective) -> bool:
        """By way of the host: nobody has tried RCCL."""
        return False

    def _shuffled(self, value: str, distance: str, warp: int) -> str:
        return f"__shfl_xor({value}, {distance}, {warp})"

    def program_head(self, text: str) -> str:
        """HIP's headers have the types."""
        return _BEGIN
