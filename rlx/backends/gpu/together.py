"""Loops of several groups: groups that run at the same time and wait for one another take all steps in one launch.

Each launch that the host would queue is a phase: the groups loop over the work of its groups, then wait until all have
arrived at a barrier. Arrivals are counted in the device's memory. The count grows with every barrier and may wrap
around, since no group is more than one barrier ahead of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import ITEM
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.loop_writer import Address, LoopWriter
from rlx.backends.gpu.mapping import steps_of
from rlx.backends.gpu.steps import LaunchStep, cleared
from rlx.backends.loops.program import host_reason
from rlx.code.binding import Places
from rlx.code.checking import group_bytes
from rlx.code.tree import Apply, Barrier, Coordinate, Expression, Linear, Number, Register
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Contract,
    Kernel,
    Library,
    Loops,
    Plan,
    RowTiles,
    Scan,
    While,
    members,
    nested_plans,
)

__all__ = ["LoopOfGroups", "NotTogetherError", "iterations", "steps_together"]

_UINT32, _INT64 = np.dtype(np.uint32), np.dtype(np.int64)
_GROUPS = Coordinate(_UINT32, "groups")
_MOST_ARRAYS = 240  # 16 bytes each, of the 4096 that every CUDA launch can take


class NotTogetherError(Exception):
    """Groups do not share the steps of a loop; the message gives the reason."""


def steps_together(kernel: Scan | While, limits: Limits, dialect: DeviceDialect) -> list[LaunchStep]:
    """The launches of a loop that groups share: the counter's start, and the loop. Raises NotTogetherError."""
    if not limits.together:
        raise NotTogetherError("the device does not guarantee that groups run at the same time")
    if sum(iterations(plan, 1 / limits.product_rate) for plan in nested_plans(kernel)) > limits.together_work:
        raise NotTogetherError("a step takes longer than its launches")
    if not dialect.shuffles:  # groups share rows that warps would share
        limits = replace(limits, warp=limits.group)
    counter = Buffer(_UINT32, 1, name="arrivals")
    writer = LoopOfGroups(kernel, limits, dialect, counter)
    with dialect.sharing_launch():
        writer.kernel(kernel)
    if not _is_worth_it(kernel, writer.phases, limits):
        raise NotTogetherError("its launches cost less than barriers")
    if len(writer.names) > _MOST_ARRAYS:
        raise NotTogetherError("it has more arrays than a launch takes")
    label = kernel.label or "loop"
    loop = writer.step(label, "loop of groups", min(limits.together, writer.most_groups), limits.together_resident)
    if group_bytes(loop.code) > limits.group_bytes:
        raise NotTogetherError("its steps need more shared memory than a group has")
    return [cleared(label, counter, limits, dialect), replace(loop, together=True)]


# ------------------------------------------------------------------ costs
def iterations(plan: Plan, product: float, needs_host: Callable[[Kernel], bool] = lambda kernel: False) -> float:
    """Iterations of a plan's kernels, weighted for products; loops count once. Infinity if a kernel needs the host."""
    total = 0.0
    for kernel in chain.from_iterable(map(members, plan.kernels)):
        if needs_host(kernel):
            return math.inf
        if isinstance(kernel, Loops):
            total += math.prod(kernel.sizes)
        elif isinstance(kernel, Contract):
            total += product * kernel.batches * kernel.rows * kernel.columns * kernel.depth
        total += sum(iterations(inner, product, needs_host) for inner in nested_plans(kernel))
    return total


@dataclass(frozen=True, slots=True)
class _Rounds:
    """The launches that the host would queue, and the values that it would wait for. While loops count once."""

    launches: float = 0.0
    reads: float = 0.0

    def __add__(self, other: _Rounds) -> _Rounds:
        return _Rounds(self.launches + other.launches, self.reads + other.reads)

    def times(self, number: int) -> _Rounds:
        return _Rounds(self.launches * number, self.reads * number)


def _rounds(kernel: Kernel, phases: dict[Kernel, int]) -> _Rounds:
    match kernel:
        case Scan():
            return _rounds_of(kernel.body, phases).times(kernel.length)
        case While():
            return _rounds_of(kernel.condition, phases) + _rounds_of(kernel.body, phases) + _Rounds(reads=1)
        case Branch():
            found = [_rounds_of(plan, phases) for plan in kernel.branches]
            return _Rounds(max(f.launches for f in found), 1 + max(f.reads for f in found))
        case RowTiles() if kernel not in phases:
            return sum((_rounds(inner, phases) for inner in kernel.kernels), _Rounds())
    return _Rounds(phases[kernel])


def _rounds_of(plan: Plan, phases: dict[Kernel, int]) -> _Rounds:
    return sum((_rounds(kernel, phases) for kernel in plan.kernels), _Rounds())


def _is_worth_it(kernel: Scan | While, phases: dict[Kernel, int], limits: Limits) -> bool:
    """Whether barriers cost less than launches and waiting for values."""
    costs, rounds = limits.costs, _rounds(kernel, phases)
    recorded = not rounds.reads and rounds.launches <= limits.graph_launches
    launch = costs.recorded if recorded else costs.queued
    start = 0.0 if isinstance(kernel, While) else 2 * costs.queued  # the number of steps sharing it is unknown
    return rounds.launches * costs.barrier + start < rounds.launches * launch + rounds.reads * costs.read


