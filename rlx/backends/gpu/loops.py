"""Loops on the device: if a step is work for one group, that group runs all steps in one launch.

The nests of a body run one after the other with barriers between them. Groups that wait for one another share larger
steps (`together.py`), if that is worthwhile; the host queues the other loops.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM, GridMapping, grid_of, open_point, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.loop_writer import LoopWriter
from rlx.backends.gpu.products import is_mixed
from rlx.backends.gpu.steps import LaunchStep, arrays_of, is_wide, position_dtype
from rlx.backends.gpu.together import NotTogetherError, iterations, steps_together
from rlx.backends.loops.decompose import contract_as_loops
from rlx.backends.loops.walk import Walk, kernel_code, kernel_parameters
from rlx.code.checking import group_bytes
from rlx.code.cost import loop_iterations
from rlx.code.tree import Allocate, Barrier, Expression, FreeLoop, Register, index, statements_in
from rlx.ir.kernels import Branch, Contract, Kernel, Loops, RowTiles, Scan, While, nested_plans

__all__ = ["host_loop_reason", "loop_steps"]


def loop_steps(kernel: Scan | While, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """The launches of a loop: of one group, or of groups that wait for one another; None if the host drives it."""
    alone = _loop_of_one_group(kernel, limits, dialect)
    if alone is not None:
        return [alone]
    try:
        return steps_together(kernel, limits, dialect)
    except NotTogetherError:
        return None


def host_loop_reason(kernel: Scan | While, limits: Limits, dialect: DeviceDialect) -> str | None:
    """The reason that the host queues the steps of a loop; None if it does not."""
    if _loop_of_one_group(kernel, limits, dialect) is not None:
        return None
    reason = ""
    try:
        steps_together(kernel, limits, dialect)
    except NotTogetherError as error:
        reason = str(error)
    return f"the host queues each step: {reason}" if reason else None


def _loop_of_one_group(kernel: Scan | While, limits: Limits, dialect: DeviceDialect) -> LaunchStep | None:
    """The launch of a loop; None if a step is too much for one group, or needs the host."""

    def needs_host(inner: Kernel) -> bool:
        match inner:
            case Loops():
                return not dialect.spells(inner)
            case Contract():
                return is_mixed(inner)
        return not isinstance(inner, (Scan, While, Branch))

    if sum(iterations(plan, 1.0, needs_host) for plan in nested_plans(kernel)) > limits.loop_work:
        return None
    writer = _OfOneGroup(kernel, limits, dialect)
    writer.kernel(kernel)
    step = writer.step(kernel.label or "loop", "loop", 1)
    return step if group_bytes(step.code) <= limits.group_bytes and _ends(step, limits) else None


def _ends(step: LaunchStep, limits: Limits) -> bool:
    """Whether the device lets a launch run all iterations of a loop."""
    if not limits.turns:
        return True
    bounded = not any(isinstance(s, FreeLoop) for s in statements_in(step.code))
    return bounded and loop_iterations(step.code, 1) <= limits.turns


class _OfOneGroup(LoopWriter):
    """The code of a kernel that one group runs."""

    @property
    def items(self) -> tuple[Expression, Expression]:
        """The work-item's index in the group, and the group's size."""
        return ITEM, index(self.limits.group)

    def barrier(self) -> None:
        """A barrier of the group."""
        self.code.add(Barrier())

    def settle(self) -> None:
        """Nothing to do: each nest ends with a barrier."""

    def work(self, kernel: Kernel) -> None:
        """The code of one nest or of several, each followed by a barrier."""
        match kernel:
            case Loops() | Contract():
                self.nest(kernel if isinstance(kernel, Loops) else contract_as_loops(kernel))
                self.barrier()
            case RowTiles():
                self.tiles(kernel)
            case _:
                raise AssertionError(f"{type(kernel).__name__} runs on the host")

    def nest(self, kernel: Loops) -> None:
        """A nest whose points or rows are shared by the work-items."""
        group, grid = self.limits.group, grid_of(kernel, self.limits, self.dialect)
        grid = replace(grid, lanes=1 if grid.lanes == 1 or grid.points >= group else group)
        mapping = _OneGroup(grid, self.limits, group, self.dialect.shuffles)
        reduced = [(n, i.dtype) for n, i in enumerate(grid.kernel.instructions) if i.op == "reduce" and grid.lanes > 1]
        arrays = [mapping.group_array(Register(dtype, f"r{number}")) for number, dtype in reduced]
        code = kernel_code(grid.kernel, mapping, position_dtype(is_wide(kernel, self.limits)))
        self.bound_code(kernel_parameters(kernel), arrays_of(kernel), (*map(Allocate, arrays), *code), {})


class _OneGroup(GridMapping):
    """The only group takes all points: each work-item some of them, or all work-items each row."""

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """A loop over the points."""
        grid, point = self.grid, Register(unsigned(walk.position), "point")
        first, step = (0, 1) if grid.lanes > 1 else (ITEM, self.items)
        nest.enter_context(walk.code.loop(point, first, grid.points, step))
        open_point(walk, grid.kernel, grid.opened)
        return grid.opened
