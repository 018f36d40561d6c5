"""The options of lowering and planning for a device: costs, limits and sizes, as data.

Counts are of elements, iterations or kernels, sizes are in bytes if stated; costs are in units of one
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

    instructions: scalar operations of a kernel. operands: its buffers. reduce_depth: the longest chain of dependent
    reductions. serial_operations, serial_elements: a nest with more operations, on at least this number of elements,
    is not fused with one that scatters, which runs on one thread and without vectors. mixed_sums: a nest that combines
    rows may also scatter, or accumulate elements of a row into fewer places. False if units share rows, which such a
    nest would prevent.

    >>> FusionLimits(instructions=100).operands
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

    outer: the desired number of iterations over rows, so that threads have work. split: the shortest and the longest
    row, in elements, that a row that is too long is cut into. whole: the fewest rows, and the largest number of their
    elements, that are kept whole although they are few, together with what is computed for each element. small: a
    reduction over at most this number of elements becomes one row per result if there are few rows. lanes: a sum of
    short rows over the outermost dimension takes at most this number of elements at a time; lane: applies if the rows
    have at most this number of elements, which do not fill vectors. lane_steps: the fewest steps of such a sum, and the
    fewest rows at a time.
    unrolled_nodes: a reduction of few elements becomes one expression with at most this number of nodes.
    short, short_line, short_nodes: a last dimension of at most `short` elements inside one of at least `short_line`
    becomes straight-line code of at most `short_nodes` nodes.
    """

    outer: int = 16
    split: tuple[int, int] = (256, 8192)
    whole: tuple[int, int] = (0, 0)
    small: int = 1 << 14
    lane: int = 12
    lanes: int = 256
    lane_steps: int = 4
    unrolled_nodes: int = 4096
    short: int = 4
    short_line: int = 16
    short_nodes: int = 256

    def keeps(self, rows: int, length: int) -> bool:
        """Whether few rows of a length stay whole."""
        return self.whole[0] <= rows and length <= self.whole[1]


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How accumulations over an outermost dimension are cut for several threads, or units of a device.

    counts: numbers of chunks to choose from (without any, nothing is cut); the largest is taken that leaves `rows` rows
    for each chunk. A number is at most `unrolled`, or a multiple of `group`. Each number needs its own kernel that
    combines the chunks: a backend that compiles slowly wants few numbers; one with many units wants powers of two.
    exact_rows: long sums of floats have more chunks than `counts` allows, so that at most about this number of terms
    is added one after another. unrolled: at most this number of partial results is combined in one expression; more of
    them are combined `group` at a time.
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

    tf32: operands in float32 are rounded to ten bits after the binary point before they are multiplied.
    """

    operands: np.dtype
    accumulator: np.dtype
    tf32: bool = False

    @classmethod
    def of(cls, operands: str, accumulator: str = "", tf32: bool = False) -> ProductType:
        """The type by names; products are summed in the operands' dtype by default."""
        return cls(dtype_of(operands), dtype_of(accumulator or operands), tf32)


@dataclass(frozen=True, slots=True)
class ProductLimits:
    """How matrix products are made.

    types: products that the device has kernels for. Other operands are widened to one of these types, or
    multiplied and summed in loops. If several types fit the same operands, the first one that is wide enough is used.
    kernels: the most kernels for a product over batches that no stride covers; beyond it, a copy is cheaper.
    The same holds if a product's columns are interleaved for its reader.
    patches: bytes of a convolution's patches that are written at a time, so that the product reads them from cache.
    loop_bytes: bytes of operands that a loop keeps to merge the products of all steps.
    loop_rows: products of this number of rows per step are as fast as larger ones.
    fused: products of at least this number of rows and columns become one kernel with the nests that only produce their
    operands and the nest that only reads their result (0: none). Thinner products do so if an operand is larger than
    the buffers that it is computed from. fused_cost: the highest cost of an element of a fused operand, which is
    computed again for every tile.
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

    expression_operations, expression_buffers: limits for computing one value; larger expressions are stored.
    recompute_cost: a value with several users is stored rather than computed again where that
    costs more: load_cost for each array after the first, and the arithmetic beyond free_cost
    (which the loads hide).
    repeat_cost: the same if one value is combined with many elements (a broadcast).
    repeat_nodes: a value of at most this number of nodes is computed again for each element that it is combined with.
    operand_nodes: an operand of a product in loops with more nodes is stored first.
    unroll_reduction: a cheap reduction of at most this number of elements becomes one expression.
    chunk_elements: accumulation over fewer elements is not cut into chunks.
    least_row_tiles: runs of kernels are cut in row tiles if at least this number of tiles is possible (0: none).
    least_overlap: exchanges between processes of at least this number of bytes overlap kernels, if there are any.
    alignment: each temporary begins at a multiple of this number of bytes.
    excess_precision: results of narrow floats are not rounded between fused operations (the switch of that name).
    deterministic: scatters of floats add in the order of their updates (the switch of that name).
    wide_running_sums: running sums of float32 are added in float64, one after the other, if the device supports
    float64 at that speed; otherwise the backend adds in parts.
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
    repeat_nodes: int = 2
    operand_nodes: int = 8
    unroll_reduction: int = 8
    chunk_elements: int = 1 << 14
    least_row_tiles: int = LEAST_ROW_TILES
    wide_running_sums: bool = True
    least_overlap: int = 1 << 16
    alignment: int = ALIGNMENT
    fuse: bool = True
    excess_precision: bool = field(default_factory=lambda: config.excess_precision)
    deterministic: bool = field(default_factory=lambda: config.deterministic)
