"""Kernels as launches: the strategy for each kernel. `loops.py` handles loops."""

from __future__ import annotations

from rlx.backends.gpu.attention import attention_steps
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import grid_of, grid_step
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.maps import map_step
from rlx.backends.gpu.ordered_sums import ordered_sum_steps
from rlx.backends.gpu.products import product_as_loops, product_steps, tiled_product
from rlx.backends.gpu.scans import scan_steps
from rlx.backends.gpu.scatters import last_write_steps
from rlx.backends.gpu.sizes import sized
from rlx.backends.gpu.small_matrices import SMALL, small_matrix_steps
from rlx.backends.gpu.sorting import sort_steps
from rlx.backends.gpu.splats import splat_steps
from rlx.backends.gpu.steps import LaunchStep
from rlx.backends.gpu.transforms import transform_steps
from rlx.ir.fused_products import FusedProduct
from rlx.ir.kernels import (
    Access,
    Buffer,
    Contract,
    Instruction,
    Kernel,
    Library,
    Loops,
    RowTiles,
    Sort,
    Store,
)
from rlx.ir.splats import SPLAT_BLOCKS

__all__ = ["copy_steps", "routine_steps", "steps_of"]


def steps_of(kernel: Kernel, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """The launches of a kernel, in order; None if a library or the host runs it, or if it has inner plans."""
    if dialect.takes_numbers and not dialect.shared_launch:
        kernel = sized(kernel)
    match kernel:
        case Loops() if dialect.spells(kernel):
            return _nest(kernel, limits, dialect)
        case Contract() if not dialect.multiplies(kernel):
            nest = product_as_loops(kernel, limits)
            if not kernel.batches * kernel.rows * kernel.columns:
                return []
            if nest is not None:
                return _nest(nest, limits, dialect)
            return tiled_product(FusedProduct(kernel), limits, dialect)
        case RowTiles():
            return product_steps(kernel, limits, dialect)
        case Sort() if dialect.sorts(kernel):
            return sort_steps(kernel, limits, dialect)
        case Library() if kernel.routine in SPLAT_BLOCKS:
            return splat_steps(kernel, limits, dialect)
        case Library() if kernel.meaning is not None:
            return attention_steps(kernel, limits, dialect)
        case Library() if dialect.why_not_routine(kernel) is not None:
            return routine_steps(kernel, limits, dialect)
    return None


def copy_steps(source: Buffer, target: Buffer, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep]:
    """The launches that copy an array of integers to another one."""
    instructions = (Instruction("load", (), source.dtype, Access(0, (1,))),)
    stores = (Store(0, Access(1, (1,))),)
    nest = Loops((source.size,), 1, (source, target), instructions, stores, 1, label="copy")
    return steps_of(nest, limits, dialect) or []


def routine_steps(kernel: Library, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """The launches of a routine by rlx's own kernels, if it fits in a group's memory; None for other kernels."""
    if kernel.routine == "fft":
        return transform_steps(kernel, limits, dialect)
    return small_matrix_steps(kernel, limits, dialect) if kernel.routine in SMALL else None


def _nest(kernel: Loops, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep]:
    found = last_write_steps(kernel, limits, dialect) or ordered_sum_steps(kernel, limits, dialect)
    if found is not None:
        return found
    grid = grid_of(kernel, limits, dialect)
    if not grid.points:
        return []
    scans = scan_steps(grid, limits, dialect)
    return scans or [map_step(grid, limits, dialect) or grid_step(grid, limits, dialect)]
