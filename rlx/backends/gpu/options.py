"""The lowering options of devices with work-groups: costs and sizes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from rlx.backends.claims import Claims
from rlx.backends.gpu.attention import BLOCKS, fits
from rlx.backends.gpu.attention_fragments import most_features
from rlx.backends.gpu.fragments import Fragments
from rlx.backends.gpu.grid import longest_row
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.splats import fits_groups
from rlx.ir.options import ChunkLimits, FusionLimits, LoweringOptions, ProductLimits, RowLimits
from rlx.ir.splats import SPLAT_BLOCKS, takes_splats
from rlx.ir.types import TensorType

__all__ = ["SMALL_ORDER", "claims_of", "lowering_options"]

# no library has these: small ones are a few launches of loops that one group runs
_LOOPS = ("pivots_to_permutation", "pivoted_qr", "householder_product", "tridiagonal_solve")
SMALL_ORDER = 32

_MOST_CHUNKS = 512
_LEAST_FUSED = 16  # rows and columns of products that are computed in tiles
_LEAST_CUT = 1000  # elements of a sum: one work-item takes longer to add them than a launch takes
_LEAST_APART = 64  # elements of sums that are not fused with scatters


@cache
def claims_of(fragments: Fragments | None = None) -> Claims:
    """The lowering of devices with work-groups, for all dtypes. fragments: the matrix unit for 16-bit floats."""
    loops = tuple((name, SMALL_ORDER) for name in _LOOPS)
    return Claims(blocks=BLOCKS | SPLAT_BLOCKS, fits=partial(_fits, most=most_features(fragments)), loops_up_to=loops)


def _fits(name: str, types: tuple[TensorType, ...], attributes: Mapping[str, Any], most: int) -> bool:
    """Whether a call of a block becomes kernels."""
    if name in BLOCKS:
        return fits(name, types, attributes, most)
    return takes_splats(name, types, attributes) and fits_groups(types, attributes["tile"], attributes["channels"])


def lowering_options(limits: Limits) -> LoweringOptions:
    """Options of a device with these limits.

    Kernels fill the device one after the other: there are no row tiles. Sums are cut into 2**n chunks, near
    the number of groups that run at once. A device computes some twenty operations while it moves a byte, so it
    recomputes values that a processor would store. Products read the windows of a convolution in place; products of
    complex numbers have more patches at once, because a launch costs more than a cache is worth. None of the costs has
    been measured on a GPU.

    >>> lowering_options(Limits(units=100)).chunks.counts
    (8, 16, 32, 64, 128)
    """
    most = min(_MOST_CHUNKS, 1 << (limits.units - 1).bit_length())
    counts = tuple(8 << n for n in range(most.bit_length() - 3)) or (most,)
    return LoweringOptions(
        fusion=FusionLimits(serial_operations=400, serial_elements=_LEAST_APART, mixed_sums=False),
        rows=RowLimits(
            outer=limits.units, split=(256, 4096), lane=0, whole=(limits.units // 5, longest_row(limits))
        ),
        chunks=ChunkLimits(counts=counts, rows=1),
        products=ProductLimits(patches=1 << 26, fused=_LEAST_FUSED),
        chunk_elements=_LEAST_CUT,
        recompute_cost=48,
        free_cost=20,
        least_row_tiles=0,
        wide_running_sums=False,
    )
