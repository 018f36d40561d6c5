"""Loops of several groups: groups that run at the same time and wait for one another take all steps in one launch.

Each launch that the host would queue is a phase: the groups loop over the work of its groups, then wait until all have
arrived at a barrier. Arrivals are counted in the device's memory. The count grows with every barrier and may wrap
around, since no group is more than one barrier ahead of another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from rlx.backends.c.types import memory_type
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.loop_writer import BYTE, LoopWriter
from rlx.backends.gpu.mapping import steps_of
from rlx.backends.gpu.steps import Step, cleared, step_of
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.program import host_reason
from rlx.ir.kernels import Branch, Buffer, Contract, Kernel, Library, Loops, Plan, RowTiles, Scan, While, nested_plans

__all__ = ["LoopOfGroups", "NotTogetherError", "steps_together"]

_UINT32 = np.dtype(np.uint32)
_MOST_ARRAYS = 240  # 16 bytes each, of the 4096 that every CUDA launch can take
_OF_PRODUCTS = 16  # iterations of products in the time of one that moves values: some 12 bytes against two operations
_AT_ONCE = 2  # groups of a multiprocessor: without a bound, compilers spill registers to run more
_DECLARED = re.compile(r"(?P<kind>\w+) (?P<name>\w+)(?P<sizes>(\[[\d +]+\])+);")


class NotTogetherError(Exception):
    """Groups do not share the steps of a loop; the message gives the reason."""


def steps_together(kernel: Scan | While, limits: Limits, dialect: DeviceDialect) -> list[Step]:
    """The launches of a loop that groups share: the counter's start, and the loop. Raises NotTogetherError."""
    if not limits.together:
        raise NotTogetherError("the device does not guarantee that groups run at the same time")
    if sum(map(_work, nested_plans(kernel))) > limits.together_work:
        raise NotTogetherError("a step takes longer than its launches")
    if not dialect.shuffles:  # groups share rows that warps would share
        limits = replace(limits, warp=limits.group)
    counter = Buffer(_UINT32, 1, name="arrivals")
    writer = LoopOfGroups(kernel, limits, dialect, counter)
    with dialect.turns("group_turn"):
        writer.kernel(kernel)
    if not _is_worth_it(kernel, writer.phases, limits):
        raise NotTogetherError("its launches cost less than barriers")
    if len(writer.names) > _MOST_ARRAYS:
        raise NotTogetherError("it has more arrays than a launch takes")
    if sum(writer.group_bytes.values()) > limits.group_bytes:
        raise NotTogetherError("its steps need more shared memory than a group has")
    label = kernel.label or "loop"
    parameters = [Parameter(name, BYTE, True) for name in writer.names.values()]
    body = [*writer.declarations, *writer.head(), *writer.lines.text]
    groups = min(limits.together, writer.most_groups)
    loop = step_of(
        label, "loop of groups", dialect, parameters, [*writer.names], body, groups, limits.group, roomy=_AT_ONCE
    )
    barriers = round(_rounds(kernel, writer.phases).launches)
    return [cleared(label, counter, limits, dialect), replace(loop, together=True, barriers=barriers)]


# ------------------------------------------------------------------ costs
def _work(plan: Plan) -> float:
    """Iterations of a plan's kernels, weighted as iterations that move values; loops count once."""
    total = 0.0
    for kernel in plan.kernels:
        match kernel:
            case Loops():
                total += math.prod(kernel.sizes)
            case Contract():
                total += kernel.batches * kernel.rows * kernel.columns * kernel.depth / _OF_PRODUCTS
            case RowTiles():
                total += _work(replace(plan, kernels=kernel.kernels))
        total += sum(map(_work, nested_plans(kernel)))
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


# ------------------------------------------------------------------ statements
@dataclass(frozen=True, slots=True)
class _Touched:
    """A range of bytes of an array, and whether it is written."""

    array: str
    first: int
    stop: int
    written: bool

    def meets(self, other: _Touched) -> bool:
        """Whether accesses of the two ranges have to be ordered."""
        apart = self.array != other.array or self.stop <= other.first or other.stop <= self.first
        return (self.written or other.written) and not apart


