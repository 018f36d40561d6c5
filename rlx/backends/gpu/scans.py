"""Running results along rows: a group scans a tile of a row at a time, and carries its result to the next tile.

A few long rows are cut into parts, one for each group: one launch computes the result of each part, the next one scans.
There each group first combines the results of the parts before its own, always in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, Grid, GridMapping, combine_group, group_number, open_point, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, loops_step, moves_apart
from rlx.backends.gpu.tile_sizes import LEAST_SCAN_TILES
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.walk import Reductions, Walk, combined
from rlx.code.tree import Apply, Array, Barrier, Element, Expression, Number, Register, minimum
from rlx.ir.fused_products import with_stores
from rlx.ir.kernels import Access, Buffer, Loops, Store
from rlx.ir.scalar import neutral

__all__ = ["scan_steps"]

_INSIDE = Register(np.dtype(bool), "inside")  # whether a work-item's element of a tile is in the row


def scan_steps(grid: Grid, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """The launches of a kernel with running results; None if each work-item processes a whole row."""
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

    def step(
        part: Loops, mapping: GridMapping, how: str, scratch: Sequence[tuple[Parameter, Buffer]] = ()
    ) -> LaunchStep:
        arrays = [
            mapping.group_array(Register(instruction.dtype, f"r{number}"))
            for number, instruction in enumerate(part.instructions)
            if instruction.op in ("reduce", "cumulate")
        ]
        return loops_step(part, dialect, limits, mapping, how, grid.points * parts, limits.group, arrays, scratch)

    if parts == 1:
        return [step(kernel, _TileScan(grid, limits, 1, dialect.shuffles, {}), "scans")]
    totals = _totals(kernel, parts)
    summed = _summed(kernel, totals, parts)
    scratch = [(Parameter(buffer.name, buffer.dtype, False), buffer) for buffer in totals.values()]
    names = {number: Array(buffer.name, buffer.dtype) for number, buffer in totals.items()}
    return [
        step(summed, _Totals(replace(grid, kernel=summed), limits, parts, dialect.shuffles), "parts of scans"),
        step(kernel, _TileScan(grid, limits, parts, dialect.shuffles, names), "scans of parts", scratch),
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
    wanted = limits.parted * limits.units // max(grid.points, 1)
    row = grid.kernel.sizes[-1]
    parts = min(wanted, row // (LEAST_SCAN_TILES * limits.group))
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


class _RowParts(GridMapping):
    """A group processes a part of a row, or the whole row."""

    def __init__(self, grid: Grid, limits: Limits, parts: int, shuffles: bool) -> None:
        super().__init__(grid, limits, limits.group, shuffles)
        self.parts = parts

    def part(self, walk: Walk) -> Register:
        """The number of the group's part of its row."""
        return walk.register("part")

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Compute the group's row and part."""
        if self.parts == 1:
            return super().enter(walk, nest)
        group = group_number(walk)
        walk.code.declare("part", group % self.parts, walk.position)
        walk.code.declare("point", group // self.parts)
        open_point(walk, self.grid.kernel, self.grid.opened)
        return self.grid.opened

    def bounds(self, walk: Walk, dimension: int) -> tuple[Expression, Expression]:
        """Compute the beginning and the end of the part."""
        start, stop = walk.bounds(dimension)
        if self.parts == 1:
            return start, stop
        length = _part_length(walk.loops.sizes[dimension], self.parts, self.items)
        first = walk.code.declare("first", self.part(walk) * length, walk.position)
        return first, walk.code.declare("last", minimum(first + length, stop), walk.position)


class _Totals(_RowParts):
    """Items share a part; the first one writes its result."""

    def row_loop(self, walk: Walk, dimension: int, reductions: Reductions, nest: ExitStack) -> None:
        """A loop over the work-item's elements of the part."""
        start, stop = self.bounds(walk, dimension)
        nest.enter_context(walk.code.loop(walk.index(dimension), start + self.lane, stop, self.items))

    def overwrite(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Store the part's result."""
        (place,) = element.position
        super().overwrite(walk, store, element.array[place + self.part(walk)], value)


def _each_its_own(kernel: Loops) -> bool:
    """Whether each element of a row is written by its own iteration."""
    rows = range(kernel.outer, len(kernel.sizes))
    return all(
        s.once or (s.address is None and s.access.strides[-1] and moves_apart(s.access, kernel.sizes, rows))
        for s in kernel.stores
    )


class _TileScan(_RowParts):
    """A group processes a tile at a time. Work-items beyond the row's end stay on its last element, for the barriers.

    totals: the arrays with the results of parts, for each running result; empty if rows are not cut.
    """

    def __init__(
        self, grid: Grid, limits: Limits, parts: int, shuffles: bool, totals: Mapping[int, Array]
    ) -> None:
        super().__init__(grid, limits, parts, shuffles)
        self.totals = totals

    def _before(self, walk: Walk, number: int, totals: Array) -> None:
        """The initial value of a running result: the combined results of the preceding parts."""
        code, register, before = walk.code, walk.result(number), walk.register("before")
        reducer = walk.loops.instructions[number].attribute
        with code.loop(before, self.lane, self.part(walk), self.items):
            point = Register(unsigned(walk.position), "point")
            total = totals[point * self.parts + before]
            code.assign(register, combined(reducer, register.dtype, register, total))
        shared = self.group_array(register)
        combine_group(code, register, reducer, self.items, self.limits.warp, self.shuffles, shared)

    def row_loop(self, walk: Walk, dimension: int, reductions: Reductions, nest: ExitStack) -> None:
        """A loop over the tiles of the row, with the same number of iterations for every work-item."""
        code, tile = walk.code, walk.register("tile")
        for number, totals in self.totals.items():
            self._before(walk, number, totals)
        start, stop = self.bounds(walk, dimension)
        nest.enter_context(code.loop(tile, start, stop, self.items))
        inside = code.declare(_INSIDE.name, tile + self.lane < stop)
        name, dtype = walk.index(dimension).name, walk.position
        code.declare(name, Apply(dtype, "select", (inside, tile + self.lane, stop - 1)))

    def reduced(self, walk: Walk, number: int, value: Expression) -> None:
        """Reduce, if there is an element."""
        walk.combine(number, self._inside(walk, number, value))

    def _inside(self, walk: Walk, number: int, value: Expression) -> Expression:
        dtype = walk.result(number).dtype
        start = Number(dtype, neutral(walk.loops.instructions[number].attribute, dtype))
        return Apply(dtype, "select", (_INSIDE, value, start))

    def cumulated(self, walk: Walk, number: int, value: Expression) -> Expression:
        """The tile's running results, combined with the results before the tile."""
        code, register = walk.code, walk.result(number)
        shared, reducer, dtype = self.group_array(register), walk.loops.instructions[number].attribute, register.dtype
        width = Register(np.dtype(np.int32), "width")
        own = code.declare(f"s{number}", self._inside(walk, number, value), changes=True)
        code.write(shared[ITEM], own)
        code.add(Barrier())
        with code.loop(width, 1, self.items, 2, advance="multiply"):
            with code.when(ITEM >= width):
                code.assign(own, combined(reducer, dtype, shared[ITEM - width], own))
            code.add(Barrier())
            code.write(shared[ITEM], own)
            code.add(Barrier())
        total = code.declare(f"t{number}", shared[self.items - 1])
        held = code.declare(f"h{number}", combined(reducer, dtype, register, own))
        code.assign(register, combined(reducer, dtype, register, total))
        code.add(Barrier())
        return held

    def overwrite(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Store, if there is an element."""
        if store.once or not store.access.strides[-1]:
            super().overwrite(walk, store, element, value)
            return
        with walk.code.when(_INSIDE):
            super().overwrite(walk, store, element, value)

    def accumulate(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Accumulate, if there is an element."""
        if store.once:
            super().accumulate(walk, store, element, value)
            return
        with walk.code.when(_INSIDE):
            super().accumulate(walk, store, element, value)
