"""Loops on the device: where a step is work for one group, that group runs all steps, in one launch.

The nests of a body run one after the other with barriers between them; carries change places as pointers. Everything
that decides (a condition, a branch's number) is read by all items after a barrier, so that they go the same way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from rlx.backends.c.types import memory_type
from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.grid import GridMapping, grid_of, open_point
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.products import is_mixed
from rlx.backends.gpu.steps import Step, is_wide, step_of
from rlx.backends.loops.decompose import contract_as_loops
from rlx.backends.loops.dialect import Parameter
from rlx.backends.loops.walk import Lines, Walk, kernel_lines, kernel_parameters
from rlx.ir.kernels import (
    Branch,
    Buffer,
    Contract,
    Kernel,
    Loops,
    Plan,
    RowTiles,
    Scan,
    While,
    constants_of,
    nested_plans,
)

__all__ = ["loop_step"]

_BYTE = np.dtype(np.uint8)


def loop_step(kernel: Scan | While, limits: Limits, dialect: DeviceDialect) -> Step | None:
    """The launch of a loop; None where a step is too much for one group, or needs the host."""
    work = sum(_work(plan, dialect) for plan in nested_plans(kernel))
    if work > limits.loop_work:
        return None
    writer = _Writer(kernel, limits, dialect)
    writer.kernel(kernel)
    parameters = [Parameter(name, _BYTE, True) for name in writer.names.values()]
    shared = [dialect.group_array(name, dtype, limits.group) for name, dtype in writer.shared.items()]
    body = [*shared, *writer.lines.text]
    return step_of(kernel.label or "loop", "loop", dialect, parameters, [*writer.names], body, 1, limits.group)


def _work(plan: Plan, dialect: DeviceDialect) -> float:
    """Iterations of a step; infinitely many where the host is needed."""
    total = 0.0
    for kernel in plan.kernels:
        match kernel:
            case Loops() if dialect.spells(kernel):
                total += math.prod(kernel.sizes)
            case Contract() if not is_mixed(kernel):
                total += kernel.batches * kernel.rows * kernel.columns * kernel.depth
            case RowTiles():
                total += _work(replace(plan, kernels=kernel.kernels), dialect)
            case Scan() | While() | Branch():
                total += sum(_work(inner, dialect) for inner in nested_plans(kernel))
            case _:
                return math.inf
    return total


class _Writer:
    """The statements of a kernel that one group runs; `names` are the arrays that it takes."""

    def __init__(self, kernel: Kernel, limits: Limits, dialect: DeviceDialect) -> None:
        self.limits = limits
        self.dialect = dialect
        self.lines = Lines(dialect)
        self.shared: dict[str, np.dtype] = {}  # arrays of the group's memory
        constants = [b for plan in nested_plans(kernel) for b in constants_of(plan)]
        self.names: dict[Buffer, str] = {}
        for buffer in (*kernel.reads, *kernel.writes, *constants):
            self.array(buffer)
        self.pointers: dict[Buffer, str] = dict(self.names)  # where each buffer begins, in bytes
        self._count = 0

    def array(self, buffer: Buffer) -> str:
        """The name of an array that the kernel takes."""
        return self.names.setdefault(buffer, f"m{len(self.names)}")

    def scratch(self, nbytes: int) -> str:
        """Memory of the kernel's own."""
        return self.array(Buffer(_BYTE, max(nbytes, 1)))

    def new(self, name: str) -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{name}{self._count}"

    def pointer(self, expression: str) -> str:
        """A variable that holds where bytes begin."""
        name = self.new("p")
        self.lines.add(f"{self.dialect.global_space} uint8_t *{name} = {expression};".lstrip())
        return name

    def barrier(self) -> None:
        """What was written is seen by all."""
        self.lines.add(self.dialect.barrier())

    def copy(self, target: str, source: str, nbytes: int) -> None:
        """Bytes, by all items."""
        item = self.dialect.number_in_group()
        self.lines.add(
            f"for (int64_t i = {item}; i < {nbytes}; i += {self.limits.group}) {target}[i] = {source}[i];"
        )

    # ------------------------------------------------------------------ plans
    def plan(self, plan: Plan, given: Mapping[Buffer, str]) -> None:
        """The kernels of a plan, where its inputs and outputs are."""
        before = self.pointers
        self.pointers = {**before, **given}
        if plan.arena:
            arena = self.scratch(plan.arena)
            self.pointers |= {b: f"({arena} + {at})" for b, at in plan.offsets.items()}
        for kernel in plan.kernels:
            self.kernel(kernel)
        self.pointers = before

    def kernel(self, kernel: Kernel) -> None:
        """The statements of a kernel, and a barrier."""
        match kernel:
            case Loops():
                self.nest(kernel)
            case Contract():
                self.nest(contract_as_loops(kernel))
            case RowTiles():
                self.pointers |= {b: self.scratch(b.nbytes) for b in kernel.local}
                for inner in kernel.kernels:
                    self.kernel(inner)
            case Scan():
                self.scan(kernel)
            case While():
                self.while_loop(kernel)
            case Branch():
                self.branch(kernel)
            case _:
                raise AssertionError(f"{type(kernel).__name__} is the host's")
        self.barrier()

    def nest(self, kernel: Loops) -> None:
        """A nest: its points are shared, or its rows."""
        grid = grid_of(kernel, self.limits, self.dialect)
        reduces = {f"r{n}": i.dtype for n, i in enumerate(grid.kernel.instructions) if i.op == "reduce"}
        fits = all(self.shared.get(name, dtype) == dtype for name, dtype in reduces.items())
        alone = grid.lanes == 1 or grid.points >= self.limits.group or not fits
        grid = replace(grid, lanes=1 if alone else self.limits.group)
        if not alone:
            self.shared |= reduces
        with self.lines.block("{"):
            arrays = dict.fromkeys(kernel.operands)
            for parameter, buffer in zip(kernel_parameters(kernel), arrays, strict=True):
                constant = "" if parameter.written else "const "
                kind = f"{self.dialect.global_space} {constant}{memory_type(parameter.dtype)} *".lstrip()
                self.lines.add(f"{kind}{parameter.name} = ({kind}){self.pointers[buffer]};")
            with self.dialect.positions(is_wide(kernel, self.limits)):
                mapping = _OneGroup(self.dialect, grid, self.limits, self.limits.group)
                self.lines.add(*kernel_lines(grid.kernel, self.dialect, mapping))

    # ------------------------------------------------------------------ loops
    def _carries(self, kernel: Scan | While) -> tuple[list[str], list[str]]:
        current, following = [], []
        for number, (initial, final) in enumerate(zip(kernel.initial, kernel.final, strict=True)):
            target, source = self.pointers[final], self.pointers[initial]
            if initial is not final:
                self.copy(target, source, final.nbytes)
            current.append(self.pointer(target))
            following.append(
                current[-1] if number in kernel.in_place else self.pointer(self.scratch(final.nbytes))
            )
        self.barrier()
        return current, following

    def _exchange(self, current: Sequence[str], following: Sequence[str]) -> None:
        for now, after in zip(current, following, strict=True):
            if now != after:
                kind = f"{self.dialect.global_space} uint8_t *".lstrip()
                self.lines.add(f"{{ {kind}held = {now}; {now} = {after}; {after} = held; }}")

    def _finish(self, kernel: Scan | While, current: Sequence[str], following: Sequence[str]) -> None:
        for buffer, now, after in zip(kernel.final, current, following, strict=True):
            if now != after:
                with self.lines.block(self.dialect.condition(f"{now} != {self.pointers[buffer]}")):
                    self.copy(self.pointers[buffer], now, buffer.nbytes)

    def scan(self, kernel: Scan) -> None:
        """A loop over slices."""
        body, constants, carries = kernel.body, len(kernel.constants), len(kernel.initial)
        current, following = self._carries(kernel)
        step = self.new("step")
        first, test, move = (kernel.length - 1, f"{step} >= 0", f"--{step}")
        if not kernel.reverse:
            first, test, move = (0, f"{step} < {kernel.length}", f"++{step}")
        with self.lines.block(f"for (int64_t {step} = {first}; {test}; {move}) {{"):
            given = [*(self.pointers[b] for b in kernel.constants), *current]
            slices = [(body.inputs[constants + carries :], kernel.xs), (body.outputs[carries:], kernel.ys)]
            xs, ys = (
                [f"({self.pointers[whole]} + {step} * {part.nbytes})" for part, whole in zip(*pair, strict=True)]
                for pair in slices
            )
            places = (*zip(body.inputs, [*given, *xs], strict=True), *zip(body.outputs, [*following, *ys], strict=True))
            self.plan(body, dict(places))
            self._exchange(current, following)
        self._finish(kernel, current, following)

    def while_loop(self, kernel: While) -> None:
        """A loop that its condition ends."""
        current, following = self._carries(kernel)
        flag = self.scratch(1)
        asked, stepped = (
            [self.pointers[b] for b in side] for side in (kernel.condition_constants, kernel.body_constants)
        )
        with self.lines.block(self.dialect.endless_loop()):
            given = dict(zip(kernel.condition.inputs, [*asked, *current], strict=True))
            self.plan(kernel.condition, given | {kernel.condition.outputs[0]: flag})
            goes_on = self.new("goes_on")
            self.lines.add(f"const bool {goes_on} = {flag}[0] != 0;")
            self.barrier()
            self.lines.add(f"if (!{goes_on}) break;")
            given = dict(zip(kernel.body.inputs, [*stepped, *current], strict=True))
            self.plan(kernel.body, given | dict(zip(kernel.body.outputs, following, strict=True)))
            self._exchange(current, following)
        self._finish(kernel, current, following)

    def branch(self, kernel: Branch) -> None:
        """The branch of a number; the first one for numbers below 0, the last one for those beyond."""
        places = [self.pointers[b] for b in (*kernel.inputs, *kernel.outputs)]
        which, kind = self.new("which"), f"{self.dialect.global_space} const int32_t *".lstrip()
        self.lines.add(f"const int {which} = *({kind}){self.pointers[kernel.index]};")
        with ExitStack() as nest:
            for number, plan in enumerate(kernel.branches):
                last = number == len(kernel.branches) - 1
                if not last:
                    nest_block = self.lines.block(self.dialect.condition(f"{which} <= {number}"))
                else:
                    nest_block = self.lines.block("{")
                with nest_block:
                    self.plan(plan, dict(zip((*plan.inputs, *plan.outputs), places, strict=True)))
                if not last:
                    nest.enter_context(self.lines.block(self.dialect.otherwise()))


class _OneGroup(GridMapping):
    """The only group takes all points: an item every so many of them, or all items each row."""

    def enter(self, walk: Walk, nest: ExitStack) -> Collection[int]:
        """A loop over the points."""
        grid, dialect = self.grid, self.dialect
        item = dialect.number_in_group()
        first, step = ("0", 1) if grid.lanes > 1 else (item, self.items)
        kind = dialect.number_type
        nest.enter_context(
            walk.lines.block(f"for ({kind} point = {first}; point < {grid.points}; point += {step}) {{")
        )
        open_point(walk, dialect, grid.kernel, grid.opened)
        return grid.opened

