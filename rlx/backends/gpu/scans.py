"""Running results along rows: a group scans a tile of a row at a time, and carries its result to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import Grid, GridMapping
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import Step, loops_step, moves_apart
from rlx.backends.loops.dialect import Reduction
from rlx.backends.loops.walk import Walk
from rlx.ir.kernels import Loops, Store
from rlx.ir.scalar import neutral

__all__ = ["scan_step"]


def scan_step(grid: Grid, limits: Limits, dialect: DeviceDialect) -> Step | None:
    """The launch of a kernel with running results; None where a point takes its row alone."""
    kernel = grid.kernel
    if not any(i.op == "cumulate" for i in kernel.instructions) or kernel.outer != len(kernel.sizes) - 1:
        return None
    far = all(abs(s.access.strides[-1]) != 1 for s in kernel.stores)
    if kernel.sizes[-1] < limits.least_row or (far and grid.points >= limits.units * limits.warp):
        return None
    if not _each_its_own(kernel) or kernel.chunks > 1 or kernel.outer != kernel.parallel:
        return None
    grid = replace(grid, lanes=limits.group)
    arrays = [
        dialect.group_array(f"r{number}", instruction.dtype, limits.group)
        for number, instruction in enumerate(kernel.instructions)
        if instruction.op in ("reduce", "cumulate")
    ]
    mapping = _Tiles(dialect, grid, limits, limits.group)
    return loops_step(kernel, dialect, limits, mapping, "scans", grid.points, limits.group, arrays)


def _each_its_own(kernel: Loops) -> bool:
    """Whether each element of a row is written by its own iteration."""
    rows = range(kernel.outer, len(kernel.sizes))
    return all(
        s.once or (s.address is None and s.access.strides[-1] and moves_apart(s.access, kernel.sizes, rows))
        for s in kernel.stores
    )


class _Tiles(GridMapping):
    """A group takes a tile at a time. Items beyond the row's end stay for the barriers, on its last element."""

    def row_dimension(self, walk: Walk, dimension: int, reductions: Sequence[Reduction]) -> tuple[str, ...]:
        """Tiles of the row, the same number of them for every item."""
        start, stop = walk.bounds(dimension)
        kind, name = self.dialect.position_type, walk.index(dimension)
        extent = self.dialect.extent
        return (
            f"for ({kind} tile = {start}; tile < {stop}; tile += {self.items}) {{",
            f"{extent}const bool inside = tile + {self.lane} < {stop};",
            f"{extent}{self.dialect.fixed(name, f'inside ? tile + {self.lane} : {stop} - 1')}",
        )

    def reduced(self, walk: Walk, number: int, value: str) -> None:
        """Where there is an element."""
        walk.combine(number, self._inside(walk, number, value))

    def _inside(self, walk: Walk, number: int, value: str) -> str:
        reduction = walk.reduction(number)
        start = self.dialect.constant(reduction.dtype, neutral(reduction.reducer, reduction.dtype))
        return f"(inside ? {value} : {start})"

    def cumulated(self, walk: Walk, number: int, value: str) -> str:
        """The tile's running results, combined with what was before the tile."""
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
        """Where there is an element."""
        if store.once or not store.access.strides[-1]:
            super().overwrite(walk, store, array, place, value)
            return
        with walk.lines.block(self.dialect.condition("inside")):
            super().overwrite(walk, store, array, place, value)

    def accumulate(self, walk: Walk, store: Store, place: str, value: str) -> None:
        """Where there is an element."""
        if store.once:
            super().accumulate(walk, store, place, value)
            return
        with walk.lines.block(self.dialect.condition("inside")):
            super().accumulate(walk, store, place, value)
