"""Nests mapped to grids: a work-item for each point, or a group of work-items for each row.

A point is one choice of the indices that may run apart. Where nothing is said otherwise every point takes all the work
below it, which is always right; `group` lets the items of a work-group share a row, in steps as wide as the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from rlx.backends.c.types import memory_type
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.loops.dialect import Reduction
from rlx.backends.loops.row_schedule import row_schedule
from rlx.backends.loops.walk import Lines, Mapping, Walk, kernel_lines, kernel_parameters
from rlx.ir.kernels import Access, Instruction, Loops, Store, reaches_apart
from rlx.ir.scalar import neutral

__all__ = ["Grid", "GridMapping", "grid_of", "initializations", "kernel_text", "permuted", "spread"]

# rows shorter than this are taken by one work-item each
_LEAST_ROW = 32


@dataclass(frozen=True, slots=True)
class Grid:
    """How a kernel runs: `kernel` is what is spelled, over points that `items` work-items take each (1, or a group).

    atomic: points meet in what they accumulate, so that each addition is one step of the memory's own.
    before: kernels that run first, because no point could do what they do for all.
    """

    kernel: Loops
    points: int
    items: int
    atomic: bool = False
    before: tuple[Loops, ...] = ()


def spread(kernel: Loops) -> Loops:
    """The kernel with every dimension in front and parallel along which nothing is combined or written twice.

    What is left runs in order inside of each point, so that sums over it, and the last of several stores, stay what
    they are. Kernels whose rows are reduced keep their form: their rows may be shared by a group.
    """
    ordered = any(i.op in ("reduce", "cumulate") for i in kernel.instructions) or any(s.once for s in kernel.stores)
    if kernel.chunks > 1 or ordered or 0 in kernel.sizes[kernel.outer :]:
        return kernel
    free = _free_dimensions(kernel)
    if len(free) <= kernel.parallel:
        return kernel
    order = (*free, *(d for d in range(len(kernel.sizes)) if d not in free))
    return replace(permuted(kernel, order), outer=len(order), parallel=len(free))


def _free_dimensions(kernel: Loops) -> tuple[int, ...]:
    """Dimensions whose indices never meet in an element of any store, whatever the other indices are."""
    every = range(len(kernel.sizes))
    for store in kernel.stores:
        if store.address is not None or not _moves_apart(store.access, kernel.sizes, every):
            return ()
    return tuple(d for d in every if all(s.access.strides[d] or kernel.sizes[d] == 1 for s in kernel.stores))


def permuted(kernel: Loops, order: tuple[int, ...]) -> Loops:
    """The kernel with its dimensions in another order; what runs when is the caller's to know."""

    def moved(access: Access) -> Access:
        return replace(access, strides=tuple(access.strides[d] for d in order))

    def renamed(instruction: Instruction) -> Instruction:
        if instruction.op == "load":
            return replace(instruction, attribute=moved(instruction.attribute))
        if instruction.op == "index":
            return replace(instruction, attribute=order.index(instruction.attribute))
        return instruction

    return replace(
        kernel,
        sizes=tuple(kernel.sizes[d] for d in order),
        instructions=tuple(map(renamed, kernel.instructions)),
        stores=tuple(replace(s, access=moved(s.access)) for s in kernel.stores),
    )


def initializations(kernel: Loops) -> list[Loops]:
    """A kernel for each store that begins with its reducer's neutral element, which sets what the store reaches."""
    made = []
    for store in kernel.stores:
        if store.initialize:
            assert store.accumulate is not None
            buffer, access = kernel.operands[store.access.operand], store.access
            reached = [d for d, stride in enumerate(access.strides) if stride]
            strides = tuple(access.strides[d] for d in reached)
            sizes = tuple(kernel.sizes[d] for d in reached)
            dtype = kernel.instructions[store.value].dtype
            start = np.asarray(neutral(store.accumulate, buffer.dtype), dtype).tobytes()
            value = Instruction("constant", (), dtype, start)
            target = Store(0, replace(access, operand=0, strides=strides))
            rank, label = len(sizes), f"{kernel.label}_start"
            made.append(Loops(sizes, rank, (buffer,), (value,), (target,), rank, label=label))
    return made


def grid_of(kernel: Loops, group: int, dialect: DeviceDialect) -> Grid:
    """The grid of a kernel, on a device whose groups have `group` work-items."""
    if _may_meet(kernel, dialect):
        rank = len(kernel.sizes)
        stores = tuple(replace(s, initialize=False) for s in kernel.stores)
        apart = replace(kernel, outer=rank, parallel=rank, stores=stores)
        return Grid(apart, math.prod(kernel.sizes), 1, True, tuple(initializations(kernel)))
    kernel = spread(kernel)
    points = kernel.chunks if kernel.chunks > 1 else math.prod(kernel.sizes[: kernel.parallel])
    return Grid(kernel, points, group if _rows_are_shared(kernel) else 1)


def _may_meet(kernel: Loops, dialect: DeviceDialect) -> bool:
    """Whether every iteration can be a point of its own, since what it writes is combined, in whatever order."""
    return (
        kernel.chunks == 1
        and all(i.op not in ("reduce", "cumulate") for i in kernel.instructions)
        and all(s.address is not None and not s.once for s in kernel.stores)
        and all(
            s.accumulate is not None
            and dialect.has_atomic(s.accumulate, kernel.operands[s.access.operand].dtype)
            and kernel.instructions[s.value].dtype == kernel.operands[s.access.operand].dtype
            for s in kernel.stores
        )
    )


