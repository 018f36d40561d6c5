"""Plan to table: every kernel a row of words, every buffer a slot of the frame.

The plans inside loops and branches are flattened into the same frame. Buffers shared with the
enclosing plan share its slots, so entering them copies nothing; their temporaries are in the same
arena, after the temporaries of the enclosing plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlx.backends.cpu.emit.carried import carried_row
from rlx.backends.cpu.emit.kernel_code import KernelCode, loops_extent
from rlx.backends.cpu.emit.layout import Layout
from rlx.backends.cpu.emit.plan_codes import compiled_kernels
from rlx.backends.cpu.routines.blas import gemm_fields
from rlx.backends.cpu.routines.host_steps import HostStep, Underway, host_function
from rlx.backends.cpu.routines.numba_steps import numba_step
from rlx.backends.cpu.routines.radix_sort import sort_fields, sort_form, suits_radix_sort
from rlx.backends.cpu.routines.special import bind_special
from rlx.backends.cpu.runtime import executor, row_tile_steps
from rlx.backends.cpu.runtime.cost import parallel_parts, plan_cost
from rlx.backends.cpu.runtime.entry import RuntimeCode
from rlx.backends.cpu.runtime.frame import FIRST_SLOT, STEP_HEAD
from rlx.backends.cpu.runtime.row_tile_form import row_tile_form
from rlx.backends.cpu.runtime.store import default_store
from rlx.backends.cpu.runtime.threads import dividing_threads, get_num_threads
from rlx.backends.timing import TimedStep
from rlx.errors import VerificationError
from rlx.ir.kernels import (
    Await,
    Branch,
    Buffer,
    Callback,
    Collective,
    Contract,
    Kernel,
    Library,
    Loops,
    Plan,
    RowTiles,
    Scan,
    Sort,
    While,
    all_kernels,
)
from rlx.ir.row_tiles import iterations
from rlx.ir.size_functions import chosen, greatest
from rlx.ir.sized_data import refuse_sizes, sizes_in
from rlx.ir.user_functions import ArrayCall
from rlx.offered_names import LateModule
from rlx.storage import ALIGNMENT, Storage, aligned, allocate, from_numpy

if TYPE_CHECKING:
    from rlx.backends.cpu.routines import native_library
else:
    native_library = LateModule("rlx.backends.cpu.routines.native_library")

__all__ = ["HostKernel", "StepTable", "TableWords", "TimeLog", "build_table", "table_words"]

UNBOUNDED = 1 << 62
SLICE_NANOSECONDS = 1e6  # of a loop in one function, between two checks for Ctrl-C
LONG_KERNEL_PARTS = 10  # a kernel that is worth this many threads is followed by such a check


@dataclass(frozen=True)
class TimeLog:
    """The slot with the address of a log of times, and the step that each of its cells counts."""

    slot: int
    steps: tuple[TimedStep, ...]


@dataclass(frozen=True)
class StepTable:
    """rows: the steps. slots: the words of a frame; those `relative` count from its arena."""

    rows: np.ndarray
    slots: np.ndarray
    relative: np.ndarray
    arena: int
    kept: tuple[object, ...]  # constants and host functions that the words refer to
    underway: Underway
    calls_python: bool
    clock: TimeLog | None = None


class HostKernel(NamedTuple):
    """A word that stands for the address of a function, which is made for the sizes of each call."""

    kernel: Sort
    slots: Mapping[Buffer, int]


@dataclass(frozen=True)
class TableWords:
    """The words of a StepTable, some of which may depend on symbolic sizes."""

    rows: list[Any]
    slots: list[int]
    relative: list[int]
    arena: int
    kept: tuple[object, ...]
    underway: Underway
    calls_python: bool
    clock: TimeLog | None = None


def build_table(plan: Plan, steps: Mapping[str, int], timed: bool = False) -> StepTable:
    """The table of a plan; see table_words."""
    words = table_words(plan, steps, timed)
    rows, slots, relative = (np.array(part, np.int64) for part in (words.rows, words.slots, words.relative))
    return StepTable(
        rows, slots, relative, words.arena, words.kept, words.underway, words.calls_python, words.clock
    )


def table_words(plan: Plan, steps: Mapping[str, int], timed: bool = False) -> TableWords:
    """Compile missing code and lay out the table of a plan; with a clock step after each kernel if `timed`.

    The first two clock steps of a timed table belong to no kernel: they start the clock, and measure
    the cost of a clock step.
    """
    builder = _FrameBuilder(steps, timed=timed)
    builder.compile_codes(plan)
    slots = {buffer: builder.slot() for buffer in plan.inputs}
    slots |= {buffer: builder.slot() for buffer in plan.outputs}
    if len(slots) != len(plan.inputs) + len(plan.outputs):
        raise VerificationError(f"{plan.name}: a buffer is bound twice by a call")
    first = builder.clock("") + builder.clock("")
    rows = first + builder.rows(_PlanSlots(builder, plan, slots, 0))
    return TableWords(
        rows,
        builder.words,
        builder.relative,
        builder.arena,
        (*builder.constants.values(), *builder.functions),
        builder.underway,
        bool(builder.functions),
        TimeLog(builder.clock_slot, tuple(builder.timed_steps)) if timed else None,
    )


@dataclass
class _PlanSlots:
    """The slots of one plan's buffers; its temporaries start at byte `base` of the arena.

    `path` is the prefix of its kernels' numbers.
    """

    builder: _FrameBuilder
    plan: Plan
    slots: dict[Buffer, int]
    base: int
    path: str = ""

    def __call__(self, buffer: Buffer) -> int:
        slot = self.slots.get(buffer)
        if slot is None:
            slot = self.slots[buffer] = self.builder.place(buffer, self.plan, self.base)
        return slot


@dataclass
class _FrameBuilder:
    """The frame so far, and a method for each kind of kernel that makes its row."""

    steps: Mapping[str, int]
    words: list[int] = field(default_factory=lambda: [0] * FIRST_SLOT)
    relative: list[int] = field(default_factory=list)
    arena: int = 0
    constants: dict[Buffer, Storage] = field(default_factory=dict)
    functions: list[HostStep] = field(default_factory=list)
    underway: Underway = field(default_factory=Underway)
    layouts: dict[Kernel, Layout] = field(default_factory=dict)
    codes: dict[Kernel, KernelCode] = field(default_factory=dict)
    timed: bool = False
    clock_slot: int = 0
    timed_steps: list[TimedStep] = field(default_factory=list)

    def compile_codes(self, plan: Plan) -> None:
        """Find the code of every kernel, and compile missing code together."""
        for kernel, code, layout in compiled_kernels(plan):
            self.codes[kernel] = code
            if layout is not None:
                self.layouts[kernel] = layout
        for code in self.codes.values():
            bind_special(code.external)
        runtime_codes = [RuntimeCode(part) for part in sorted(_runtime_parts(plan))]
        default_store().prepare([*runtime_codes, *self.codes.values()])

    def address(self, code: KernelCode) -> int:
        """The native function of a code."""
        return default_store().address(code.key, code.symbol, lambda: code.ir)

    def slot(self, word: int = 0) -> int:
        """A new slot; most are filled in while the plan runs."""
        self.words.append(word)
        return len(self.words) - 1

    def arena_slot(self, offset: int, nbytes: int) -> int:
        """A slot for bytes of the arena."""
        self.arena = greatest(self.arena, offset + nbytes)
        slot = self.slot(offset)
        self.relative.append(slot)
        return slot

    def place(self, buffer: Buffer, plan: Plan, base: int) -> int:
        """The slot of a buffer that no call binds."""
        if buffer.value is not None:
            if buffer not in self.constants:
                self.constants[buffer] = _constant(buffer.value)
            return self.slot(self.constants[buffer].pointer)
        if buffer not in plan.offsets:
            raise VerificationError(f"buffer {buffer.name!r} ({buffer.role}) has no place")
        return self.arena_slot(base + plan.offsets[buffer], buffer.nbytes)

    def rows(self, scope: _PlanSlots) -> list[int]:
        """The rows of a plan's kernels."""
        plan = scope.plan
        inner = scope.base + aligned(plan.arena)
        self.arena = greatest(self.arena, inner)
        rows: list[int] = []
        for number, kernel in enumerate(plan.kernels):
            path = f"{scope.path}{number}"
            rows += self.row(kernel, scope, inner, path)
            rows += self.clock(path, kernel)
        return rows

    def clock(self, path: str, kernel: Kernel | None = None) -> list[int]:
        """A clock step after the kernel at `path`, if the table is timed."""
        if not self.timed:
            return []
        if not self.timed_steps:
            self.clock_slot = self.slot()
        cell = executor.LOG_HEAD + executor.CELL_WORDS * len(self.timed_steps)
        self.timed_steps.append(TimedStep(path, kernel))
        return self.step("clock_step", [self.clock_slot, cell])

    def row(self, kernel: Kernel, scope: _PlanSlots, inner: int, path: str) -> list[int]:
        """One row; plans inside the kernel use the arena from byte `inner` on."""
        if isinstance(kernel, Loops):
            return self.loops(kernel, scope)
        if isinstance(kernel, Contract):
            fields = gemm_fields(kernel, scope, parallel_parts(kernel))
            return self.step("gemm_step", fields)
        if isinstance(kernel, RowTiles):
            return self.row_tiles(kernel, scope, inner)
        if isinstance(kernel, Callback) and isinstance(kernel.function, ArrayCall):
            refuse_sizes(kernel)
            return self.numba_call(kernel, kernel.function, scope)
        if isinstance(kernel, Library):
            refuse_sizes(kernel)
            rows = native_library.library_rows(kernel, scope, self.arena_slot, inner, self.steps["launch"])
            if rows is not None:
                return rows
        if isinstance(kernel, Sort) and suits_radix_sort(kernel):
            return self.radix_sort(kernel, scope, inner)
        if isinstance(kernel, Sort) and any(True for _ in sizes_in(kernel)):
            return self.step("host_step", [HostKernel(kernel, {b: scope(b) for b in (*kernel.reads, *kernel.writes)})])
        if isinstance(kernel, (Sort, Library, Callback, Collective, Await)):
            refuse_sizes(kernel)
            function = host_function(kernel, scope, self.underway)
            self.functions.append(function)
            return self.step("host_step", [id(function)])
        if isinstance(kernel, Branch):
            return self.branch(kernel, scope, inner, path)
        if isinstance(kernel, (Scan, While)):
            code = self.codes.get(kernel)
            if code is not None:
                return self.carried(kernel, code, scope)
            if isinstance(kernel, Scan):
                return self.scan(kernel, scope, inner, path)
            return self.while_loop(kernel, scope, inner, path)
        raise VerificationError(f"the CPU has no kernels of kind {type(kernel).__name__}")

    def step(self, name: str, fields: Sequence[Any]) -> list[Any]:
        """A row of the step called `name`."""
        return [self.steps[name], STEP_HEAD + len(fields), *fields]

    def numba_call(self, kernel: Callback, call: ArrayCall, scope: _PlanSlots) -> list[int]:
        """A row whose step calls a user's function in native code."""
        step = numba_step(call)
        self.functions.append(step)
        fields = []
        for operand in (*kernel.outputs, *kernel.inputs):
            fields += [scope(operand.buffer), operand.offset * operand.buffer.dtype.itemsize]
        return [step.address, STEP_HEAD + len(fields), *fields]

    def loops(self, kernel: Loops, scope: _PlanSlots) -> list[int]:
        layout = self.layouts[kernel]
        address = self.address(self.codes[kernel])
        fields = [address, loops_extent(kernel, layout), parallel_parts(kernel)]
        own = layout.row(scope)
        if kernel.chunks > 1:
            return self.step("chunked_step", [*fields, kernel.chunks, *own])
        parts = fields[2]
        alone = chosen(parts, LONG_KERNEL_PARTS, self.steps["kernel_step"], self.steps["long_kernel_step"])
        first = chosen(parts, 2, alone, self.steps["parallel_step"]) if layout.tiling.kernel.parallel else alone
        return [first, STEP_HEAD + len(fields) + len(own), *fields, *own]

    def radix_sort(self, kernel: Sort, scope: _PlanSlots, inner: int) -> list[int]:
        form = sort_form(kernel, parallel_parts(kernel), get_num_threads())
        scratch = self.arena_slot(inner, form.row_tasks * form.scratch)
        return self.step("sort_step", sort_fields(kernel, form, scratch, scope))

    def row_tiles(self, kernel: RowTiles, scope: _PlanSlots, inner: int) -> list[int]:
        """A row with the rows of kernels in it, which use slots of the worker that runs them."""
        form = row_tile_form(kernel, dividing_threads())
        used = dict.fromkeys(b for k in kernel.kernels for b in (*k.reads, *k.writes))
        shared = [b for b in used if b not in kernel.local]
        own = {b: n for n, b in enumerate((*shared, *kernel.local))}
        start = aligned(8 * len(own))
        nbytes = start + aligned(kernel.scratch * form.longest)
        scratch = self.arena_slot(inner, form.workers * nbytes)
        entries = [scope(b) for b in shared]
        for buffer in kernel.local:
            entries += [kernel.offsets[buffer], buffer.nbytes // kernel.count]
        members = [word for k in kernel.kernels for word in self.member(k, kernel.count, own.__getitem__)]
        fields = [kernel.count, form.row_tiles, form.workers, parallel_parts(kernel), scratch, nbytes]
        fields += [len(shared), len(kernel.local), start, form.longest, row_tile_steps.ENTRIES + len(entries)]
        return self.step("row_tiles_step", [*fields, *entries, *members])

    def member(self, kernel: Loops | Contract, count: int, slot_of: Callable[[Buffer], int]) -> list[int]:
        """The words of a kernel that runs tile by tile."""
        each = iterations(kernel) // count
        if isinstance(kernel, Contract):
            kind = row_tile_steps.PRODUCT
            own = self.step("gemm_step", gemm_fields(kernel, slot_of, 1))
        else:
            kind = row_tile_steps.CHUNKED if kernel.chunks > 1 else row_tile_steps.LOOPS
            chunks = [kernel.sizes[0], kernel.chunks] if kernel.chunks > 1 else []
            own = [self.address(self.codes[kernel]), *chunks, *self.layouts[kernel].row(slot_of)]
        return [kind, row_tile_steps.KERNEL + len(own), each, *own]

    def carried(self, kernel: Scan | While, code: KernelCode, scope: _PlanSlots) -> list[int]:
        """A whole loop in one function, run in slices so that it can check for Ctrl-C."""
        trips = kernel.length if isinstance(kernel, Scan) else UNBOUNDED
        turn = plan_cost(kernel.body) + 1.0
        size = max(1, int(SLICE_NANOSECONDS / turn))
        own = carried_row(kernel, scope)
        return self.step("carried_step", [self.address(code), size, trips, *own])

    def carries(
        self, kernel: Scan | While, scope: _PlanSlots, inner: int
    ) -> tuple[list[list[int]], list[int], list[int], int]:
        """An entry for each carry that moves, the slots that the body reads and writes for each
        carry, and the first byte of the arena behind their scratch."""
        entries: list[list[int]] = []
        read: list[int] = []
        written: list[int] = []
        pairs = zip(kernel.initial, kernel.final, strict=True)
        for number, (first, last) in enumerate(pairs):
            if number in kernel.in_place:
                read.append(scope(last))
                written.append(scope(last))
                continue
            scratch = self.arena_slot(inner, last.nbytes)
            inner += aligned(last.nbytes)
            read.append(self.slot())
            written.append(self.slot())
            entries.append([read[-1], written[-1], scope(first), scope(last), scratch, last.nbytes])
        return entries, read, written, inner

    def copies_in_place(self, kernel: Scan | While, scope: _PlanSlots) -> list[int]:
        """Rows that copy carries in place to their memory."""
        rows: list[int] = []
        for number in kernel.in_place:
            first, last = kernel.initial[number], kernel.final[number]
            if first is not last:
                rows += self.step("copy_step", [scope(first), scope(last), last.nbytes])
        return rows

    def streams(self, kernel: Scan, scope: _PlanSlots) -> list[list[int]]:
        """An entry for each array that a scan walks along: xs, then ys."""
        entries = []
        for buffer in (*kernel.xs, *kernel.ys):
            stride = buffer.nbytes // max(kernel.length, 1)
            start = stride * (kernel.length - 1) if kernel.reverse else 0
            entries.append([self.slot(), scope(buffer), start, -stride if kernel.reverse else stride])
        return entries

    def scan(self, kernel: Scan, scope: _PlanSlots, inner: int, path: str) -> list[int]:
        copies = self.copies_in_place(kernel, scope)
        carries, read, written, inner = self.carries(kernel, scope, inner)
        streams = self.streams(kernel, scope)
        slices = [entry[executor.SLICE_SLOT] for entry in streams]
        xs, ys = slices[: len(kernel.xs)], slices[len(kernel.xs) :]
        constants = [scope(buffer) for buffer in kernel.constants]
        bound = [*constants, *read, *xs]
        body = self.inside(kernel.body, bound, [*written, *ys], inner, f"{path}.body.")
        entries = [word for entry in (*carries, *streams) for word in entry]
        return copies + self.step("scan_step", [kernel.length, len(carries), len(streams), *entries, *body])

    def while_loop(self, kernel: While, scope: _PlanSlots, inner: int, path: str) -> list[int]:
        copies = self.copies_in_place(kernel, scope)
        carries, read, written, inner = self.carries(kernel, scope, inner)
        flag = self.arena_slot(inner, 1)
        inner += ALIGNMENT
        tests = [scope(buffer) for buffer in kernel.condition_constants]
        constants = [scope(buffer) for buffer in kernel.body_constants]
        condition = self.inside(kernel.condition, [*tests, *read], [flag], inner, f"{path}.condition.")
        body = self.inside(kernel.body, [*constants, *read], written, inner, f"{path}.body.")
        entries = [word for entry in carries for word in entry]
        offset = executor.WHILE_ENTRIES + len(entries) + len(condition)
        return copies + self.step("while_step", [flag, len(carries), offset, *entries, *condition, *body])

    def branch(self, kernel: Branch, scope: _PlanSlots, inner: int, path: str) -> list[int]:
        inputs = [scope(buffer) for buffer in kernel.inputs]
        outputs = [scope(buffer) for buffer in kernel.outputs]
        tables = [
            self.inside(plan, inputs, outputs, inner, f"{path}.branch{number}.")
            for number, plan in enumerate(kernel.branches)
        ]
        offsets = [executor.BRANCH_OFFSETS + len(tables) + 1]
        for table in tables:
            offsets.append(offsets[-1] + len(table))
        words = [word for table in tables for word in table]
        return self.step("branch_step", [scope(kernel.index), len(tables), *offsets, *words])

    def inside(self, plan: Plan, inputs: Sequence[int], outputs: Sequence[int], inner: int, path: str) -> list[int]:
        """The rows of a plan inside a kernel, its inputs and outputs at the given slots."""
        slots = dict(zip(plan.inputs, inputs, strict=True))
        slots |= dict(zip(plan.outputs, outputs, strict=True))
        return self.rows(_PlanSlots(self, plan, slots, inner, path))


def _runtime_parts(plan: Plan) -> set[str]:
    """The parts of the run-time system that a plan's steps are in, other than its core."""
    parts: set[str] = set()
    for kernel in all_kernels(plan):
        if isinstance(kernel, (Contract, RowTiles)):
            parts.add("products")
        elif isinstance(kernel, (Scan, While, Branch)):
            parts.add("control")
        elif isinstance(kernel, Sort) and suits_radix_sort(kernel):
            parts.add("sorting")
    return parts


def _constant(value: np.ndarray) -> Storage:
    """The value in memory that rlx owns, unless it is contiguous and can never change."""
    if not value.flags.writeable and value.flags.c_contiguous and value.base is None:
        return from_numpy(value)
    storage = allocate(value.nbytes)
    storage.view(value.shape, value.dtype)[...] = value
    return storage
