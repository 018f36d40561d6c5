"""Row kernels and gathers as kernels of mx.fast.metal_kernel: source in Metal's language, generated here, run on a Mac.

The shared walk over grids writes the source; MLX writes the head of the function. Metal has not compiled it yet, so it
is only used on a GPU with RLX_METAL_KERNELS=1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import grid_of, grid_step
from rlx.backends.gpu.limits import Limits
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.names import identifier
from rlx.backends.loops.walk import kernel_parameters
from rlx.backends.loops.words import LanguageWords
from rlx.backends.mlx.library import MxArray, dtype_of_memory, is_on_gpu, mx
from rlx.backends.mlx.views import flat
from rlx.code.tree import Argument
from rlx.ir.kernels import Buffer, Loops

__all__ = ["METAL_WORDS", "MetalDialect", "MetalKernel", "is_wanted", "metal_kernel", "run_metal", "why_not_metal"]

_LIMITS = Limits(held=0, large_group=0)  # rows in registers have not been tried there
_HEAD = """\
#undef INT64_C
#undef UINT64_C
#undef INT32_MIN
#undef INT64_MIN
#define INT64_C(number) number##L
#define UINT64_C(number) number##UL
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807L - 1)
"""
# functions of C's library that have a float variant by name: Metal's functions are overloaded
_OVERLOADED = """acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh exp exp2 fabs floor fma fmod log log2
    pow rint sin sinh sqrt tan tanh trunc""".split()
_MISSING = frozenset("erf erfc erf_inv expm1 log1p cbrt nextafter".split())

# rows are combined in memory, and MLX computes scatters: there are no shuffles and atomics
METAL_WORDS = LanguageWords(
    head=_HEAD,
    kernel="kernel void",
    item="(int)thread_position_in_threadgroup.x",
    group="threadgroup_position_in_grid.x",
    barrier="threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);",
    global_space="device",
    group_space="threadgroup",
    group_pointer="threadgroup",
    overloaded=tuple(_OVERLOADED),
    overload="metal::{name}",
)


class MetalDialect(DeviceDialect):
    """Metal's language, inside a function whose head MLX writes: each array is a pointer with its name."""

    language = "Metal"
    words = METAL_WORDS
    takes_numbers = False

    def __init__(self) -> None:
        super().__init__(shuffles=False)

    def kernel(
        self,
        name: str,
        parameters: Sequence[Parameter],
        items: int,
        body: Sequence[str],
        roomy: int = 0,
        numbers: Sequence[Argument] = (),
    ) -> str:
        """The body alone."""
        assert not numbers
        return "\n".join(body)

    def spells(self, kernel: Loops) -> bool:
        """Not in float64, nor the functions that Metal lacks."""
        dtypes = {i.dtype for i in kernel.instructions} | {b.dtype for b in kernel.operands}
        if dtypes & {np.dtype(np.float64), np.dtype(np.complex128)}:
            return False
        return super().spells(kernel) and all(i.op not in _MISSING for i in kernel.instructions)


class MetalKernel(NamedTuple):
    """The arguments of mx.fast.metal_kernel: the name, the source before the function, the body; and the launch."""

    name: str
    header: str
    source: str
    inputs: tuple[tuple[str, Buffer], ...]
    outputs: tuple[tuple[str, Buffer], ...]
    threads: int
    group: int


def is_wanted() -> bool:
    """Whether rlx's Metal kernels are enabled: on an Apple GPU with RLX_METAL_KERNELS=1."""
    return os.environ.get("RLX_METAL_KERNELS") == "1" and is_on_gpu() and mx.metal.is_available()


def why_not_metal(kernel: Loops) -> str | None:
    """The reason that a kernel uses MLX operations; None if it is a row kernel or a gather that Metal can run."""
    rows = any(i.op in ("reduce", "cumulate") for i in kernel.instructions)
    gathers = any(i.op == "load" and i.args for i in kernel.instructions)
    if not rows and not gathers:
        return "mx.compile fuses it into one kernel"
    if kernel.chunks > 1 or 0 in kernel.sizes:
        return "it is cut, or empty"
    if not MetalDialect().spells(kernel):
        return "Metal lacks one of its functions or dtypes"
    read = {kernel.operands[i.attribute.operand] for i in kernel.instructions if i.op == "load"}
    for store in kernel.stores:
        buffer = kernel.operands[store.access.operand]
        if store.address is not None or store.guard is not None or buffer in read:
            return "it changes a part of an array"
        if store.accumulate is not None and not store.initialize:
            return "it adds to an existing array"
        reached = prod(n for n, s in zip(kernel.sizes, store.access.strides, strict=True) if s)
        if reached != buffer.real_size:
            return "it writes a part of an array"
    return None


@cache
def metal_kernel(kernel: Loops) -> MetalKernel:
    """The text of a kernel, and its grid."""
    dialect = MetalDialect()
    grid = grid_of(kernel, _LIMITS, dialect)
    step = grid_step(grid, _LIMITS, dialect)
    source, helpers = step.text(""), dialect.helper_text(dialect.helpers)
    named = list(zip(kernel_parameters(grid.kernel), step.arrays, strict=True))
    return MetalKernel(
        f"rlx_{identifier(kernel.label, 'nest')}",
        f"{dialect.program_head(helpers + source)}\n{helpers}\n",
        source,
        tuple((p.name, b) for p, b in named if not p.written),
        tuple((p.name, b) for p, b in named if p.written),
        step.groups * step.items,
        step.items,
    )


def run_metal(kernel: Loops, buffers: dict[Buffer, MxArray]) -> None:
    """Run the kernel; the buffers that it writes get new arrays."""
    made = metal_kernel(kernel)
    function: Any = mx.fast.metal_kernel(
        name=made.name,
        input_names=[name for name, _ in made.inputs],
        output_names=[name for name, _ in made.outputs],
        source=made.source,
        header=made.header,
    )
    results = function(
        inputs=[flat(buffers[b]) for _, b in made.inputs],
        grid=(made.threads, 1, 1),
        threadgroup=(made.group, 1, 1),
        output_shapes=[(b.nbytes // dtype_of_memory(b.dtype).size,) for _, b in made.outputs],
        output_dtypes=[dtype_of_memory(b.dtype) for _, b in made.outputs],
    )
    buffers.update(zip((b for _, b in made.outputs), results, strict=True))