# ------------------------------------------------------------------ code
@dataclass(frozen=True, slots=True)
class _Touched:
    """A range of bytes from an address on, and whether it is written."""

    address: Address
    nbytes: int
    written: bool


class LoopOfGroups(LoopWriter):
    """The code of a kernel that many groups run. phases: of a kernel; most_groups: the most groups of a phase.

    There is a barrier between two phases if one of them touches memory that the other one writes.
    """

    def __init__(self, kernel: Kernel, limits: Limits, dialect: DeviceDialect, counter: Buffer) -> None:
        super().__init__(kernel, limits, dialect)
        self.phases: dict[Kernel, int] = {}
        self.most_groups = 1
        self._arrivals = self.view("arrivals", self.parameter(counter), _UINT32, counter.nbytes)
        self._awaited = self.code.declare("awaited", Number(_UINT32, 0), changes=True)
        self._touched: list[_Touched] = []  # since the last barrier

    @property
    def items(self) -> tuple[Expression, Expression]:
        """The work-item's index among all groups, and the number of work-items."""
        group, groups = (Coordinate(_INT64, of) for of in ("group", "groups"))
        return group * self.limits.group + ITEM, groups * self.limits.group

    def barrier(self) -> None:
        """A barrier of all groups, if the code does not just come from one."""
        self._touched.clear()
        if not isinstance(next(reversed(self.code.block), None), Barrier):
            self.code.assign(self._awaited, Apply(_UINT32, "add", (self._awaited, _GROUPS)))
            self.code.add(Barrier("launch", self._arrivals, self._awaited))

    def settle(self) -> None:
        """A barrier, if memory was touched since the last one."""
        if self._touched:
            self.barrier()

    def work(self, kernel: Kernel) -> None:
        """The launches of a kernel as phases."""
        if isinstance(kernel, Library):
            raise NotTogetherError(f"{kernel.routine} needs separate launches")
        steps = steps_of(kernel, self.limits, self.dialect)
        if steps is None and isinstance(kernel, RowTiles):
            self.tiles(kernel)
            return
        if steps is None:
            raise NotTogetherError(host_reason(kernel, self.dialect) or f"{type(kernel).__name__} runs on the host")
        self.phases[kernel] = len(steps)
        for step in steps:
            self._phase(step)

    def _phase(self, step: LaunchStep) -> None:
        """A launch: groups loop over the work of its groups."""
        if step.items != self.limits.group:
            raise NotTogetherError(f"{step.strategy} needs groups of {step.items}")
        self.most_groups = max(self.most_groups, step.groups)
        touched = [
            _Touched(self.address(buffer), buffer.nbytes, parameter.written)
            for parameter, buffer in zip(step.parameters, step.arrays, strict=True)
        ]
        if any(self._meet(one, other) for one in touched for other in self._touched):
            self.barrier()
        self._touched += touched
        turn = Register(_UINT32, self.new("group_turn"))
        places: Places = {
            "group": lambda place: Apply(place.dtype, "cast", (turn,)),
            "groups": lambda place: Number(place.dtype, step.groups),
        }
        with self.code.loop(turn, Coordinate(_UINT32, "group"), step.groups, _GROUPS):
            self.bound_code(step.parameters, step.arrays, step.code, places)
            if group_bytes(step.code):  # the group's memory is reused
                self.code.add(Barrier())

    # ------------------------------------------------------------------ addresses
    def _meet(self, one: _Touched, other: _Touched) -> bool:
        """Whether accesses of two ranges have to be ordered."""
        if not (one.written or other.written):
            return False
        return self._overlap(one.address, one.nbytes, other.address, other.nbytes)

    def _overlap(self, left: Address, left_bytes: int, right: Address, right_bytes: int) -> bool:
        """Whether two ranges may have a byte in common."""
        if left.array == right.array:
            least, most = self._range(right.offset - left.offset)
            return least < left_bytes and most > -right_bytes
        carries = list(self.pointers)
        inner, outer = sorted((left.array.name, right.array.name), key=lambda n: n in carries and -carries.index(n) - 1)
        if inner not in self.pointers or self.pointers[inner] is self.pointers.get(outer):
            return False  # two arrays of the kernel, or the two places of a carry
        if inner == left.array.name:
            return any(
                self._overlap(at + left.offset, left_bytes, right, right_bytes) for at in self.pointers[inner]
            )
        return self._overlap(right, right_bytes, left, left_bytes)

    def _range(self, distance: Linear) -> tuple[int, int]:
        """The smallest and the largest distance, for all values of the loops' indices."""
        least = most = distance.offset
        for factor, term in distance.terms:
            assert isinstance(term, Register)  # addresses are sums of loops' indices
            ends = sorted(factor * end for end in self.ranges[term])
            least, most = least + ends[0], most + ends[1]
        return least, most
