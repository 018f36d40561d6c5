"""A plan made ready for the native executor, and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.base import PlannedExecutable
from rlx.backends.cpu.runtime.cost import STRETCH_NANOSECONDS, THREAD_NANOSECONDS, longest_stretch, plan_cost
from rlx.backends.cpu.runtime.entry import load_runtime
from rlx.backends.cpu.runtime.frame import (
    FIRST_SLOT,
    INPUTS,
    OUTPUTS,
    POINTER_NAME,
    POOL,
    RELEASE,
    STOPPED,
    TABLE,
    TABLE_END,
)
from rlx.backends.cpu.runtime.table import StepTable, build_table
from rlx.backends.cpu.runtime.texts import plan_texts
from rlx.backends.cpu.runtime.threads import pool_address
from rlx.backends.cpu.runtime.timed import TimedNativeExecutable
from rlx.backends.timing import TimedExecutable
from rlx.errors import InputTypeError
from rlx.interrupts import abandonable
from rlx.ir.kernels import Plan
from rlx.storage import Blocks, Storage, allocate, padded, queue_for, take

__all__ = ["RELEASE_NANOSECONDS", "AbandonableExecutable", "NativeExecutable", "native_executable"]

# a plan that takes longer runs without the GIL; so do all plans that use several threads, since
# code in a worker (SciPy's reports of errors) may need it
RELEASE_NANOSECONDS = 2 * THREAD_NANOSECONDS
KEPT_ARENA = 1 << 22  # a frame keeps an arena up to this size; larger ones come from the pool
# results this small share a block; one that lives on keeps no more than a block of this size
SMALL_OUTPUT = 256
BLOCK = 4096
_POINTER = "pointer"


class _Frame:
    """The words of one call in progress, and the arena that its slots point into."""

    __slots__ = ("address", "arena", "base", "words")

    def __init__(self, words: np.ndarray) -> None:
        self.words = words
        self.address = int(words.ctypes.data)
        self.base = 0
        self.arena: Storage | None = None

    def rest_on(self, arena: Storage, relative: np.ndarray) -> None:
        """Point the slots of temporaries into `arena`."""
        self.arena = arena
        if arena.pointer != self.base:
            self.words[relative] += arena.pointer - self.base
            self.base = arena.pointer

    def stop(self) -> None:
        """Abandon the call: its steps end at their next check."""
        self.words[STOPPED] = 1


class OwnFrame(NamedTuple):
    """A frame for calls from native code. outputs: returns memory for the results; kept: what the address points to."""

    address: int
    input_slot: int
    output_slot: int
    outputs: Callable[[], list[Storage]]
    kept: Any


def _small_blocks(sizes: Sequence[int]) -> list[tuple[list[int], Blocks]]:
    """Numbers of small results that share a block, and their blocks."""
    groups: list[list[int]] = [[]]
    used = 0
    for number, nbytes in enumerate(sizes):
        if nbytes > SMALL_OUTPUT:
            continue
        used += padded(nbytes)
        if used > BLOCK:
            groups.append([])
            used = padded(nbytes)
        groups[-1].append(number)
    return [(g, Blocks([sizes[n] for n in g])) for g in groups if len(g) > 1]


class NativeExecutable(PlannedExecutable):
    """A plan as a table of native steps. Each call in progress has its own frame."""

    def __init__(self, plan: Plan, timed: bool = False) -> None:
        self.plan = plan
        table = build_table(plan, load_runtime().addresses, timed)
        sizes = [buffer.nbytes for buffer in plan.outputs]
        self._prepare(table, len(plan.inputs), sizes, bool(plan_cost(plan) >= RELEASE_NANOSECONDS))

    def _prepare(self, table: StepTable, inputs: int, output_bytes: Sequence[int], releases: bool) -> None:
        """releases: whether runs are without the GIL."""
        self._table = table
        self._call = load_runtime().call
        self._queues = [queue_for(nbytes) for nbytes in output_bytes]
        self._blocks = _small_blocks(output_bytes)
        self._input_count = inputs
        self._template = self._frame_template(len(output_bytes), releases)
        self._frames: list[_Frame] = []
        self._keeps_arena = self._table.arena <= KEPT_ARENA

    def run(self, inputs: Sequence[Storage], frame: _Frame | None = None) -> list[Storage]:
        """Run on dense inputs in the order of plan.inputs; fresh (pooled) storages come back. `frame`: to run on."""
        if len(inputs) != self._input_count:
            raise InputTypeError(f"{len(inputs)} inputs for a plan of {self._input_count}")
        outputs = self._outputs() if self._blocks else list(map(take, self._queues))
        frames = self._frames
        if frame is None:
            try:
                frame = frames.pop()
            except IndexError:
                frame = None
            if frame is None:
                frame = self._new_frame()
        if not self._keeps_arena:
            frame.rest_on(allocate(self._table.arena), self._table.relative)
        done = False
        try:
            found = self._call(frame.address, inputs, outputs)
            done = True
            return found
        finally:
            if not done:
                self._table.underway.abandon(frame.address)
            if not self._keeps_arena:
                frame.arena = None
            frames.append(frame)

    def own_frame(self) -> OwnFrame | None:
        """A frame for calls from native code; None if steps are Python functions, or if the arena is large."""
        if self._table.calls_python or not self._keeps_arena:
            return None
        frame = self._frames.pop() if self._frames else self._new_frame()
        return OwnFrame(frame.address, FIRST_SLOT, FIRST_SLOT + self._input_count, self._outputs, (frame, self))

    def _outputs(self) -> list[Storage]:
        """Memory for the results, small ones from blocks."""
        blocks = self._blocks
        if not blocks:
            return list(map(take, self._queues))
        if len(blocks) == 1 and len(blocks[0][0]) == len(self._queues):
            return blocks[0][1].take()
        outputs: list[Any] = [None] * len(self._queues)
        for numbers, block in blocks:
            for number, storage in zip(numbers, block.take(), strict=True):
                outputs[number] = storage
        return [s or take(queue) for s, queue in zip(outputs, self._queues, strict=True)]

    def texts(self) -> dict[str, str]:
        """The plan, its kernels and loop nests, LLVM IR and assembly."""
        return plan_texts(self.plan)

    def timed(self) -> TimedExecutable:
        """The same plan with a clock step behind every kernel."""
        clocked = NativeExecutable(self.plan, timed=True)
        assert clocked._table.clock is not None
        return TimedNativeExecutable(clocked, clocked._table.clock, clocked._template)

    def _frame_template(self, outputs: int, releases: bool) -> np.ndarray:
        words = self._table.slots.copy()
        rows = self._table.rows
        words[POOL] = pool_address()
        words[TABLE] = rows.ctypes.data
        words[TABLE_END] = rows.ctypes.data + rows.nbytes
        words[RELEASE] = releases
        words[INPUTS] = self._input_count
        words[OUTPUTS] = outputs
        words[POINTER_NAME] = id(_POINTER)
        return words

    def _new_frame(self) -> _Frame:
        frame = _Frame(self._template.copy())
        if self._keeps_arena:
            frame.rest_on(allocate(self._table.arena), self._table.relative)
        return frame


class AbandonableExecutable(NativeExecutable):
    """A plan with a long step that cannot check for Ctrl-C: an interrupt need not wait for its end."""

    def run(self, inputs: Sequence[Storage], frame: _Frame | None = None) -> list[Storage]:
        """Like other plans' `run`, in a separate thread."""
        frames = self._frames
        with suppress(IndexError):
            frame = frame or frames.pop()
        own = frame or self._new_frame()
        return abandonable(lambda: super(AbandonableExecutable, self).run(inputs, own), own.stop)

    def own_frame(self) -> OwnFrame | None:
        """None: its calls run in threads."""
        return None


def native_executable(plan: Plan) -> NativeExecutable:
    """The executable of a plan, of the kind that its longest step requires."""
    kind = AbandonableExecutable if longest_stretch(plan) >= STRETCH_NANOSECONDS else NativeExecutable
    return kind(plan)
