"""Loops as the code of one kernel: a subclass decides which work-items run their steps.

Carries exchange their places in memory. After a barrier all work-items read each value that decides control flow (a
condition, a branch's index), so that they take the same path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, count

import numpy as np

from rlx.backends.gpu.dialect import DeviceDialect
from rlx.backends.gpu.limits import Limits
from rlx.backends.gpu.steps import LaunchStep, code_step
from rlx.backends.loops.dialect import Parameter
from rlx.code.binding import Places, bound
from rlx.code.tree import (
    Allocate,
    Apply,
    Array,
    Barrier,
    Block,
    Exchange,
    Expression,
    Leave,
    Number,
    Register,
    View,
)
from rlx.code.writing import CodeWriter
from rlx.ir.kernels import Branch, Buffer, Kernel, Plan, RowTiles, Scan, While, constants_of, nested_plans
from rlx.ir.types import element_dtype

__all__ = ["BYTE", "Address", "LoopWriter"]

BYTE = np.dtype(np.uint8)
_BOOL, _INT32, _INT64 = (np.dtype(name) for name in ("bool", "int32", "int64"))


@dataclass(frozen=True, slots=True)
class Address:
    """A byte of an array of bytes."""

    array: Array
    offset: Expression = Number(_INT64, 0)

    def __add__(self, nbytes: Expression | int) -> Address:
        return Address(self.array, self.offset + nbytes)


class LoopWriter(ABC):
    """The code of a loop's kernel; `names` are the arrays that it takes, as bytes.

    addresses: of each buffer. pointers: the two addresses that a carry's views have in turn, by the views' names.
    ranges: the smallest and the largest value of the loops' indices. shared: the group's arrays.
    """

    def __init__(self, kernel: Kernel, limits: Limits, dialect: DeviceDialect) -> None:
        self.limits = limits
        self.dialect = dialect
        self.code = CodeWriter()
        constants = [b for plan in nested_plans(kernel) for b in constants_of(plan)]
        self.names: dict[Buffer, str] = {}
        self.addresses: dict[Buffer, Address] = {}
        for buffer in (*kernel.reads, *kernel.writes, *constants):
            self.addresses[buffer] = self.parameter(buffer)
        self.pointers: dict[str, tuple[Address, Address]] = {}
        self.ranges: dict[Register, tuple[int, int]] = {}
        self.shared: dict[str, Array] = {}
        self._count = 0

    @property
    @abstractmethod
    def items(self) -> tuple[Expression, Expression]:
        """The index of a work-item among all that run the loop, and the number of work-items."""

    @abstractmethod
    def barrier(self) -> None:
        """A barrier: all work-items that run the loop wait for one another, and see each other's writes."""

    @abstractmethod
    def settle(self) -> None:
        """Make the writes so far visible to all work-items that run the loop."""

    @abstractmethod
    def work(self, kernel: Kernel) -> None:
        """The code of a kernel without inner plans; its writes may be visible only after `settle`."""

    # ------------------------------------------------------------------ memory
    def parameter(self, buffer: Buffer) -> Address:
        """The memory of a buffer that the kernel takes."""
        return Address(Array(self.names.setdefault(buffer, f"m{len(self.names)}"), BYTE))

    def scratch(self, nbytes: int) -> Address:
        """Allocate memory that belongs to the kernel."""
        return self.parameter(Buffer(BYTE, max(nbytes, 1)))

    def address(self, buffer: Buffer) -> Address:
        """The address of a buffer; a buffer that is not in a plan belongs to the kernel."""
        return self.addresses.get(buffer) or self.parameter(buffer)

    def new(self, name: str) -> str:
        """A new name."""
        self._count += 1
        return f"{name}_{self._count}"

    def view(self, name: str, address: Address, dtype: np.dtype, nbytes: int) -> Array:
        """Declare an array of elements at an address."""
        array = Array(self.new(name), dtype, "device", (nbytes // dtype.itemsize,))
        self.code.add(View(array, address.array, address.offset))
        return array

    def copy(self, target: Address, source: Address, buffer: Buffer) -> None:
        """A loop of all work-items over the elements of a buffer."""
        word = np.dtype(f"uint{8 * element_dtype(buffer.dtype).itemsize}")
        to, given = (self.view(name, at, word, buffer.nbytes) for name, at in (("to", target), ("given", source)))
        place, (item, items) = Register(_INT64, self.new("place")), self.items
        with self.code.loop(place, item, buffer.nbytes // word.itemsize, items):
            self.code.write(to[place], given[place])

    def bound_code(
        self, parameters: Sequence[Parameter], buffers: Sequence[Buffer], block: Block, places: Places
    ) -> list[Array]:
        """The code of a launch, on views of its buffers and as if run at other places. Returns the views.

        Its group's arrays become the kernel's: those with equal names, dtypes and shapes share memory.
        """
        views = [
            self.view(parameter.name, self.address(buffer), element_dtype(parameter.dtype), buffer.nbytes)
            for parameter, buffer in zip(parameters, buffers, strict=True)
        ]
        names = {parameter.name: view.name for parameter, view in zip(parameters, views, strict=True)}
        rest = []
        for statement in block:
            if isinstance(statement, Allocate) and statement.array.space == "group":
                names[statement.array.name] = self._shared(statement.array).name
            else:
                rest.append(statement)
        self.code.add(*bound(tuple(rest), names, places))
        return views

    def _shared(self, array: Array) -> Array:
        """The kernel's array in place of a launch's array of the group."""
        names = chain([array.name], (f"{array.name}_of_{number}" for number in count(2)))
        named = (replace(array, name=name) for name in names)
        chosen = next(a for a in named if self.shared.get(a.name, a) == a)
        return self.shared.setdefault(chosen.name, chosen)

    def step(self, label: str, strategy: str, groups: int, roomy: int = 0) -> LaunchStep:
        """The launch of the whole code."""
        parameters = [Parameter(name, BYTE, True) for name in self.names.values()]
        block = (*map(Allocate, self.shared.values()), *self.code.block)
        return code_step(
            label, strategy, self.dialect, parameters, [*self.names], block, groups, self.limits.group, roomy=roomy
        )

    # ------------------------------------------------------------------ plans
    def plan(self, plan: Plan, given: Mapping[Buffer, Address]) -> None:
        """The code of a plan's kernels, given the addresses of its inputs and outputs."""
        before = self.addresses
        self.addresses = {**before, **given}
        if plan.arena:
            arena = self.scratch(plan.arena)
            self.addresses |= {b: arena + at for b, at in plan.offsets.items()}
        for kernel in plan.kernels:
            self.kernel(kernel)
        self.settle()
        self.addresses = before

    def kernel(self, kernel: Kernel) -> None:
        """The code of a kernel."""
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
        self.addresses |= {b: self.scratch(b.nbytes) for b in kernel.local}
        for inner in kernel.kernels:
            self.kernel(inner)

    # ------------------------------------------------------------------ loops
    def _carries(self, kernel: Scan | While) -> tuple[list[Address], list[Address]]:
        """The current carries and the following ones: views that `_exchange` swaps, but for carries in place.

        Without pointers, `_exchange` copies the following ones to the current ones, which are in their final places.
        """
        current, following, copied = [], [], False
        for number, (initial, final) in enumerate(zip(kernel.initial, kernel.final, strict=True)):
            target = self.addresses[final]
            if initial is not final:
                copied = True
                self.copy(target, self.addresses[initial], final)
            if number in kernel.in_place:
                current.append(target)
                following.append(target)
                continue
            places = target, self.scratch(final.nbytes)
            if not self.dialect.has_pointers:
                current.append(places[0])
                following.append(places[1])
                continue
            now, after = (self.view("carry", place, BYTE, final.nbytes) for place in places)
            self.pointers |= {now.name: places, after.name: places}
            current.append(Address(now))
            following.append(Address(after))
        if copied:
            self.barrier()
        return current, following

    def _exchange(self, kernel: Scan | While, current: Sequence[Address], following: Sequence[Address]) -> None:
        moving = [c for c in zip(kernel.final, current, following, strict=True) if c[1] != c[2]]
        for buffer, now, after in moving:
            if self.dialect.has_pointers:
                self.code.add(Exchange(now.array, after.array))
            else:
                self.copy(now, after, buffer)
        if moving and not self.dialect.has_pointers:
            self.barrier()

    def _finish(self, kernel: Scan | While, current: Sequence[Address], following: Sequence[Address]) -> None:
        """Copy carries that are not in their final places after an odd number of steps."""
        if not self.dialect.has_pointers:
            return
        for buffer, now, after in zip(kernel.final, current, following, strict=True):
            if now != after:
                self.copy(self.addresses[buffer], now, buffer)

    def scan(self, kernel: Scan) -> None:
        """A loop over slices."""
        body, constants, carries = kernel.body, len(kernel.constants), len(kernel.initial)
        current, following = self._carries(kernel)
        step = Register(_INT64, self.new("step"))
        self.ranges[step] = (0, max(kernel.length - 1, 0))
        with self.code.loop(step, 0, kernel.length, backward=kernel.reverse):
            given = [*(self.addresses[b] for b in kernel.constants), *current]
            slices = [(body.inputs[constants + carries :], kernel.xs), (body.outputs[carries:], kernel.ys)]
            xs, ys = (
                [self.addresses[whole] + step * part.nbytes for part, whole in zip(*pair, strict=True)]
                for pair in slices
            )
            places = (*zip(body.inputs, [*given, *xs], strict=True), *zip(body.outputs, [*following, *ys], strict=True))
            self.plan(body, dict(places))
            self._exchange(kernel, current, following)
        if kernel.length % 2:
            self._finish(kernel, current, following)

    def while_loop(self, kernel: While) -> None:
        """A while loop."""
        current, following = self._carries(kernel)
        place, code = self.scratch(1), self.code
        flag = self.view("flag", place, _BOOL, 1)
        odd = code.declare(self.new("odd"), Number(_BOOL, False), changes=True)
        asked, stepped = (
            [self.addresses[b] for b in side] for side in (kernel.condition_constants, kernel.body_constants)
        )
        with code.free_loop():
            given = dict(zip(kernel.condition.inputs, [*asked, *current], strict=True))
            self.plan(kernel.condition, given | {kernel.condition.outputs[0]: place})
            goes_on = code.declare(self.new("goes_on"), flag[0])
            before = len(code.block)
            with code.when(Apply(_BOOL, "not", (goes_on,))):
                code.add(Leave())
            given = dict(zip(kernel.body.inputs, [*stepped, *current], strict=True))
            self.plan(kernel.body, given | dict(zip(kernel.body.outputs, following, strict=True)))
            if not any(isinstance(s, Barrier) for s in code.block[before:]):  # all read the flag before it changes
                self.barrier()
            self._exchange(kernel, current, following)
            code.assign(odd, Apply(_BOOL, "not", (odd,)))
        with code.when(odd):
            self._finish(kernel, current, following)

    def branch(self, kernel: Branch) -> None:
        """The branch of an index, clamped to the first and the last branch."""
        places = [self.addresses[b] for b in (*kernel.inputs, *kernel.outputs)]
        number = self.view("index", self.addresses[kernel.index], _INT32, _INT32.itemsize)
        which = self.code.declare(self.new("which"), number[0])
        *others, last = kernel.branches
        with ExitStack() as nest:
            for position, plan in enumerate(others):
                with self.code.when(which <= position):
                    self.plan(plan, dict(zip((*plan.inputs, *plan.outputs), places, strict=True)))
                nest.enter_context(self.code.otherwise())
            self.plan(last, dict(zip((*last.inputs, *last.outputs), places, strict=True)))
