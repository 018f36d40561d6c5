"""Loops as statements of one kernel: a subclass decides which items run their steps.

Carries swap buffers by pointers. After a barrier all items read each value that decides control flow (a condition, a
branch's index), so that they take the same path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.loops.lines import Lines
from rlx.ir.kernels import Branch, Buffer, Kernel, Plan, RowTiles, Scan, While, constants_of, nested_plans

__all__ = ["BYTE", "LoopWriter"]

BYTE = np.dtype(np.uint8)
_WORDS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


class LoopWriter(ABC):
    """The statements of a loop's kernel; `names` are the arrays that it takes, as bytes."""

    def __init__(self, kernel: Kernel, limits: Limits, dialect: DeviceDialect) -> None:
        self.limits = limits
        self.dialect = dialect
        self.lines = Lines(dialect)
        constants = [b for plan in nested_plans(kernel) for b in constants_of(plan)]
        self.names: dict[Buffer, str] = {}
        for buffer in (*kernel.reads, *kernel.writes, *constants):
            self.array(buffer)
        self.pointers: dict[Buffer, str] = dict(self.names)  # the address of each buffer
        self._count = 0

    @abstractmethod
    def barrier(self) -> None:
        """A barrier: all items that run the loop wait for one another, and see each other's writes."""

    @abstractmethod
    def settle(self) -> None:
        """Make the writes so far visible to all items that run the loop."""

    @abstractmethod
    def item(self) -> tuple[str, str]:
        """The index of an item among all that run the loop, and the number of items."""

    @abstractmethod
    def work(self, kernel: Kernel) -> None:
        """The statements of a kernel without inner plans; its writes may be visible only after `settle`."""

    def array(self, buffer: Buffer) -> str:
        """The name of an array that the kernel takes."""
        return self.names.setdefault(buffer, f"m{len(self.names)}")

    def scratch(self, nbytes: int) -> str:
        """Allocate memory that belongs to the kernel."""
        return self.array(Buffer(BYTE, max(nbytes, 1)))

    def new(self, name: str) -> str:
        """A new name."""
        self._count += 1
        return f"{name}{self._count}"

    def pointer(self, expression: str) -> str:
        """Declare a variable for an address."""
        name = self.new("p")
        self.lines.add(f"{self.dialect.global_space} uint8_t *{name} = {expression};".lstrip())
        return name

    def copy(self, target: str, source: str, buffer: Buffer) -> None:
        """Declare a loop of all items over the elements of a buffer."""
        size = buffer.dtype.itemsize // (2 if buffer.dtype.kind == "c" else 1)
        space, (item, items) = self.dialect.global_space, self.item()
        kinds = [f"({space} {const}{_WORDS[size]} *)".replace("( ", "(") for const in ("", "const ")]
        move = f"({kinds[0]}{target})[i] = ({kinds[1]}{source})[i];"
        self.lines.add(f"for (int64_t i = {item}; i < {buffer.nbytes // size}; i += {items}) {move}")

    # ------------------------------------------------------------------ plans
    def plan(self, plan: Plan, given: Mapping[Buffer, str]) -> None:
        """The statements of a plan's kernels, given the addresses of its inputs and outputs."""
        before = self.pointers
        self.pointers = {**before, **given}
        if plan.arena:
            arena = self.scratch(plan.arena)
            self.pointers |= {b: f"({arena} + {at})" for b, at in plan.offsets.items()}
        for kernel in plan.kernels:
            self.kernel(kernel)
        self.settle()
        self.pointers = before

    def kernel(self, kernel: Kernel) -> None:
        """The statements of a kernel."""
        if not isinstance(kernel, (Scan, While, Branch)):
            self.work(kernel)
            return
        self.settle()
        match kernel:
            case Scan():
                self.scan(kernel)
            case While():
                self.while_loop(kernel)
            case Branch():
                self.branch(kernel)
        self.barrier()

    def tiles(self, kernel: RowTiles) -> None:
        """The kernels of row tiles, one after the other."""
        self.pointers |= {b: self.scratch(b.nbytes) for b in kernel.local}
        for inner in kernel.kernels:
            self.kernel(inner)

    # ------------------------------------------------------------------ loops
    def _carries(self, kernel: Scan | While) -> tuple[list[str], list[str]]:
        current, following = [], []
        for number, (initial, final) in enumerate(zip(kernel.initial, kernel.final, strict=True)):
            target, source = self.pointers[final], self.pointers[initial]
            if initial is not final:
                self.copy(target, source, final)
            current.append(self.pointer(target))
            following.append(
                current[-1] if number in kernel.in_place else self.pointer(self.scratch(final.nbytes))
            )
        if any(initial is not final for initial, final in zip(kernel.initial, kernel.final, strict=True)):
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
                    self.copy(self.pointers[buffer], now, buffer)

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
        """A while loop."""
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
            if not kernel.body.kernels:  # a body with kernels has barriers before the next condition is written
                self.barrier()
            self.lines.add(f"if (!{goes_on}) break;")
            given = dict(zip(kernel.body.inputs, [*stepped, *current], strict=True))
            self.plan(kernel.body, given | dict(zip(kernel.body.outputs, following, strict=True)))
            self._exchange(current, following)
        self._finish(kernel, current, following)

    def branch(self, kernel: Branch) -> None:
        """The branch of an index, clamped to the first and the last branch."""
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
