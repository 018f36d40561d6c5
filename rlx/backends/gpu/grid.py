"""Grids: a work-item for each point, or several for each row.

A point is one choice of the indices of independent dimensions. Every point does all the work below it, which is always
correct; if a row is long, the work-items of a warp or of a whole group share it, with a stride equal to their number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, loops_step, moves_apart
from rlx.backends.loops.row_schedule import row_schedule
from rlx.backends.loops.walk import Mapping, Reductions, Walk, combined, widened
from rlx.code.tree import (
    Array,
    AtomicUpdate,
    Barrier,
    Coordinate,
    Element,
    Expression,
    Register,
    Shuffle,
)
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Access, Instruction, Loops, Store
from rlx.ir.scalar import operation_cost

__all__ = [
    "ITEM", "Grid", "GridMapping", "collapsed", "combine_group", "grid_of", "grid_step", "group_number", "longest_row",
    "open_point", "ordered", "permuted", "shared_dimension", "unsigned",
]  # fmt: skip


# operations of a work-item over its part of a row: more code takes too long to compile, and too many registers
_MOST_UNROLLED = 2048
_LARGE_GROUP_HELD = 32  # elements of rows in the 64 registers of a work-item of a large group
ITEM = Coordinate(np.dtype(np.int32), "item")  # the number of a work-item in its group


@dataclass(frozen=True, slots=True)
class Grid:
    """How a kernel runs: `kernel` is the kernel that is written.

    opened: the dimensions that a point numbers, the last one fastest, together with the chunks if the kernel is cut.
    lanes: work-items that share a point. atomic: points may write the same elements, so that additions have to be
    atomic.
    """

    kernel: Loops
    opened: tuple[int, ...]
    lanes: int = 1
    atomic: bool = False

    @property
    def points(self) -> int:
        """The number of points."""
        return self.kernel.chunks * math.prod(self.kernel.sizes[d] for d in self.opened)


def ordered(kernel: Loops) -> bool:
    """Whether rows have to be kept separate: they are reduced, or something happens once for each row."""
    return any(i.op in ("reduce", "cumulate") for i in kernel.instructions) or any(s.once for s in kernel.stores)


def grid_of(kernel: Loops, limits: Limits, dialect: DeviceDialect) -> Grid:
    """The points of a kernel, and the number of work-items that share each."""
    kernel = collapsed(kernel)
    first = 1 if kernel.chunks > 1 else 0
    if ordered(kernel) or 0 in kernel.sizes[kernel.outer :]:
        # rows of a chunk are points, too, if each has its own results
        opened = tuple(_apart(kernel, range(1, kernel.outer)) if first else range(kernel.parallel))
        grid = Grid(kernel, opened)
        return replace(grid, lanes=_lanes(grid, limits, dialect.shared_launch))
    rank = len(kernel.sizes)
    if not first and _any_order(kernel):
        meeting = [s for s in kernel.stores if s.accumulate and s.address is None]
        free = [d for d in range(rank) if all(s.access.strides[d] or kernel.sizes[d] == 1 for s in meeting)]
        atomic = any(s.accumulate and s.address is not None for s in kernel.stores)
        if all(moves_apart(s.access, kernel.sizes, range(rank)) for s in meeting) and not (atomic and len(free) < rank):
            return Grid(replace(kernel, outer=rank, parallel=0), tuple(free), 1, atomic)
    free = _apart(kernel, range(first, rank))
    opened = tuple(free) if first else tuple(sorted({*free, *range(kernel.parallel)}))
    if opened == tuple(range(kernel.parallel)) and not first:  # rows of accumulated results may be shared
        grid = Grid(kernel, opened)
        return replace(grid, lanes=_lanes(grid, limits, dialect.shared_launch))
    return Grid(replace(kernel, outer=rank, parallel=0), opened)


def _any_order(kernel: Loops) -> bool:
    return all(s.order == "any" for s in kernel.stores)


def _apart(kernel: Loops, dimensions: range) -> list[int]:
    """Dimensions whose indices never reach the same element of any store, for all values of the other indices."""
    for store in kernel.stores:
        if store.address is not None or not moves_apart(store.access, kernel.sizes, dimensions):
            return []
    return [d for d in dimensions if all(s.access.strides[d] or kernel.sizes[d] == 1 for s in kernel.stores)]


# ------------------------------------------------------------------ dimensions
def collapsed(kernel: Loops) -> Loops:
    """The kernel with neighbouring dimensions merged if all accesses step through them as one."""
    if 0 in kernel.sizes:
        return kernel
    indexed = {i.attribute for i in kernel.instructions if i.op == "index"}
    fixed = 1 if kernel.chunks > 1 else 0
    dimension = len(kernel.sizes) - 2
    while dimension >= fixed:
        below = dimension + 1
        apart = below in (kernel.outer, kernel.parallel)
        as_one = all(a.strides[dimension] == a.strides[below] * kernel.sizes[below] for a in kernel.accesses)
        if not apart and as_one and not {dimension, below} & indexed:
            kernel = _merged(kernel, dimension)
            indexed = {d - (d > dimension) for d in indexed}
        dimension -= 1
    return kernel


def _merged(kernel: Loops, dimension: int) -> Loops:
    keep = [d for d in range(len(kernel.sizes)) if d != dimension]
    sizes = list(kernel.sizes)
    sizes[dimension + 1] *= sizes[dimension]
    merged = permuted(replace(kernel, sizes=tuple(sizes)), keep)
    return replace(
        merged,
        outer=kernel.outer - (dimension < kernel.outer),
        parallel=kernel.parallel - (dimension < kernel.parallel),
    )


def permuted(kernel: Loops, order: Sequence[int]) -> Loops:
    """The kernel with its dimensions reordered or removed; the caller ensures that the order of iterations is valid."""

    def moved(access: Access) -> Access:
        return replace(access, strides=tuple(access.strides[d] for d in order))

    def renamed(instruction: Instruction) -> Instruction:
        if instruction.op == "load":
            return replace(instruction, attribute=moved(instruction.attribute))
        if instruction.op == "index":
            return replace(instruction, attribute=list(order).index(instruction.attribute))
        return instruction

    return replace(
        kernel,
        sizes=tuple(kernel.sizes[d] for d in order),
        instructions=tuple(map(renamed, kernel.instructions)),
        stores=tuple(replace(s, access=moved(s.access)) for s in kernel.stores),
    )


# ------------------------------------------------------------------ rows
def shared_dimension(kernel: Loops) -> int:
    """The row dimension that work-items share: the longest one; of equally long ones, the innermost."""
    return max(range(kernel.outer, len(kernel.sizes)), key=lambda d: (kernel.sizes[d], d), default=-1)


def _lanes(grid: Grid, limits: Limits, shared_launch: bool) -> int:
    """The number of work-items that share a row. Groups of a launch that others share have one size."""
    kernel, shared = grid.kernel, shared_dimension(grid.kernel)
    if any(i.op == "cumulate" for i in kernel.instructions):
        return 1
    if shared < 0 or kernel.sizes[shared] < limits.least_row or not _is_shared(kernel, shared):
        return 1
    loads = [i.attribute for i in kernel.instructions if i.op == "load"]
    near = any(abs(a.strides[shared]) == 1 for a in loads) or not loads
    if not near and grid.points >= limits.units * limits.warp:
        return 1  # columns: accesses are coalesced without sharing
    few = grid.points < limits.units
    if not shared_launch and limits.group * limits.held < kernel.sizes[shared] <= longest_row(limits):
        large = replace(grid, lanes=limits.large_group)
        if held_row(large, limits) is not None:
            return limits.large_group
    if kernel.sizes[shared] > limits.warp_row or few or any(s.initialize for s in kernel.stores):
        return limits.group
    return limits.warp


def longest_row(limits: Limits) -> int:
    """The longest row that the work-items of a large group keep in registers; each of them has fewer than others."""
    return limits.large_group * min(limits.held, _LARGE_GROUP_HELD)


def _is_shared(kernel: Loops, dimension: int) -> bool:
    """Whether work-items can share a row: their writes in one sweep do not overlap."""
    once = {n for phase in row_schedule(kernel).row_stores for n in phase}
    rows = range(kernel.outer, len(kernel.sizes))
    return all(
        n in once
        or (s.address is None and s.access.strides[dimension] and moves_apart(s.access, kernel.sizes, rows))
        for n, s in enumerate(kernel.stores)
    )


@dataclass(frozen=True, slots=True)
class HeldRow:
    """The numbers of its part of a row that a work-item keeps over several sweeps: loaded elements, and values that one
    sweep stores for another. The work-item's loop has this many iterations."""

    turns: int
    loads: frozenset[int]
    parked: frozenset[int]


