"""What lowering and planning go by on a device: costs, limits and sizes, as data.

Counts are of elements, iterations or kernels, sizes in bytes where a line says so; costs are in units of one
vectorised operation on one element (exp is about 6, a load of memory 8).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlx.config import config
from rlx.ir.types import dtype_of
from rlx.storage import ALIGNMENT

__all__ = [
    "LEAST_ROW_TILES",
    "RowTileLimits",
    "ChunkLimits",
    "FusionLimits",
    "LoweringOptions",
    "ProductLimits",
    "ProductType",
    "RowLimits",
]

LEAST_ROW_TILES = 4


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """How large a fused kernel may grow.

    instructions: scalar operations of a kernel. operands: its buffers. reduce_depth: reductions of which each needs
    the one before. serial_operations, serial_elements: a nest of more operations on at least so many elements stays
    apart from one that scatters, which runs on one thread and without vectors. mixed_sums: a nest may combine rows and
    accumulate elements of a row in fewer places, or scatter, too; False where units share rows, which that would keep
    them from.

    >>> from rlx import fusion
    >>> fusion.FusionLimits(instructions=100).operands
    40
    """

    instructions: int = 400
    operands: int = 40
    reduce_depth: int = 4
    serial_operations: int = 16
    serial_elements: int = 1 << 12
    mixed_sums: bool = True


@dataclass(frozen=True, slots=True)
class RowLimits:
    """How the space of a reduction is cut in rows, one after the other, and iterations over them.

    outer: iterations over rows that there should be, so that threads have work. split: the shortest and the longest
    row, in elements, that one too long is cut in. small: a reduction over at most so many elements becomes one
    row each with what has few rows. lanes: a sum of short rows over the outermost dimension is made of so many
    elements at a time, at most; lane: where rows have at most so many elements themselves, which do not fill vectors.
    lane_steps: the fewest steps of such a sum, and the fewest rows of a time.
    unrolled_nodes: a reduction of few elements becomes one expression of at most so many nodes.
    short, short_line, short_nodes: a last dimension of at most so many elements inside of one of at least `short_line`
    becomes straight code of at most `short_nodes` nodes.
    """

    outer: int = 16
    split: tuple[int, int] = (256, 8192)
    small: int = 1 << 14
    lane: int = 12
    lanes: int = 256
    lane_steps: int = 4
    unrolled_nodes: int = 4096
    short: int = 4
    short_line: int = 16
    short_nodes: int = 256


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How accumulations over an outermost dimension are cut for several threads, or units of a device.

    counts: numbers of chunks to choose from (without any, nothing is cut); the largest is taken that leaves `rows` rows
    for each chunk. A number is at most `unrolled`, or a multiple of `group`. The kernel that combines chunks is another
    one for each number, so that a backend that compiles slowly wants few of them; one with many units powers of two.
    exact_rows: of long sums of floats there are more chunks than those, so that no more than about so many terms are
    added in turn. unrolled: partial results up to so many are combined in one expression; more of them `group` at a
    time.
    """

    counts: tuple[int, ...] = (4, 16)
    rows: int = 4
    exact_rows: int = 256
    unrolled: int = 16
    group: int = 8

    def __post_init__(self) -> None:
        unfit = [n for n in self.counts if n > self.unrolled and n % self.group]
        if unfit:
            raise ValueError(f"{unfit} chunks are more than {self.unrolled}, and no multiples of {self.group}")


@dataclass(frozen=True, slots=True)
class RowTileLimits:
    """Which runs of kernels are cut in row tiles (see ir.row_tiles).

    widest: bytes of a value in one row tile, which stay in cache. work: multiplications of products, or an eighth of
    the instructions of loops, that each tile has at least.
    """

    widest: int = 1 << 20
    work: int = 1 << 17


@dataclass(frozen=True, slots=True)
class ProductType:
    """The dtypes of a matrix product: of its operands, and that in which products are summed.

    tf32: operands in float32 are rounded to ten bits behind the point before they are multiplied.
    """

    operands: np.dtype
    accumulator: np.dtype
    tf32: bool = False

    @classmethod
    def of(cls, operands: str, accumulator: str = "", tf32: bool = False) -> ProductType:
        """The type by names; products are summed in the operands' dtype if nothing else is said."""
        return cls(dtype_of(operands), dtype_of(accumulator or operands), tf32)


@dataclass(frozen=True, slots=True)
class ProductLimits:
    """How matrix products are made.

    types: products that the device has kernels for; what is no operand of these is widened to one that is, or
    multiplied and summed in loops. Of several for the same operands the first one that is wide enough is taken.
    kernels: a product over batches that no stride walks is at most so many kernels; more of them are worth a copy.
    The same holds where a product's columns are interleaved for its reader.
    patches: bytes of a convolution's patches that are made at a time: what a product reads is still in cache.
    loop_bytes: bytes of operands that a loop keeps, so that the products of all steps are one.
    loop_rows: products of so many rows a step are as fast as larger ones.
    fused: products of at least so many rows and columns are one kernel with the nests that only make their operands,
    and the one that only reads their result (0: none); thinner ones where an operand is larger than what it is made of.
    fused_cost: what making an element may cost at most: it is made
    again for every tile.
    """

    types: tuple[ProductType, ...] = tuple(map(ProductType.of, ("float32", "float64", "complex64", "complex128")))
    kernels: int = 64
    patches: int = 1 << 21
    loop_bytes: int = 1 << 27
    loop_rows: int = 256
    fused: int = 0
    fused_cost: int = 4


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """Costs and limits of lowering and planning.

    expression_operations, expression_buffers: what one value is computed from; larger expressions are stored.
    recompute_cost: a value with several users is stored rather than computed again where that
    costs more: load_cost for each array after the first, and the arithmetic beyond free_cost
    (which hides behind the loads).
    repeat_cost: the same where one value meets many elements (a broadcast).
    unroll_reduction: a cheap reduction of at most so many elements becomes one expression.
    chunk_elements: accumulation over fewer elements is not cut into chunks.
    least_row_tiles: runs of kernels that can be cut in so many row tiles are (0: none).
    least_overlap: exchanges between processes of at least so many bytes go on beside kernels, where there are some.
    alignment: bytes; each temporary begins at a multiple of it.
    excess_precision: results of narrow floats are not rounded between fused operations (the switch of that name).
    deterministic: scatters of floats add in the order of their updates (the switch of that name).
    """

    fusion: FusionLimits = field(default_factory=FusionLimits)
    rows: RowLimits = field(default_factory=RowLimits)
    chunks: ChunkLimits = field(default_factory=ChunkLimits)
    row_tiles: RowTileLimits = field(default_factory=RowTileLimits)
    products: ProductLimits = field(default_factory=ProductLimits)
    expression_operations: int = 64
    expression_buffers: int = 8
    recompute_cost: int = 16
    load_cost: int = 8
    free_cost: int = 6
    repeat_cost: int = 4
    unroll_reduction: int = 8
    chunk_elements: int = 1 << 14
    least_row_tiles: int = LEAST_ROW_TILES
    least_overlap: int = 1 << 16
    alignment: int = ALIGNMENT
    fuse: bool = True
    excess_precision: bool = field(default_factory=lambda: config.excess_precision)
    deterministic: bool = field(default_factory=lambda: config.deterministic)
