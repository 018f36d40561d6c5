"""Running results along rows: a group scans a tile of a row at a time, and carries its result to the next tile.

A few long rows are cut into parts, one for each group: one launch computes the result of each part, the next one scans.
There each group first combines the results of the parts before its own, always in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import Grid, GridMapping, open_point
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, ceiling, loops_step, moves_apart
from rlx.backends.loops.dialect import Parameter, Reduction
from rlx.backends.loops.walk import Walk
from rlx.ir.fused_products import with_stores
from rlx.ir.kernels import Access, Buffer, Loops, Store
from rlx.ir.scalar import neutral

__all__ = ["scan_steps"]

_LEAST_TILES = 16  # tiles of a part
_GROUPS_A_UNIT = 4  # while one waits at a barrier, others run


def scan_steps(grid: Grid, limits: Limits, dialect: DeviceDialect) -> list[Step] | None:
    """The launches of a kernel with running results; None if each item processes a whole row."""
    kernel = grid.kernel
    if not any(i.op == "cumulate" for i in kernel.instructions) or kernel.outer != len(kernel.sizes) - 1:
        return None
    far = all(abs(s.access.strides[-1]) != 1 for s in kernel.stores)
    if kernel.sizes[-1] < limits.least_row or (far and grid.points >= limits.units * limits.warp):
        return None
    if not _each_its_own(kernel) or kernel.chunks > 1 or kernel.outer != kernel.parallel:
        return None
    grid = replace(grid, lanes=limits.group)
    parts = _part_count(grid, limits)

    def step(part: Loops, mapping: GridMapping, how: str, scratch: Sequence[tuple[Parameter, Buffer]] = ()) -> Step:
        arrays = [
            dialect.group_array(f"r{number}", instruction.dtype, limits.group)
            for number, instruction in enumerate(part.instructions)
            if instruction.op in ("reduce", "cumulate")
        ]
        return loops_step(part, dialect, limits, mapping, how, grid.points * parts, limits.group, arrays, scratch)

    if parts == 1:
        return [step(kernel, _Tiles(dialect, grid, limits, 1, {}), "scans")]
    totals = _totals(kernel, parts)
    summed = _summed(kernel, totals, parts)
    scratch = [(Parameter(buffer.name, buffer.dtype, False), buffer) for buffer in totals.values()]
    names = {number: buffer.name for number, buffer in totals.items()}
    return [
        step(summed, _Totals(dialect, replace(grid, kernel=summed), limits, parts), "parts of scans"),
        step(kernel, _Tiles(dialect, grid, limits, parts, names), "scans of parts", scratch),
    ]


# ------------------------------------------------------------------ rows in parts
def _part_count(grid: Grid, limits: Limits) -> int:
    """The number of parts of each row that fills the device; 1 if parts would need one another's results."""
    instructions = grid.kernel.instructions
    depends = [False] * len(instructions)
    for number, instruction in enumerate(instructions):
        depends[number] = any(depends[a] or instructions[a].op == "cumulate" for a in instruction.args)
    chained = any(i.op == "reduce" or (i.op == "cumulate" and depends[n]) for n, i in enumerate(instructions))
    if chained or any(s.once for s in grid.kernel.stores):
        return 1
    wanted = _GROUPS_A_UNIT * limits.units // max(grid.points, 1)
    row = grid.kernel.sizes[-1]
    parts = min(wanted, row // (_LEAST_TILES * limits.group))
    return ceiling(row, _part_length(row, parts, limits.group)) if parts > 1 else 1


def _part_length(row: int, parts: int, items: int) -> int:
    """The number of elements of a part, in whole tiles."""
    return ceiling(ceiling(row, parts), items) * items


def _totals(kernel: Loops, parts: int) -> Mapping[int, Buffer]:
    """For each running result, the buffer for the results of each row's parts."""
    count = math.prod(kernel.sizes[: kernel.outer]) * parts
    return {
        number: Buffer(instruction.dtype, count, name=f"totals{number}")
        for number, instruction in enumerate(kernel.instructions)
        if instruction.op == "cumulate"
    }


def _summed(kernel: Loops, totals: Mapping[int, Buffer], parts: int) -> Loops:
    """The kernel with results of parts in place of running ones."""
    rows = [parts * math.prod(kernel.sizes[d + 1 : kernel.outer]) for d in range(kernel.outer)]
    places = enumerate(totals, len(kernel.operands))
    stores = [Store(number, Access(operand, (*rows, 0))) for operand, number in places]
    instructions = [replace(i, op="reduce") if i.op == "cumulate" else i for i in kernel.instructions]
    made = replace(kernel, operands=(*kernel.operands, *totals.values()), instructions=tuple(instructions))
    return replace(with_stores(made, stores), label=f"{kernel.label}_parts")


class _Parts(GridMapping):
    """A group processes a part of a row, or the whole row."""

    def __init__(self, dialect: DeviceDialect, grid: Grid, limits: Limits, parts: int) -> None:
        super().__init__(dialect, grid, limits, limits.group)
        self.parts = parts

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Compute the group's row and part."""
        if self.parts == 1:
            return super().enter(walk, nest)
        dialect = self.dialect
        group = f"({dialect.number_type}){dialect.group_number()}"
        walk.lines.add(
            dialect.fixed("part", f"{group} % {self.parts}u"), dialect.number("point", f"{group} / {self.parts}u")
        )
        open_point(walk, dialect, self.grid.kernel, self.grid.opened)
        return self.grid.opened

    def bounds(self, walk: Walk, dimension: int) -> tuple[str, str]:
        """Compute the beginning and the end of the part."""
        start, stop = walk.bounds(dimension)
        if self.parts == 1:
            return start, stop
        length = _part_length(walk.loops.sizes[dimension], self.parts, self.items)
        walk.lines.add(
            self.dialect.fixed("first", f"part * {length}"),
            self.dialect.fixed("last", f"{stop} - first < {length} ? {stop} : first + {length}"),
        )
        return "first", "last"


class _Totals(_Parts):
    """Items share a part; the first one writes its result."""

    def row_dimension(self, walk: Walk, dimension: int, reductions: Sequence[Reduction]) -> tuple[str, ...]:
        """A loop over the item's elements of the part."""
        start, stop = self.bounds(walk, dimension)
        return (self.dialect.strided_loop(walk.index(dimension), start, stop, self.lane, self.items),)

    def overwrite(self, walk: Walk, store: Store, array: str, place: str, value: str) -> None:
        """Store the part's result."""
        super().overwrite(walk, store, array, f"{place} + part", value)


def _each_its_own(kernel: Loops) -> bool:
    """Whether each element of a row is written by its own iteration."""
    rows = range(kernel.outer, len(kernel.sizes))
    return all(
        s.once or (s.address is None and s.access.strides[-1] and moves_apart(s.access, kernel.sizes, rows))
        for s in kernel.stores
    )


class _Tiles(_Parts):
    """A group processes a tile at a time. Items beyond the row's end stay on its last element, for the barriers.

    totals: the arrays with the results of parts, for each running result; empty if rows are not cut.
    """

    def __init__(
        self, dialect: DeviceDialect, grid: Grid, limits: Limits, parts: int, totals: Mapping[int, str]
    ) -> None:
        super().__init__(dialect, grid, limits, parts)
        self.totals = totals

    def _before(self, walk: Walk, number: int, totals: str) -> None:
        """The initial value of a running result: the combined results of the preceding parts."""
        dialect, (name, reducer, dtype) = self.dialect, walk.reduction(number)
        total = dialect.load(dtype, totals, f"point * {self.parts} + before")
        with walk.lines.block(dialect.strided_loop("before", "0", "part", self.lane, self.items)):
            walk.lines.add(dialect.assign(name, dialect.combine(reducer, dtype, name, total)))
        walk.lines.add(*dialect.combine_group(name, reducer, dtype, self.items, self.limits.warp))

    def row_dimension(self, walk: Walk, dimension: int, reductions: Sequence[Reduction]) -> tuple[str, ...]:
        """A loop over the tiles of the row, with the same number of iterations for every item."""
        for number, totals in self.totals.items():
            self._before(walk, number, totals)
        start, stop = self.bounds(walk, dimension)
        kind, name = self.dialect.position_type, walk.index(dimension)
        extent = self.dialect.extent
        return (
            f"for ({kind} tile = {start}; tile < {stop}; tile += {self.items}) {{",
            f"{extent}const bool inside = tile + {self.lane} < {stop};",
            f"{extent}{self.dialect.fixed(name, f'inside ? tile + {self.lane} : {stop} - 1')}",
        )

    def reduced(self, walk: Walk, number: int, value: str) -> None:
        """Reduce, if there is an element."""
        walk.combine(number, self._inside(walk, number, value))

    def _inside(self, walk: Walk, number: int, value: str) -> str:
        reduction = walk.reduction(number)
        start = self.dialect.constant(reduction.dtype, neutral(reduction.reducer, reduction.dtype))
        return f"(inside ? {value} : {start})"

    def cumulated(self, walk: Walk, number: int, value: str) -> str:
        """The tile's running results, combined with the results before the tile."""
        dialect, item = self.dialect, self.dialect.number_in_group()
        name, reducer, dtype = walk.reduction(number)
        shared, own, held, total = f"group_{name}", f"s{number}", f"h{number}", f"t{number}"
        near = dialect.combine(reducer, dtype, f"{shared}[{item} - width]", own)
        after = dialect.combine(reducer, dtype, name, total)
        walk.lines.add(
            dialect.variable(own, dtype, self._inside(walk, number, value)),
            f"{shared}[{item}] = {own};",
            dialect.barrier(),
            f"for (int width = 1; width < {self.items}; width *= 2) {{",
            f"    if ({item} >= width) {dialect.assign(own, near)}",
            f"    {dialect.barrier()}",
            f"    {shared}[{item}] = {own};",
            f"    {dialect.barrier()}",
            "}",
            dialect.declare(total, dtype, f"{shared}[{self.items - 1}]"),
            dialect.declare(held, dtype, dialect.combine(reducer, dtype, name, own)),
            dialect.assign(name, after),
            dialect.barrier(),
        )
        return held

    def overwrite(self, walk: Walk, store: Store, array: str, place: str, value: str) -> None:
        """Store, if there is an element."""
        if store.once or not store.access.strides[-1]:
            super().overwrite(walk, store, array, place, value)
            return
        with walk.lines.block(self.dialect.condition("inside")):
            super().overwrite(walk, store, array, place, value)

    def accumulate(self, walk: Walk, store: Store, place: str, value: str) -> None:
        """Accumulate, if there is an element."""
        if store.once:
            super().accumulate(walk, store, place, value)
            return
        with walk.lines.block(self.dialect.condition("inside")):
            super().accumulate(walk, store, place, value)