def held_row(grid: Grid, limits: Limits) -> HeldRow | None:
    """The numbers that work-items keep in registers of the rows that they share; None if not worth it or too large.

    The loops are unrolled, so that each element has its own register.
    """
    kernel, shared = grid.kernel, shared_dimension(grid.kernel)
    if grid.lanes == 1 or (shared == 0 and kernel.chunks > 1):
        return None
    if math.prod(kernel.sizes[kernel.outer :]) != kernel.sizes[shared]:
        return None
    turns, instructions = ceiling(kernel.sizes[shared], grid.lanes), kernel.instructions
    work = sum(operation_cost(i.op) for i in instructions)
    if not 0 < turns <= limits.held or turns * work > _MOST_UNROLLED:
        return None
    most = limits.held_bytes if grid.lanes <= limits.group else 4 * _LARGE_GROUP_HELD
    parked, loads = _held_from_to(kernel)
    kept: set[int] = set()
    used: Counter[int] = Counter()  # bytes of a work-item, between each sweep and the next
    for number, (first, last) in (*parked.items(), *loads.items()):
        nbytes = turns * max(instructions[number].dtype.itemsize, 4)
        if last > first and all(used[n] + nbytes <= most for n in range(first, last)):
            kept.add(number)
            used.update(dict.fromkeys(range(first, last), nbytes))
    return HeldRow(turns, frozenset(kept & loads.keys()), frozenset(kept & parked.keys())) if kept else None


