"""Nests mapped to grids: a work-item for each point, or a group of work-items for each row.

A point is one choice of the indices that may run apart. Where nothing is said otherwise every point takes all the work
below it, which is always right; `group` lets the items of a work-group share a row, in steps as wide as the group.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlx.backends.loops.mapping import Mapping
from rlx.backends.loops.staging import staging
from rlx.ir.kernels import Access, Loops, Store

if TYPE_CHECKING:
    from rlx.backends.gpu.dialect import DeviceDialect
    from rlx.backends.loops.walk import Walk

__all__ = ["Grid", "GridMapping", "grid_of", "spread"]

# rows shorter than this are taken by one work-item each
_LEAST_ROW = 32


@dataclass(frozen=True, slots=True)
class Grid:
    """How a kernel runs: `kernel` is what is spelled, over `points` points, each taken by `items` work-items (1 or a group)."""

    kernel: Loops
    points: int
    items: int


def spread(kernel: Loops) -> Loops:
    """The kernel with every dimension parallel, where it says nothing about an order: its elements are independent."""
    apart = (
        kernel.chunks == 1
        and all(i.op not in ("reduce", "cumulate") for i in kernel.instructions)
        and all(_writes_apart(s, kernel.sizes) for s in kernel.stores)
    )
    rank = len(kernel.sizes)
    return replace(kernel, outer=rank, parallel=rank) if apart and kernel.parallel < rank else kernel


def grid_of(kernel: Loops, group: int) -> Grid:
    """The grid of a kernel, on a device whose groups have `group` work-items."""
    kernel = spread(kernel)
    points = kernel.chunks if kernel.chunks > 1 else math.prod(kernel.sizes[: kernel.parallel])
    return Grid(kernel, points, group if _rows_are_shared(kernel) else 1)


def shared_dimension(kernel: Loops) -> int:
    """The row dimension that the items of a group share: the longest one, the innermost of equals."""
    rows = range(kernel.outer, len(kernel.sizes))
    return max(rows, key=lambda d: (kernel.sizes[d], d))


def _rows_are_shared(kernel: Loops) -> bool:
    """Whether a group can take a row: what its items write in one sweep is apart, and nothing runs along the row in order."""
    if kernel.outer == len(kernel.sizes) or kernel.sizes[shared_dimension(kernel)] < _LEAST_ROW:
        return False
    if any(i.op == "cumulate" for i in kernel.instructions):
        return False
    if kernel.chunks > 1 and kernel.outer == 0:
        return False  # the dimension that is cut is the row
    once = {n for stage in staging(kernel).row_stores for n in stage}
    swept = [s for n, s in enumerate(kernel.stores) if n not in once]
    return all(_is_apart_along(s, kernel, shared_dimension(kernel)) for s in swept)


def _is_apart_along(store: Store, kernel: Loops, dimension: int) -> bool:
    """Whether no two items of a group write one element: each has its own places along the shared dimension."""
    if store.address is not None or not store.access.strides[dimension]:
        return False
    return _is_injective(store.access, kernel.sizes, range(kernel.outer, len(kernel.sizes)), dimension)


def _writes_apart(store: Store, sizes: tuple[int, ...]) -> bool:
    """Whether every iteration writes an element of its own, for itself alone."""
    if store.address is not None or store.initialize:
        return False
    return _is_injective(store.access, sizes, range(len(sizes)), None)


def _is_injective(access: Access, sizes: tuple[int, ...], dimensions: range, among: int | None) -> bool:
    """Whether different indices reach different elements: all of them, or those that differ along `among`.

    Sufficient, not necessary: each stride reaches beyond all that smaller ones reach together.
    """
    reach = 0
    for stride, size, dimension in sorted((abs(access.strides[d]), sizes[d], d) for d in dimensions):
        if size <= 1 or (stride == 0 and dimension != among and among is not None):
            continue
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


class GridMapping(Mapping):
    """The iterations of a grid, spelled by a dialect that knows work-items."""

    def __init__(self, dialect: DeviceDialect, grid: Grid) -> None:
        self.dialect = dialect
        self.grid = grid
        self.shared = shared_dimension(grid.kernel) if grid.items > 1 else -1

    def enter(self, walk: Walk, nest: ExitStack) -> int:
        """Which point this is, and its indices along the dimensions that are parallel."""
        kernel, dialect, lines = self.grid.kernel, self.dialect, walk.lines
        number = dialect.group_number() if self.grid.items > 1 else dialect.item_number()
        if kernel.chunks > 1:
            lines.add(dialect.index("chunk", number))
            nest.enter_context(lines.block(dialect.condition(f"chunk < {kernel.chunks}")))
            return 0
        lines.add(dialect.index("point", number))
        nest.enter_context(lines.block(dialect.condition(f"point < {self.grid.points}")))
        rest = "point"
        for dimension in reversed(range(kernel.parallel)):
            name, size = walk.index(dimension), kernel.sizes[dimension]
            if dimension == 0:
                lines.add(dialect.index(name, rest))
            else:
                lines.add(dialect.index(name, f"{rest} % {size}"))
                lines.add(dialect.index(f"above_{name}", f"{rest} / {size}"))
                rest = f"above_{name}"
        return kernel.parallel

    def row_dimension(self, walk: Walk, dimension: int) -> str:
        """The whole range, or every so many elements of it from the item's own on."""
        start, stop = walk.bounds(dimension)
        if dimension != self.shared:
            return walk.dialect.loop(walk.index(dimension), start, stop)
        return self.dialect.strided_loop(walk.index(dimension), start, stop, self.grid.items)

    def combine_rows(self, walk: Walk, number: int) -> None:
        """The items' parts are combined in memory that the group shares."""
        if self.grid.items > 1:
            instruction = walk.loops.instructions[number]
            walk.lines.add(
                *self.dialect.combine_group(f"r{number}", instruction.attribute, instruction.dtype, self.grid.items)
            )

    @contextmanager
    def once(self, walk: Walk) -> Generator[None]:
        """The first item of a group writes."""
        if self.grid.items == 1:
            yield
            return
        with walk.lines.block(walk.dialect.condition(self.dialect.is_first_item())):
            yield