def shared_dimension(kernel: Loops) -> int:
    """The row dimension that the items of a group share: the longest one, the innermost of equals."""
    rows = range(kernel.outer, len(kernel.sizes))
    return max(rows, key=lambda d: (kernel.sizes[d], d))


def _rows_are_shared(kernel: Loops) -> bool:
    """Whether a group can take a row: its items write apart in one sweep, and nothing runs along the row in order."""
    if kernel.outer == len(kernel.sizes) or kernel.sizes[shared_dimension(kernel)] < _LEAST_ROW:
        return False
    if any(i.op == "cumulate" for i in kernel.instructions):
        return False
    if kernel.chunks > 1 and kernel.outer == 0:
        return False  # the dimension that is cut is the row
    once = {n for phase in row_schedule(kernel).row_stores for n in phase}
    swept = [s for n, s in enumerate(kernel.stores) if n not in once]
    return all(_is_apart_along(s, kernel, shared_dimension(kernel)) for s in swept)


def _is_apart_along(store: Store, kernel: Loops, dimension: int) -> bool:
    """Whether no two items of a group write one element: each has its own places along the shared dimension."""
    if store.address is not None or not store.access.strides[dimension]:
        return False
    return _moves_apart(store.access, kernel.sizes, range(kernel.outer, len(kernel.sizes)))


def _moves_apart(access: Access, sizes: tuple[int, ...], dimensions: range) -> bool:
    """Whether different indices along those of the dimensions that move the access reach different elements."""
    moving = [d for d in dimensions if access.strides[d]]
    return reaches_apart([access.strides[d] for d in moving], [sizes[d] for d in moving])


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
            lines.add(dialect.fixed("chunk", number))
            nest.enter_context(lines.block(dialect.condition(f"chunk < {kernel.chunks}")))
            return 0
        lines.add(dialect.fixed("point", number))
        nest.enter_context(lines.block(dialect.condition(f"point < {self.grid.points}")))
        rest = "point"
        for dimension in reversed(range(kernel.parallel)):
            name, size = walk.index(dimension), kernel.sizes[dimension]
            if dimension == 0:
                lines.add(dialect.fixed(name, rest))
            else:
                lines.add(dialect.fixed(name, f"{rest} % {size}"))
                lines.add(dialect.fixed(f"above_{name}", f"{rest} / {size}"))
                rest = f"above_{name}"
        return kernel.parallel

    def row_dimension(self, walk: Walk, dimension: int, reductions: Sequence[Reduction]) -> tuple[str, ...]:
        """The whole range, or every so many elements of it from the item's own on."""
        start, stop = walk.bounds(dimension)
        if dimension != self.shared:
            return (walk.dialect.loop(walk.index(dimension), start, stop),)
        return (self.dialect.strided_loop(walk.index(dimension), start, stop, self.grid.items),)

    def combine_rows(self, walk: Walk, number: int) -> None:
        """The items' parts are combined in memory that the group shares."""
        if self.grid.items > 1:
            instruction = walk.loops.instructions[number]
            walk.lines.add(
                *self.dialect.combine_group(f"r{number}", instruction.attribute, instruction.dtype, self.grid.items)
            )

    def accumulate(self, walk: Walk, store: Store, place: str, value: str) -> None:
        """Atomically where points meet."""
        if not self.grid.atomic:
            walk.accumulate(store, place, value)
            return
        assert store.accumulate is not None
        dtype = walk.stored_dtype(store)
        walk.lines.add(self.dialect.atomic(store.accumulate, dtype, f"{walk.array(store)} + {place}", value))

    def initialized(self, walk: Walk) -> None:
        """The group's items see it."""
        if self.grid.items > 1:
            walk.lines.add(self.dialect.barrier())

    @contextmanager
    def once(self, walk: Walk) -> Generator[None]:
        """The first item of a group writes."""
        if self.grid.items == 1:
            yield
            return
        with walk.lines.block(walk.dialect.condition(self.dialect.is_first_item())):
            yield


def kernel_text(grid: Grid, dialect: DeviceDialect) -> Callable[[str], str]:
    """The text of a grid's kernel, as a function of its name."""
    parameters = kernel_parameters(grid.kernel)
    lines = Lines(dialect)
    for parameter in parameters:
        kind = f"{dialect.global_space} {'' if parameter.written else 'const '}{memory_type(parameter.dtype)} *"
        lines.add(f"{kind}{parameter.name} = ({kind})({parameter.name}_memory + {parameter.name}_start);")
    if grid.items > 1:
        for number, instruction in enumerate(grid.kernel.instructions):
            if instruction.op == "reduce":
                lines.add(dialect.group_array(f"r{number}", instruction.dtype, grid.items))
    lines.add(*kernel_lines(grid.kernel, dialect, GridMapping(dialect, grid)))
    body = "\n".join(f"    {line}" for line in lines.text)
    arrays = ", ".join(f"{dialect.global_space} uchar *{p.name}_memory, const long {p.name}_start" for p in parameters)
    return lambda name: f"{dialect.kernel_mark} void {name}({arrays}) {{\n{body}\n}}"