def _held_from_to(kernel: Loops) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
    """The values that a sweep stores and the elements that sweeps load, with the first and last sweep of each."""
    parked: dict[int, tuple[int, int]] = {}
    loads: dict[int, tuple[int, int]] = {}
    for number, sweep in enumerate(row_schedule(kernel).passes):
        if sweep.empty:
            continue
        recalled = dict(sweep.recalls)
        parked |= {value: (number, number) for value, _ in sweep.keeps}
        for value in sweep.values:
            if value in recalled:
                parked[value] = (parked[value][0], number)
            elif kernel.instructions[value].op == "load":
                loads[value] = (loads.get(value, (number,))[0], number)
    return parked, {value: places for value, places in loads.items() if value not in parked}


class GridMapping(Mapping):
    """The iterations of a grid, for the work-items of a launch.

    row: the numbers that work-items keep of the rows that they share. shuffles: whether work-items of a warp can read
    each other's registers; else they combine results in the group's memory.
    """

    def __init__(
        self, grid: Grid, limits: Limits, items: int, shuffles: bool, row: HeldRow | None = None
    ) -> None:
        self.grid = grid
        self.limits = limits
        self.items = items
        self.shuffles = shuffles
        self.shared = shared_dimension(grid.kernel) if grid.lanes > 1 else -1
        self.row = row
        self.kept: set[int] = set()  # loads whose elements are already in registers

    @property
    def lane(self) -> Expression:
        """The index of a work-item among the work-items that share a point."""
        return ITEM if self.grid.lanes == self.items else ITEM % self.grid.lanes

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """Compute the point's number and its indices."""
        grid, code = self.grid, walk.code
        group = group_number(walk)
        if grid.lanes == self.items and self.items > 1:
            code.declare("point", group)
        else:
            place = ITEM if grid.lanes == 1 else ITEM // grid.lanes
            point = code.declare("point", group * (self.items // grid.lanes) + place)
            nest.enter_context(code.when(point < grid.points))
        open_point(walk, grid.kernel, grid.opened)
        for number in sorted(self.row.loads | self.row.parked) if self.row else ():
            code.allocate(self._held_row(walk, number))
        return grid.opened

    def _held_row(self, walk: Walk, number: int) -> Array:
        """An work-item's part of a row of values, in registers."""
        assert self.row is not None
        return Array(f"held{number}", walk.loops.instructions[number].dtype, "item", (self.row.turns,))

    def _held(self, walk: Walk, number: int) -> Element:
        """An work-item's value of the current iteration."""
        return self._held_row(walk, number).code(_turn(walk))

    def row_loop(self, walk: Walk, dimension: int, reductions: Reductions, nest: ExitStack) -> None:
        """A loop over the range, or over the work-item's part of it: every `lanes`-th element from the work-item's
        index."""
        code, index = walk.code, walk.index(dimension)
        start, stop = walk.bounds(dimension)
        if dimension != self.shared:
            nest.enter_context(code.loop(index, start, stop))
        elif self.row is None:
            nest.enter_context(code.loop(index, start + self.lane, stop, self.grid.lanes))
        else:
            turn, size, lanes = _turn(walk), self.grid.kernel.sizes[dimension], self.grid.lanes
            nest.enter_context(code.loop(turn, 0, self.row.turns, unrolled=True))
            code.declare(index.name, self.lane + turn * lanes, index.dtype)
            if size % lanes:  # the last iteration may have no element
                nest.enter_context(code.when(index < size))

    def held(self, walk: Walk, number: int, value: Expression) -> Expression | None:
        """Load an element; the first sweep that loads it keeps it in a register."""
        if not self.row or number not in self.row.loads:
            return None
        if number not in self.kept:
            self.kept.add(number)
            walk.code.write(self._held(walk, number), value)
        return self._held(walk, number)

    def park(self, walk: Walk, number: int, store: Store, value: Expression) -> None:
        """Store a value in a register."""
        if self.row and number in self.row.parked:
            walk.code.write(self._held(walk, number), value)
        else:
            super().park(walk, number, store, value)

    def parked(self, walk: Walk, number: int, store: Store) -> Expression:
        """Load a value from a register."""
        if self.row and number in self.row.parked:
            return self._held(walk, number)
        return super().parked(walk, number, store)

    def combine_rows(self, walk: Walk, number: int) -> None:
        """Combine the work-items' parts."""
        if self.grid.lanes > 1:
            result, reducer = walk.result(number), walk.loops.instructions[number].attribute
            combine_group(
                walk.code, result, reducer, self.grid.lanes, self.limits.warp, self.shuffles, self.group_array(result)
            )

    def group_array(self, register: Register) -> Array:
        """The group's memory in which work-items exchange the values of a register."""
        return Array(f"group_{register.name}", register.dtype, "group", (self.grid.lanes,))

    def accumulate(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Accumulate, atomically if points may write the same element."""
        if not self.grid.atomic or store.address is None:
            walk.accumulate(store, element, value)
            return
        assert store.accumulate is not None
        walk.code.add(AtomicUpdate(store.accumulate, element.array, *element.position, widened(value)))

    def initialized(self, walk: Walk) -> None:
        """Make a store visible to the group's work-items."""
        if self.grid.lanes == self.items and self.items > 1:
            walk.code.add(Barrier())

    @contextmanager
    def once(self, walk: Walk) -> Generator[None]:
        """Let only the first of the work-items that share a row write."""
        if self.grid.lanes == 1:
            yield
            return
        with walk.code.when(self.lane.equals(0)):
            yield


def _turn(walk: Walk) -> Register:
    """The iteration of a work-item over its part of a row."""
    del walk
    return Register(np.dtype(np.int32), "turn")


def unsigned(position: np.dtype) -> np.dtype:
    """The dtype of numbers that indices are computed from by division, which is cheaper unsigned."""
    return np.dtype(f"u{position.name}")


def group_number(walk: Walk) -> Coordinate:
    """The number of the work-item's group."""
    return Coordinate(unsigned(walk.position), "group")


def combine_group(
    code: CodeWriter,
    register: Register,
    reducer: str,
    lanes: int,
    warp: int,
    shuffles: bool,
    shared: Array,
    apart: int = 1,
) -> None:
    """Reduce a register over all work-items that share a row; each of them then has the result.

    `lanes` work-items share a row, at most `warp` or all of a group. Their indices differ by `apart`.
    """
    width = Register(np.dtype(np.int32), "width")

    def combine(other: Expression) -> None:
        code.assign(register, combined(reducer, register.dtype, register, other))

    if not shuffles:
        _combine_in_memory(code, register, reducer, lanes, shared, apart)
        return
    with code.loop(width, warp * apart // 2, apart, 2, advance="divide"):
        combine(Shuffle(register.dtype, register, width, warp * apart))
    if lanes == warp:
        return
    with code.when((ITEM % warp).equals(0)):
        code.write(shared[ITEM // warp], register)
    code.add(Barrier())
    code.assign(register, shared[0])
    other = Register(np.dtype(np.int32), "other_warp")
    with code.loop(other, 1, lanes // warp):
        combine(shared[other])
    code.add(Barrier())


def _combine_in_memory(
    code: CodeWriter, register: Register, reducer: str, lanes: int, shared: Array, apart: int
) -> None:
    width, total = Register(np.dtype(np.int32), "width"), lanes * apart
    code.write(shared[ITEM], register)
    code.add(Barrier())
    with code.loop(width, total // 2, apart, 2, advance="divide"):
        with code.when(ITEM % total < width):
            code.write(shared[ITEM], combined(reducer, register.dtype, shared[ITEM], shared[ITEM + width]))
        code.add(Barrier())
    first = ITEM // total * total
    code.assign(register, shared[first + ITEM % apart if apart > 1 else first])
    code.add(Barrier())


def open_point(walk: Walk, kernel: Loops, opened: Sequence[int]) -> None:
    """Compute the indices of a point, and its chunk, from the number `point`."""
    names = [walk.index(dimension).name for dimension in opened]
    sizes = [kernel.sizes[dimension] for dimension in opened]
    if kernel.chunks > 1:
        names, sizes = ["chunk", *names], [kernel.chunks, *sizes]
    if names:
        walk.code.declare_digits(Register(unsigned(walk.position), "point"), sizes, names, walk.position)


def grid_step(grid: Grid, limits: Limits, dialect: DeviceDialect) -> LaunchStep:
    """A grid as one launch."""
    lanes = grid.lanes
    alone = lanes >= limits.group or (lanes > 1 and not dialect.shuffles)
    items = lanes if alone else limits.group
    kernel = grid.kernel
    mapping = GridMapping(grid, limits, items, dialect.shuffles, held_row(grid, limits))
    arrays = [
        mapping.group_array(Register(instruction.dtype, f"r{number}"))
        for number, instruction in enumerate(kernel.instructions)
        if instruction.op == "reduce" and lanes > 1 and (alone and (lanes > limits.warp or not dialect.shuffles))
    ]
    groups = grid.points if alone else ceiling(grid.points, items // lanes)
    how = {1: "items", limits.warp: "warps", limits.large_group: "large groups", limits.group: "groups"}[lanes]
    strategy = f"{'atomic ' if grid.atomic else ''}{'chunks by ' if kernel.chunks > 1 else ''}{how}"
    return loops_step(kernel, dialect, limits, mapping, strategy, groups, items, arrays)