class LoopOfGroups(LoopWriter):
    """The statements of a kernel that many groups run. phases: of a kernel; most_groups: the most groups of a phase.

    There is a barrier between two phases if one of them touches memory that the other one writes.
    """

    def __init__(self, kernel: Kernel, limits: Limits, dialect: DeviceDialect, counter: Buffer) -> None:
        super().__init__(kernel, limits, dialect)
        self.counter = self.array(counter)
        self.phases: dict[Kernel, int] = {}
        self.most_groups = 1
        self.group_bytes: dict[str, int] = {}  # by declaration
        self._declared: dict[str, str] = {}  # name -> declaration
        self._touched: list[_Touched] = []  # since the last barrier

    @property
    def declarations(self) -> list[str]:
        """A barrier of the group's memory."""
        return [f"{self.dialect.group_space} {declaration}" for declaration in self.group_bytes]

    def head(self) -> list[str]:
        """Declare an item's barrier state: the number of arrivals that it has to wait for."""
        return [f"uint32_t awaited = 0, groups = {self.dialect.group_count()};"]

    def item(self) -> tuple[str, str]:
        """The item's index among all groups, and the number of items."""
        dialect, group = self.dialect, self.limits.group
        number = f"(int64_t){dialect.launched_group()} * {group} + {dialect.number_in_group()}"
        return number, f"(int64_t)groups * {group}"

    def barrier(self) -> None:
        """A barrier of all groups: the first item of each group counts its arrival and watches the count."""
        dialect, lines = self.dialect, self.lines
        self._touched.clear()
        if lines.text and lines.text[-1].strip() == dialect.barrier():  # the end of another barrier
            return
        pointer = f"({dialect.global_space} uint32_t *){self.counter}".replace("( ", "(")
        lines.add(dialect.barrier())
        lines.add("awaited += groups;")
        with lines.block(dialect.condition(f"{dialect.number_in_group()} == 0")):
            lines.add(dialect.fence(), dialect.atomic("add", _UINT32, pointer, "1u"))
            lines.add(f"while ((int32_t)({dialect.watched(pointer)} - awaited) < 0) {{ }}", dialect.fence())
        lines.add(dialect.barrier())

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

    def _phase(self, step: Step) -> None:
        """A launch: groups loop over the work of its groups."""
        if step.items != self.limits.group:
            raise NotTogetherError(f"{step.strategy} needs groups of {step.items}")
        self.most_groups = max(self.most_groups, step.groups)
        dialect, touched = self.dialect, [*self._extents(step)]
        if any(one.meets(other) for one in touched for other in self._touched):
            self.barrier()
        self._touched += touched
        first = dialect.launched_group()
        with self.lines.block(
            f"for (uint32_t group_turn = {first}; group_turn < {step.groups}u; group_turn += groups) {{"
        ):
            for parameter, buffer in zip(step.parameters, step.arrays, strict=True):
                constant = "" if parameter.written else "const "
                kind = f"{dialect.global_space} {constant}{memory_type(parameter.dtype)} *".lstrip()
                self.lines.add(f"{kind}{parameter.name} = ({kind}){self._pointer_of(buffer)};")
            body = [*self._without_declarations(step)]
            self.lines.add(*body)
            if len(body) < len(step.body):  # the group's memory is reused
                self.lines.add(dialect.barrier())

    def _pointer_of(self, buffer: Buffer) -> str:
        """The address of a buffer; a buffer that is not in a plan belongs to the kernel."""
        return self.pointers.get(buffer) or self.array(buffer)

    def _extents(self, step: Step) -> Iterator[_Touched]:
        """The memory that a launch touches."""
        for parameter, buffer in zip(step.parameters, step.arrays, strict=True):
            base, _, start = self._pointer_of(buffer).strip("()").partition(" + ")
            first = int(start) if start.isdecimal() else 0
            name = base if start.isdecimal() else self._pointer_of(buffer)
            yield _Touched(name, first, first + buffer.nbytes, parameter.written)

    def _without_declarations(self, step: Step) -> Iterator[str]:
        """A body without the declarations of group memory, which the kernel declares; phases may share them."""
        space, renamed = f"{self.dialect.group_space} ", dict[str, str]()
        declared = [line for line in step.body if line.startswith(space)]
        for line in declared:
            found = _DECLARED.fullmatch(line.removeprefix(space))
            assert found is not None, line
            name = next(
                name for name in _names(found["name"])
                if self._declared.get(name, found["kind"] + found["sizes"]) == found["kind"] + found["sizes"]
            )
            self._declared[name] = found["kind"] + found["sizes"]
            self.group_bytes[f"{found['kind']} {name}{found['sizes']};"] = _bytes_of(found["kind"], found["sizes"])
            renamed[found["name"]] = name
        for line in step.body:
            if line not in declared:
                yield re.sub(r"\w+", lambda word: renamed.get(word[0], word[0]), line)


def _names(name: str) -> Iterator[str]:
    """The name, or a variant if it is taken."""
    yield name
    yield from (f"{name}_{number}" for number in count(2))


def _bytes_of(kind: str, sizes: str) -> int:
    """Bytes of an array by its declaration."""
    bits = re.fullmatch(r"u?int(\d+)_t", kind)
    each = int(bits[1]) // 8 if bits else {"bool": 1, "float": 4, "int": 4, "double": 8}[kind]
    counts = (sum(map(int, size.split("+"))) for size in re.findall(r"\[([^\]]+)\]", sizes))
    return each * math.prod(counts)
