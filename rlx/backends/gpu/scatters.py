"""Scatters that overwrite: if several iterations write an element, the last one wins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import Grid, GridMapping, ordered, unsigned
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, ceiling, cleared, loops_step
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.walk import Walk
from rlx.code.tree import Apply, Array, AtomicUpdate, Element, Expression, Register
from rlx.ir.kernels import Buffer, Loops, Store

__all__ = ["last_write_steps"]

_INT32 = np.dtype(np.int32)


def last_write_steps(kernel: Loops, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep] | None:
    """Launches that find the last iteration that writes each element, and let it write; None for other kernels.

    A number for each written element starts at 0. Every iteration raises its element's number to its own number,
    counted from 1; then the iterations that find their own number write.
    """
    owned = [s for s in kernel.stores if _is_owned(s)]
    others = [s for s in kernel.stores if not _is_owned(s)]
    unfit = kernel.chunks > 1 or ordered(kernel) or any(s.order != "any" or s.accumulate for s in others)
    if not owned or unfit or not 1 < math.prod(kernel.sizes) < (1 << 31) - 1:
        return None
    owners = {store: _owners(kernel, store, n) for n, store in enumerate(owned)}
    flat = replace(kernel, outer=len(kernel.sizes), parallel=0)
    grid = Grid(flat, tuple(range(len(kernel.sizes))))
    groups = ceiling(grid.points, limits.group)

    def pass_of(last: bool) -> LaunchStep:
        arrays = {s: Array(b.name, b.dtype) for s, b in owners.items()}
        mapping = _Owned(grid, limits, arrays, dialect.shuffles, last)
        how = "last writes" if last else "owners"
        scratch = [(Parameter(b.name, _INT32, True), b) for b in owners.values()]
        return loops_step(flat, dialect, limits, mapping, how, groups, limits.group, (), scratch)

    starts = [cleared(kernel.label, buffer, limits, dialect) for buffer in owners.values()]
    return [*starts, pass_of(False), pass_of(True)]


def _is_owned(store: Store) -> bool:
    """Whether the iteration that writes last is known only at run time."""
    return store.order == "sequential" and store.address is not None and store.accumulate is None


def _owners(kernel: Loops, store: Store, number: int) -> Buffer:
    """The number of the last iteration that writes each element."""
    target = kernel.operands[store.access.operand]
    return Buffer(_INT32, target.real_size, name=f"owners{number}")


class _Owned(GridMapping):
    """Iterations that raise their element's number, or write if it is their own."""

    def __init__(
        self, grid: Grid, limits: Limits, owners: Mapping[Store, Array], shuffles: bool, last: bool
    ) -> None:
        super().__init__(grid, limits, limits.group, shuffles)
        self.owners = owners
        self.last = last

    def overwrite(self, walk: Walk, store: Store, element: Element, value: Expression) -> None:
        """Compute the point's indices; the number of an iteration is its point's number."""
        owners = self.owners.get(store)
        number = Apply(_INT32, "cast", (Register(unsigned(walk.position), "point") + 1,))
        if not self.last and owners:
            walk.code.add(AtomicUpdate("max", owners, *element.position, number))
        elif self.last and owners:
            with walk.code.when(owners[element.position].equals(number)):
                super().overwrite(walk, store, element, value)
        elif self.last:
            super().overwrite(walk, store, element, value)
